"""No frame makes a blocking call, plans or compiles, whatever a game does with the engine, on any backend;
and whatever does is counted. Counters sit under both OpenGL loaders (the game's and the engine's), around
OpenCL, CPU jobs and the planner.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.contract.place import CHANNELS
from tests.contract.scenarios import BLOCKING, LONG, SCENARIOS
from tests.contract.size_scenarios import LONG_SIZES, SIZE_SCENARIOS

pytestmark = pytest.mark.gl

EVERYDAY = [name for name in SCENARIOS if name not in (*LONG, *BLOCKING)]

RENDERED_LONG = ("squeezenet",)
"""Left to the long suite where software renders it, which takes a third of a second for each answer."""


def left_to_long(channel: str) -> tuple[str, ...]:
    """The scenarios of large networks on a backend."""
    return (*LONG, *RENDERED_LONG) if channel.startswith("gl_") else LONG


def said_by(module: str, *arguments: str, timeout: float = 280, **environment: str) -> list[object]:
    """The lines of JSON that a module prints in a process of its own."""
    command = [sys.executable, "-X", "faulthandler", "-m", f"tests.contract.{module}", *arguments]
    variables = {**os.environ, **environment}
    done = subprocess.run(
        command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return [json.loads(line) for line in done.stdout.splitlines() if line[:1] in "[{"]


def played(channel: str, *names: str, timeout: float = 280, **environment: str) -> dict[str, object]:
    """What blocked in each scenario; what did not play to its end says so instead."""
    lines: list[dict[str, object]]
    lines = said_by("counted", channel, *names, timeout=timeout, **environment)  # type: ignore[assignment]
    return {str(one["scenario"]): one["blocking"] if one["done"] else "never done" for one in lines}


@pytest.mark.parametrize("channel", CHANNELS)
def test_the_frame_loop_never_waits(channel: str) -> None:
    names = [name for name in EVERYDAY if name not in left_to_long(channel)]
    assert played(channel, *names) == {name: {} for name in names}


@pytest.mark.long
@pytest.mark.parametrize("channel", CHANNELS)
def test_the_frame_loop_never_waits_for_a_large_network(channel: str) -> None:
    names = left_to_long(channel)
    assert played(channel, *names, timeout=600) == {name: {} for name in names}


@pytest.mark.spread
@pytest.mark.parametrize("channel", CHANNELS)
def test_the_frame_loop_never_waits_at_sizes_that_it_never_saw(channel: str) -> None:
    names = [name for name in SIZE_SCENARIOS if name not in LONG_SIZES]
    assert played(channel, *names) == {name: {} for name in names}


@pytest.mark.long
@pytest.mark.parametrize("channel", CHANNELS)
def test_the_frame_loop_never_waits_at_sizes_of_a_large_network(channel: str) -> None:
    assert played(channel, *LONG_SIZES, timeout=600) == {name: {} for name in LONG_SIZES}


@pytest.mark.opencl
def test_every_blocking_call_is_counted_under_its_name() -> None:
    lines: list[tuple[str, dict[str, int]]] = said_by("provoked")  # type: ignore[assignment]
    assert len(lines) == 33
    for provoked, counted in lines:
        assert counted == {provoked.removesuffix(" (several)"): 1}


@pytest.mark.parametrize(
    ("channel", "wait"),
    [
        # Not GL compute: software renderers are done when a dispatch returns.
        ("cpu", "JobHandle.complete"),
        ("gl_pixel", "engine glClientWaitSync"),
        ("opencl", "clWaitForEvents"),
    ],
)
def test_a_game_that_waits_for_its_answer_is_found_out(channel: str, wait: str) -> None:
    # llvmpipe has something to wait for where it draws on threads of its own.
    found = played(channel, *BLOCKING, LP_NUM_THREADS="1")
    assert found.keys() == set(BLOCKING)
    for counts in found.values():
        assert isinstance(counts, dict)
        assert counts.get(wait, 0) >= 1, counts
