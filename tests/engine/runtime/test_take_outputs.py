"""`take_outputs`: arrays that the caller owns, and a worker that keeps nothing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from engine import InputError, StaleTensorError, ThreadError, Worker
from engine.backends.cpu.backend import CPUBackend
from engine.base.memory.results import LEAST
from tests.engine.conftest import MakeWorker
from tests.engine.runtime.test_own_outputs import stepping
from tests.graphs import model, node

COUNT = LEAST // 4
"""Elements of a float32 output that is taken over."""


def line(count: int, turn: int = 0) -> np.ndarray:
    return np.arange(count, dtype=np.float32) + turn


def check(found: dict[str, Any], x: np.ndarray) -> None:
    assert [*found] == ["y", "z"]
    np.testing.assert_array_equal(found["y"], x + 1)
    np.testing.assert_array_equal(found["z"], x + x)


def test_taken_arrays_are_the_callers(channel: str, make_worker: MakeWorker) -> None:
    """Later schedules change none of them, and writing one changes no later result, whatever the size."""
    worker = make_worker(stepping(), channel)
    for count in (5, COUNT, COUNT + 3, 5):
        held = []
        for turn in range(7):
            x = line(count, turn)
            worker.schedule(x)
            found = worker.take_outputs()
            check(found, x)
            found["y"][...] = turn
            held.append(found)
        for turn, found in enumerate(held):
            np.testing.assert_array_equal(found["y"], np.full(count, turn))
            np.testing.assert_array_equal(found["z"], 2 * line(count, turn))


def test_large_outputs_on_the_cpu_are_not_copied(
    make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the second time on; and memory that the caller drops is that of the next outputs."""
    worker = make_worker(stepping(), "cpu")
    x = line(1 << 20)
    for _ in range(2):
        worker.schedule(x)
        worker.take_outputs()
    delivered: list[int] = []
    read = CPUBackend._read

    def noted(self: CPUBackend, view: np.ndarray, out: np.ndarray | None) -> np.ndarray:
        delivered.append(view.nbytes)
        return read(self, view, out)

    monkeypatch.setattr(CPUBackend, "_read", noted)
    places = set()
    for turn in range(12):
        worker.schedule(x + turn)
        found = worker.take_outputs()
        check(found, x + turn)
        places |= {array.ctypes.data for array in found.values()}
        del found
    assert delivered == []
    assert len(places) <= 12  # of 24: finished jobs may hold some for a while
    worker.schedule(x)
    worker.peek_output("y").download_to_array()
    assert delivered == [x.nbytes]


@pytest.mark.parametrize("count", [5, COUNT])
def test_a_worker_keeps_nothing_that_was_taken(channel: str, count: int, make_worker: MakeWorker) -> None:
    worker = make_worker(stepping(), channel)
    for turn in range(3):
        x = line(count, turn)
        worker.schedule(x)
        before = worker.peek_output("y")
        worker.take_outputs()
        for use in (before.download_to_array, worker.take_outputs, worker.peek_output, worker.copy_output):
            with pytest.raises(StaleTensorError, match="taken with take_outputs"):
                use()
        worker.schedule(x)
        np.testing.assert_array_equal(worker.peek_output("y").download_to_array(), x + 1)
        np.testing.assert_array_equal(worker.copy_output("z").download_to_array(), x + x)
        worker.schedule(x + 1)
        with pytest.raises(StaleTensorError, match="newer schedule"):
            before.download_to_array()
        check(worker.take_outputs(), x + 1)


def test_readbacks_and_copies_from_before_stay_good(channel: str, make_worker: MakeWorker) -> None:
    worker = make_worker(stepping(), channel)
    for turn in range(4):
        x = line(COUNT, turn)
        worker.schedule(x)
        output, copy = worker.peek_output("y"), worker.copy_output("z")
        output.readback_request()
        found = worker.take_outputs()
        check(found, x)
        found["y"].fill(0)
        found["z"].fill(0)
        worker.schedule(x + 9)
        np.testing.assert_array_equal(output.download_to_array(), x + 1)
        np.testing.assert_array_equal(copy.download_to_array(), x + x)
        copy.dispose()


def test_outputs_that_are_one_tensor_are_two_arrays(channel: str, make_worker: MakeWorker) -> None:
    """Also an input that is an output, and one that the model knows."""
    built = model(
        [
            node("Add", ["x", "x"], ["y"]),
            node("Identity", ["y"], ["same"]),
            node("Reshape", ["y", "shape"], ["view"]),
            node("Identity", ["x"], ["given"]),
            node("Identity", ["known"], ["constant"]),
        ],
        {"x": ("float32", [COUNT])},
        dict.fromkeys(("y", "same", "view", "given", "constant"), ("float32", None)),
        {"shape": np.array([2, -1], np.int64), "known": np.arange(4, dtype=np.float32)},
    )
    worker = make_worker(built, channel, allow_fallback=True)
    for turn in range(4):
        x = line(COUNT, turn)
        worker.schedule(x)
        found = worker.take_outputs()
        for name, expected in {"y": x + x, "same": x + x, "view": (x + x).reshape(2, -1), "given": x}.items():
            np.testing.assert_array_equal(found[name], expected)
            found[name][...] = -1
        np.testing.assert_array_equal(found["constant"], np.arange(4))
        found["constant"][...] = -1
        np.testing.assert_array_equal(x, line(COUNT, turn))


def test_a_size_that_depends_on_data(channel: str, make_worker: MakeWorker) -> None:
    built = model([node("NonZero", ["x"], ["y"])], {"x": ("float32", [COUNT])}, {"y": ("int64", [1, "n"])})
    worker = make_worker(built, channel)
    for kept in (3, COUNT, 0):
        x = np.zeros(COUNT, np.float32)
        x[:kept] = 1
        worker.schedule(x)
        np.testing.assert_array_equal(worker.take_outputs()["y"], np.arange(kept)[None])


def test_taking_too_early_or_elsewhere(make_worker: MakeWorker) -> None:
    worker: Worker = make_worker(stepping(), "cpu")
    with pytest.raises(InputError, match="nothing was scheduled"):
        worker.take_outputs()
    worker.schedule(line(5))
    with ThreadPoolExecutor(1) as other, pytest.raises(ThreadError):
        other.submit(worker.take_outputs).result()
    check(worker.take_outputs(), line(5))
