"""Processes that end or fork with work in flight: no hang, no crash, whatever was not disposed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.faults import CHANNELS

pytestmark = pytest.mark.gl

ROOT = Path(__file__).parents[2]

WORK = """
import atexit, gc, os, sys, threading, time
import moderngl
import numpy as np
from engine import BackendType, EngineError, ModelLoader, Worker
from tests.networks import light_network
game = moderngl.create_standalone_context(backend="egl") if CHANNEL.startswith("gl") else None
kind, device = {"cpu": (BackendType.CPU, None), "gl_pixel": (BackendType.GPU_PIXEL, "gl"),
                "gl_compute": (BackendType.GPU_COMPUTE, "gl"),
                "opencl": (BackendType.GPU_COMPUTE, "opencl")}[CHANNEL]
worker = Worker(ModelLoader.load(light_network("squeezenet")), kind, device=device)
image = np.ones((1, 3, 224, 224), np.float32)
tensors = []
for _ in range(4):
    worker.schedule(image)
    tensors.append(worker.peek_output())
    tensors[-1].readback_request()
"""

ENDS = {
    "falls off its end": ("", 0),
    "sys.exit": ("sys.exit(3)", 3),
    "an exception": ("raise SystemError('on purpose')", 1),
    "os._exit": ("os._exit(4)", 4),
    "a cycle": ("class Holds: pass\nh = Holds(); h.worker = worker; h.h = h\ndel worker, tensors, h", 0),
    "dropped": ("del worker, tensors\ngc.collect()", 0),
    "a thread behind it": ("threading.Thread(target=time.sleep, args=(0.2,)).start()", 0),
    "reads at exit": ("atexit.register(lambda: print(tensors[-1].download_to_array().shape))", 0),
}


def run(channel: str, code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", f"CHANNEL = {channel!r}\n{WORK}\n{code}"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.mark.parametrize(
    ("channel", "end"),
    [
        *(("cpu", end) for end in ENDS),
        *(
            pytest.param(channel, end, marks=pytest.mark.long)
            for channel in CHANNELS[1:]
            for end in ("falls off its end", "reads at exit")
        ),
    ],
)
def test_a_process_ends_with_work_in_flight(channel: str, end: str) -> None:
    code, expected = ENDS[end]
    result = run(channel, code)
    assert result.returncode == expected, result.stderr
    assert "Fatal" not in result.stderr
    assert ("Traceback" in result.stderr) == (end == "an exception"), result.stderr


FORK = """
# On the CPU a few may be over before a process that has lost its core forks, and what is there can be read.
for _ in range(40 if CHANNEL == "cpu" else 0):
    worker.schedule(image)
    tensors.append(worker.peek_output())
    tensors[-1].readback_request()
child = os.fork()
if child == 0:
    for use in (lambda: worker.schedule(image), tensors[-1].download_to_array, worker.copy_output):
        try:
            use()
            print("works")
        except EngineError as error:
            print("refused:", error)
    worker.dispose()
    if CHANNEL == "cpu":
        with Worker(ModelLoader.load("assets/digits/digits.onnx")) as own:
            own.schedule(np.ones((1, 1, 28, 28), np.float32))
            print("own", own.peek_output().download_to_array().shape)
    if CHANNEL == "cpu":
        sys.exit(5)
    # As multiprocessing ends its processes: drivers' exit handlers (Mesa's, Intel's OpenCL) may wait for
    # threads that stayed behind.
    sys.stdout.flush()
    os._exit(5)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
print("parent", tensors[-1].download_to_array().shape)
worker.dispose()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("channel", CHANNELS)
def test_a_child_process_is_refused_what_it_inherited(channel: str) -> None:
    result = run(channel, f"os.chdir({str(ROOT)!r})\n{FORK}")
    assert result.returncode == 0, result.stderr + result.stdout
    assert result.stdout.count("does not survive a fork") + result.stdout.count("do not survive a fork") == 3
    assert "parent (1, 1000, 1, 1)" in result.stdout
    assert ("own (1, 10)" in result.stdout) == (channel == "cpu")
