"""Kernels fit into the stacks of all threads that may run them."""

from __future__ import annotations

import re
import subprocess
import sys
import threading

import pytest

from engine import JobSystem
from engine.backends.cpu.codegen.epilogue import Epilogue
from engine.backends.cpu.codegen.tiles import AVX512, Tile, host_tile
from engine.backends.cpu.kernels.convolution import winograd_partition
from engine.backends.cpu.kernels.convolution.winograd import winograd_text
from engine.device.jobs.stack import JOB_STACK, smallest_stack
from tests.benchmarks.processes import ROOT

MARGIN = 1 << 18
"""Bytes that Python, ctypes and the kernels' other variables need beside what a kernel asks for."""

CHILD = """
import numpy as np
from engine import BackendType, JobSystem, ModelLoader, Worker
from engine.backends.cpu.kernels.convolution import winograd_partition
from engine.backends.cpu.codegen.tiles import host_tile
from tests.graphs import node, proto
from tests.networks import reference

assert winograd_partition.scratch_bytes(host_tile()) == {scratch}
rng = np.random.default_rng(0)
w = (rng.normal(size=(64, 64, 3, 3)) / 24).astype(np.float32)
nodes = [node("Conv", ["x", "w"], ["y"], pads=[1] * 4)]
source = proto(nodes, {{"x": ("float32", [1, 64, 56, 56])}}, {{"y": ("float32", None)}}, {{"w": w}})
x = rng.normal(size=(1, 64, 56, 56)).astype(np.float32)
expected = reference(source, {{"x": x}})["y"]
for threads in (1, 2):
    with JobSystem(threads) as jobs, Worker(ModelLoader.load(source), BackendType.CPU, jobs=jobs) as worker:
        for _ in range(3):
            worker.schedule(x)
            found = worker.peek_output().readback_and_clone().download_to_array()
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="sets the limit of stacks as Linux has it")
@pytest.mark.parametrize("kibibytes", [1024, 8192])
def test_a_winograd_convolution_runs_where_stacks_are_limited(kibibytes: int) -> None:
    """A scratch memory of 1 MiB ended the process where threads had a stack of as much."""
    wide = host_tile().lanes >= 16 and kibibytes >= 2048
    text = CHILD.format(scratch=1 << 20 if wide else 1 << 19)
    shell = f'ulimit -S -s {kibibytes} && exec "$0" -c "$1"'
    done = subprocess.run(
        ["sh", "-c", shell, sys.executable, text], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr


def test_job_threads_have_the_stack_that_they_ask_for() -> None:
    """Measured by what the system says of the memory around a local variable."""
    if sys.platform != "linux":
        pytest.skip("reads what Linux says of a process's memory")
    before = threading.stack_size()
    with JobSystem(1):
        assert threading.stack_size() == before
        sizes = set()
        with open("/proc/self/maps") as file:
            for line in file:
                start, end = (int(x, 16) for x in line.split()[0].split("-"))
                sizes.add(end - start)
    # The block of a thread's stack holds its guard page or lies next to it.
    assert any(JOB_STACK - (1 << 16) <= size <= JOB_STACK + (1 << 16) for size in sizes)


@pytest.mark.parametrize("results", [2, 4])
@pytest.mark.parametrize("tile", [AVX512, host_tile()], ids=["AVX-512", "here"])
def test_what_winograd_asks_for_fits(results: int, tile: Tile) -> None:
    text = winograd_text(tile, results, Epilogue([], [], ["pass"], (), (), 0.0))
    asked = sum(int(size) for size in re.findall(r"stack_bytes\((\d+)\)", text))
    assert winograd_partition.scratch_bytes(tile) < asked < min(smallest_stack(), JOB_STACK) - MARGIN
