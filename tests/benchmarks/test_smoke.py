"""Every benchmark runs with its smallest setting and prints its figures. No time is judged."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from gameglue.cli.demos import find_demos
from tests.benchmarks import (
    behaviours,
    cold,
    command_buffers,
    demos,
    first_start,
    frames,
    hitches,
    job_start,
    memory,
    models,
    new_sizes,
    operators,
    policy,
    slices,
    tokens,
)
from tests.benchmarks.processes import ROOT

SMALLEST = {
    "models": (
        "--models",
        "policy",
        "--backends",
        "cpu",
        "--runs",
        "1",
        "--turn",
        "0",
        "--peers",
        "onnxruntime",
    ),
    "operators": ("--only", "relu float32, 64 of 112", "--runs", "1", "--turn", "0"),
    "policy": ("--batches", "1", "--runs", "1"),
    "new_sizes": ("--models", str(ROOT / "assets" / "swarm" / "swarm.onnx"), "--rounds", "2"),
    "memory": ("--models", "digits", "--backends", "cpu", "--runs", "1"),
    "cold": ("--models", "policy", "--backends", "cpu"),
    "first_start": ("--models", "policy"),
    "frames": ("--models", "digits", "--backends", "cpu", "--frames", "5", "--rounds", "1", "--rate", "0"),
    "hitches": ("--models", "policy", "--backends", "cpu", "--frames", "10"),
    "slices": ("--models", "digits", "--backends", "cpu", "--runs", "1"),
    "tokens": ("--backends", "cpu", "--tokens", "2", "--texts", "1"),
    "command_buffers": ("--workers", "2", "--runs", "1"),
    "gl_kernels": ("--runs", "1"),
    "transforms": ("--objects", "5", "--runs", "1"),
    "behaviours": ("--batches", "100", "--runs", "1"),
    "job_start": ("--batches", "2", "--runs", "1"),
    "demos": ("--demos", "rival", "upscale", "--seconds", "2"),
}
ROWS = {
    "models": [
        r"policy +\d+\.\d{3} +\d+\.\d{3} +\d+\.\d\d( !)? *\n",
        r"policy( +\d+\.\d){2} +\d+\.\d\d +\d+\.\d( +\d+\.\d\d){2}( +\d+\.\d){2} +\d+\.\d\d",
        r"geometric mean of x +\d+\.\d\d( !)? *\n",
        r"policy +\d+\.\d +\d+\.\d +\d\.\d *\n",
        r"load on cpu +at most .*[01] of 1",
    ],
    "operators": [
        r"Relu float32, 64 of 112 x 112( +\d+\.\d{3}){2} +\d+\.\d\d( !)? +\d+\.\d\d *\n",
        r"beyond what is allowed: [01] of 1\n",
    ],
    "new_sizes": [r"swarm +cpu( +\d+\.\d\d){7} +[1-9]( +\d+\.\d\d){2} *\n"],
    "policy": [
        r"onnxruntime 1t +1 +\d+\.\d +\d+\.\d *\n",
        r"cpu +1( +\d+\.\d){2}( +\d+\.\d\d){2} +\d+\.\d *\n",
    ],
    "memory": [r"digits +onnxruntime +\d.* 1\.00", r"digits +cpu( +-?\d+\.\d){6} +\d+\.\d\d\n"],
    "cold": [
        r"policy +onnxruntime +filled( +\d+\.\d{3}){5} *\n",
        r"policy +cpu +empty( +\d+\.\d{3}){6} +[1-9]",
        r"policy +cpu +filled( +\d+\.\d{3}){6} +[1-9]",
    ],
    "first_start": [
        r"policy +onnxruntime( +\d+\.\d{3}){5} *\n",
        r"policy +gameglue( +\d+\.\d{3}){5} +\d+ +0 *\n",
    ],
    "frames": [r"nothing in flight( +\d+\.\d\d){5} +1\.00", r"digits on cpu( +\d+\.\d\d){6} +\d+\.\d{3} +\d"],
    "command_buffers": [r"cpu +schedule, one by one( +\d+){2} *\n", r"cpu +replayed( +\d+){2} +2 *\n"],
    "gl_kernels": [r"pixel( +\d+\.\d{3}){2} +\d+\.\d\d *\n", r"replaying a call takes \d+ ns\n"],
    "transforms": [r"move, then matrix +\d+ *\n", r"below one: position +\d+ *\n"],
    "behaviours": [
        r"bare loop +100 +\d+\.\d +1\.00",
        r"frame less an empty one +100 +-?\d+\.\d +-?\d+\.\d\d",
    ],
    "job_start": [
        r"program, main thread goes on in Python +\d+ +\d+( +(\d+\.\d{3}|-)){4}( +(\d+|-)){6} *\n",
        r"app, main thread sleeps +\d+ +\d+( +(\d+\.\d{3}|-)){4}( +(\d+|-)){6} *\n",
    ],
    "slices": [r"digits +cpu( +\d+\.\d\d){2} +\d+( +\d+\.\d\d){4} *\n"],
    "tokens": [r"cpu( +\d+){3} +\d+\.\d\d +\d+ +\d+\.\d\d *\n"],
    "demos": [
        r"rival( +\d+\.\d){5} +cpu +a move of the paddle",
        r"upscale( +\d+\.\d){5} +cpu +an upscaled image",
        r"answers/s: [0-2] of 2\n",
    ],
    "hitches": [
        r"policy +cpu +cold +\d+\.\d( +\d+\.\d\d){7} *\n",
        r"policy +cpu +warm( +\d+\.\d\d){6} *\n",
        r"policy +cpu +cold-beside +\d+\.\d( +\d+\.\d\d){7} *\n",
        r"policy +cpu +warm-beside +\d+\.\d( +\d+\.\d\d){7} *\n",
    ],
}
"""What the output must hold, as patterns."""


@pytest.mark.long
@pytest.mark.parametrize("name", SMALLEST)
def test_it_runs_and_prints_a_table(name: str) -> None:
    command = [sys.executable, "-m", f"tests.benchmarks.{name}", *SMALLEST[name]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"machine +\S", done.stdout)
    assert re.search(r"load average", done.stdout)
    for row in ROWS[name]:
        assert re.search(row, done.stdout), (row, done.stdout)


def test_every_demo_is_measured() -> None:
    assert set(demos.ANSWERS) == {demo.name for demo in find_demos()}


@pytest.mark.parametrize(
    "module",
    [
        models,
        operators,
        policy,
        new_sizes,
        memory,
        cold,
        first_start,
        frames,
        hitches,
        job_start,
        slices,
        command_buffers,
        behaviours,
        tokens,
        demos,
    ],
)
def test_help_says_what_is_measured(module: object, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        module.main(["--help"])  # type: ignore[attr-defined]
    assert left.value.code == 0
    said = capsys.readouterr().out
    assert any(option in said for option in ("--models", "--batches", "--only", "--demos", "--tokens"))
    assert "python -m tests.benchmarks." in said
