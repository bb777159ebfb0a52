"""Kernels that turn up after a worker is ready are compiled beside the frames, never by the caller."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from engine import Worker
from engine.backends.cpu.execution.template_source import sources_of_sizes
from engine.base.cache import cache_dir
from engine.base.errors import KernelCompileError, OutOfMemoryError
from engine.device import native
from engine.device.jobs.system import shared_job_system
from engine.device.native import NativeSource, NativeStore
from engine.device.native import pool as native_pool
from engine.device.native.pool import CompilePool
from engine.runtime.plans.session import Session
from tests.graphs import model, node


@pytest.fixture(scope="module")
def pool() -> CompilePool:
    """One child for the whole file."""
    return CompilePool(limit=1)


@pytest.fixture
def empty(tmp_path: Path, pool: CompilePool, monkeypatch: pytest.MonkeyPatch) -> NativeStore:
    """Nothing was ever compiled, and workers prepare nothing."""
    shared_job_system()  # with the real store, whose kernels are there
    store = NativeStore(tmp_path, pool)

    def refuse(request: object) -> None:
        raise AssertionError("compiled in the game's process")

    monkeypatch.setattr(native, "process_store", lambda: store)
    monkeypatch.setattr(native_pool, "compile_here", refuse)
    monkeypatch.setattr("engine.backends.cpu.backend.precompile_kernels", lambda is_certain: None)
    monkeypatch.setattr(Session, "prepare", lambda self, progress=None: 0)
    return store


@pytest.fixture
def unprepared(empty: NativeStore) -> NativeStore:
    """No kernel of a network was ever compiled; the functions that any network needs were."""
    sources = sources_of_sizes()
    cached = NativeStore(cache_dir("native"), CompilePool())
    cached.load(sources)
    for source in sources:
        file, copy = cached.path(source.key), empty.path(source.key)
        assert file is not None
        assert copy is not None
        shutil.copy(file, copy)
    return empty


def waves() -> Worker:
    nodes = [node("Sin", ["x"], ["s"]), node("Mul", ["s", "x"], ["y"])]
    return Worker(model(nodes, {"x": ("float32", ["n"])}, {"y": ("float32", ["n"])}))


def answer(worker: Worker, *inputs: np.ndarray) -> np.ndarray:
    worker.schedule(*inputs)
    return worker.peek_output().download_to_array()


@pytest.mark.usefixtures("empty")
def test_schedule_returns_and_the_result_comes_later() -> None:
    with waves() as worker:
        x = np.linspace(-3, 3, 100, dtype=np.float32)
        given = x.copy()
        worker.schedule(given)
        given[:] = 0
        out = worker.peek_output()
        assert out.shape == (100,)
        out.readback_request()
        assert not out.is_readback_request_done()
        report = worker.plan_report()
        # Beside it the functions that fill plans in and cut results into tasks.
        assert report.compiling == 3
        assert "waits for 3 kernels being compiled" in str(report)
        while not out.is_readback_request_done():
            time.sleep(0.001)
        np.testing.assert_allclose(out.download_to_array(), np.sin(x) * x, atol=1e-6)
        assert worker.plan_report().compiling == 0
        worker.schedule(x * 2)
        np.testing.assert_allclose(worker.peek_output().download_to_array(), np.sin(x * 2) * x * 2, atol=1e-5)


@pytest.mark.usefixtures("empty")
def test_schedules_queue_behind_it_and_a_blocking_read_waits() -> None:
    with waves() as worker:
        x = np.linspace(-3, 3, 7, dtype=np.float32)
        worker.schedule(x)
        first = worker.peek_output()
        first.readback_request()
        worker.schedule(x + 1)
        assert not worker.pump()
        np.testing.assert_allclose(
            worker.peek_output().download_to_array(), np.sin(x + 1) * (x + 1), atol=1e-6
        )
        np.testing.assert_allclose(first.download_to_array(), np.sin(x) * x, atol=1e-6)


@pytest.mark.usefixtures("unprepared")
def test_a_slice_at_a_time_waits_too() -> None:
    with waves() as worker:
        x = np.linspace(-3, 3, 9, dtype=np.float32)
        for _ in worker.schedule_iterable(x):
            time.sleep(0.001)
        np.testing.assert_allclose(worker.peek_output().download_to_array(), np.sin(x) * x, atol=1e-6)


@pytest.mark.usefixtures("unprepared")
@pytest.mark.parametrize("inner", [False, True], ids=["first", "continued"])
def test_memory_that_is_missing_is_asked_for_again(inner: bool) -> None:
    """Each schedule of sizes that fit nowhere is refused, though the first one's plan was recorded late."""
    nodes = [node("Expand", ["x", "s"], ["large"]), node("Sin", ["large"], ["y"])]
    if inner:
        # Where nonzero elements are counted, planning stops for the data.
        nodes = [
            node("NonZero", ["x"], ["places"]),
            node("Shape", ["places"], ["count"], start=1),
            node("Mul", ["s", "count"], ["t"]),
            node("Expand", ["x", "t"], ["large"]),
            node("Sin", ["large"], ["y"]),
        ]
    graph = model(nodes, {"x": ("float32", [1]), "s": ("int64", [2])}, {"y": ("float32", None)})
    x = np.ones(1, np.float32)
    with Worker(graph) as worker:
        for _ in range(3):
            # Once its kernels are there, `schedule` tells.
            with pytest.raises(OutOfMemoryError, match="no memory for the tensor"):
                answer(worker, x, np.array([1 << 20, 1 << 20]))
        np.testing.assert_allclose(answer(worker, x, np.array([2, 3])), np.sin(np.ones((2, 3))))


def test_a_kernel_that_is_refused_is_reported_with_the_result(
    unprepared: NativeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(kernel: object) -> NativeSource:
        return NativeSource("broken", "def kernel(args, begin, end):\n    undefined()\n", "kernel")

    monkeypatch.setattr("engine.backends.cpu.backend.source_of", broken)
    with waves() as worker:
        worker.schedule(np.ones(3, np.float32))
        with pytest.raises(KernelCompileError, match="broken"):
            worker.peek_output().download_to_array()


def test_disposing_does_not_wait(unprepared: NativeStore) -> None:
    worker = waves()
    worker.schedule(np.ones(3, np.float32))
    worker.dispose()
    assert unprepared.compilations == 1
