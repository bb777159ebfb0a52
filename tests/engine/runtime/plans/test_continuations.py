"""Runs that stop for data of their own: nothing waits for them, and what goes wrong reaches who asked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise

import numpy as np
import pytest

from engine import (
    BackendType,
    DisposedError,
    Model,
    ShapeError,
    ShapePending,
    StaleTensorError,
    Tensor,
    Worker,
    pending_work,
)
from engine.backends.base import DeviceBuffer, Readback
from engine.backends.readback import PendingRead, ShapedRead
from engine.runtime.plans.recorded_plan import RecordedPlan
from engine.runtime.plans.session import Session
from tests.contract.networks import repeating
from tests.engine.conftest import MakeWorker, answers
from tests.graphs import model, node


def folding() -> Model:
    """Views the input as rows of a length that its first element says, which has to divide the size."""
    return model(
        [
            node("Neg", ["x"], ["early"]),
            node("Slice", ["x", "zero", "one"], ["head"]),
            node("Abs", ["head"], ["size"]),
            node("Cast", ["size"], ["width"], to=7),
            node("Concat", ["rest", "width"], ["shape"], axis=0),
            node("Reshape", ["x", "shape"], ["rows"]),
            node("Neg", ["rows"], ["y"]),
        ],
        {"x": ("float32", ["n"])},
        {"y": ("float32", None), "early": ("float32", ["n"])},
        {"zero": np.array([0]), "one": np.array([1]), "rest": np.array([-1])},
    )


def doubling() -> Model:
    return model([node("Add", ["a", "b"], ["y"])], {"a": ("float32", ["n"]), "b": ("float32", ["n"])},
                 {"y": ("float32", ["n"])})  # fmt: skip


class Gate:
    """Holds a worker's readbacks back, as a slow device would, and counts who waited for them."""

    def __init__(self) -> None:
        self.is_open = False
        self.waits = 0


class HeldReadback(Readback):
    def __init__(self, gate: Gate, inner: Readback) -> None:
        self.gate = gate
        self.inner = inner

    def done(self) -> bool:
        return self.gate.is_open and self.inner.done()

    def array(self) -> np.ndarray:
        return self.inner.array()

    def wait(self) -> None:
        self.gate.waits += 1
        self.gate.is_open = True
        self.inner.wait()


@contextmanager
def held(worker: Worker) -> Iterator[Gate]:
    """Nothing that is read back from the worker's backend arrives until the gate opens."""
    backend = worker._session.backends["native"]
    readback, requester = backend.readback, backend.requester
    gate = Gate()

    def slow(buffer: DeviceBuffer, elements: int | None = None) -> Readback:
        return HeldReadback(gate, readback(buffer, elements))

    def slow_requester(buffer: DeviceBuffer, shape: tuple[int, ...]) -> Callable[[], PendingRead]:
        return lambda: ShapedRead(slow(buffer), shape)

    backend.readback, backend.requester = slow, slow_requester  # type: ignore[method-assign]
    yield gate
    backend.readback, backend.requester = readback, requester  # type: ignore[method-assign]


def finish(worker: Worker) -> None:
    for _ in range(200_000):
        if worker.pump():
            return
    raise AssertionError("the worker never finishes")


def numbers(*xs: float) -> np.ndarray:
    return np.array(xs, np.float32)


def test_schedule_and_pump_wait_for_nothing(channel: str, make_worker: MakeWorker) -> None:
    worker = make_worker(repeating(), channel)
    outputs = []
    with held(worker) as gate:
        for count in (2, 5, 3):
            x = numbers(1, count, 0, -1)
            worker.schedule(x)
            x[:] = 9
            outputs.append(worker.peek_output())
            outputs[-1].readback_request()
            assert not worker.pump()
            assert not outputs[-1].is_readback_request_done()
        assert outputs[-1].shape_or_none is None
        with pytest.raises(ShapePending):
            _ = outputs[-1].shape
        assert worker in pending_work()
        assert gate.waits == 0
        gate.is_open = True
        finish(worker)
        assert gate.waits == 0
    assert worker not in pending_work()
    for count, output in zip((2, 5, 3), outputs, strict=True):
        assert output.download_to_array().tolist() == [count] * count


def test_a_queued_schedule_keeps_what_its_tensors_held(channel: str, make_worker: MakeWorker) -> None:
    """Also where a tensor lies on the backend, and gets other elements before its run begins."""
    source = make_worker(doubling(), channel)
    source.schedule(numbers(1, 1, 0, 0), numbers(0, 1, 0, 0))
    worker = make_worker(repeating(), channel)
    tensors = [Tensor(numbers(1, 2, 0, 0)), source.copy_output()]
    outputs = []
    with held(worker) as gate:
        worker.schedule(numbers(3, 0, 0, 0))
        for tensor in tensors:
            worker.schedule(tensor)
            outputs.append(worker.peek_output())
            outputs[-1].readback_request()
            tensor.upload(numbers(7, 7, 7, 7))
        assert gate.waits == 0
        gate.is_open = True
        finish(worker)
    assert [o.download_to_array().tolist() for o in outputs] == [[3, 3], [3, 3]]
    for tensor in tensors:
        assert tensor.download_to_array().tolist() == [7] * 4
        tensor.dispose()


def test_what_has_no_shape_yet_feeds_nobody(channel: str, make_worker: MakeWorker) -> None:
    first, second = make_worker(repeating(), channel), make_worker(doubling(), channel)
    with held(first) as gate:
        first.schedule(numbers(1, 2, 0, 0))
        with pytest.raises(ShapePending, match="still being computed"):
            second.schedule(first.peek_output(), numbers(1, 1))
        gate.is_open = True
        finish(first)
    second.schedule(first.peek_output(), numbers(1, 1))
    assert second.peek_output().download_to_array().tolist() == [4, 4]


def test_a_promise_of_known_shape_feeds_the_next_worker_without_waiting(
    channel: str, make_worker: MakeWorker
) -> None:
    """That output is planned before the stop; its run is not finished yet."""
    first, second = make_worker(folding(), channel), make_worker(doubling(), channel)
    with held(first) as gate:
        first.schedule(numbers(2, 1, 0, 0))
        b = numbers(1, 1, 1, 1)
        second.schedule(first.peek_output("early"), b)
        b[:] = 100
        output = second.peek_output()
        output.readback_request()
        first.schedule(numbers(1, 9, 9, 9))
        assert gate.waits == 0
        assert not second.pump()
        gate.is_open = True
        finish(second)
    assert output.download_to_array().tolist() == [-1, 0, 1, 1]


def test_a_worker_is_fed_its_own_unfinished_output(channel: str, make_worker: MakeWorker) -> None:
    worker = make_worker(folding(), channel)
    with held(worker) as gate:
        worker.schedule(numbers(2, 1, -3, 0))
        worker.schedule(worker.peek_output("early"))
        output = worker.peek_output("y")
        output.readback_request()
        assert gate.waits == 0
        gate.is_open = True
        finish(worker)
    assert output.download_to_array().tolist() == [[2, 1], [-3, 0]]


def test_an_error_in_a_continuation_reaches_the_reader(channel: str, make_worker: MakeWorker) -> None:
    worker = make_worker(folding(), channel)
    with held(worker) as gate:
        worker.schedule(numbers(4, 1, 1, 1, 1, 1))
        bad = worker.peek_output()
        bad.readback_request()
        worker.schedule(numbers(3, 1, 1, 1, 1, 1))
        good = worker.peek_output()
        good.readback_request()
        gate.is_open = True
        finish(worker)  # the error belongs to the one who reads
    assert good.download_to_array().tolist() == [[-3, -1, -1], [-1, -1, -1]]
    with pytest.raises(ShapeError, match=r"layer 'rows_layer' \(Reshape\)"):
        bad.is_readback_request_done()
    with pytest.raises(ShapeError, match="rows_layer"):
        bad.download_to_array()
    assert answers(worker, numbers(2, 1))[0].tolist() == [[-2, -1]]


def test_an_error_that_nobody_reads_comes_from_pump_once(channel: str, make_worker: MakeWorker) -> None:
    worker = make_worker(folding(), channel)
    with held(worker) as gate:
        worker.schedule(numbers(4, 1, 1, 1, 1, 1))
        worker.schedule(numbers(5, 1, 1, 1, 1, 1))
        gate.is_open = True
        for _ in range(2):
            with pytest.raises(ShapeError, match="rows_layer"):
                finish(worker)
        finish(worker)
        # A later schedule is not the one to blame.
        worker.schedule(numbers(2, 1, 1, 1))
    assert worker.peek_output().download_to_array().tolist() == [[-2, -1], [-1, -1]]
    assert worker.pump()


def test_an_error_met_by_schedule_itself_is_raised_there_and_once() -> None:
    """On an idle CPU stream the data is there at once, so the run fails before `schedule` returns."""
    with Worker(folding(), BackendType.CPU) as worker:
        with pytest.raises(ShapeError, match="rows_layer"):
            worker.schedule(numbers(4, 1, 1, 1, 1, 1))
        assert worker.pump()
        with pytest.raises(ShapeError, match="rows_layer"):
            worker.peek_output().download_to_array()
        assert answers(worker, numbers(2, 1))[0].tolist() == [[-2, -1]]


def test_a_reader_of_a_failed_promise_learns_why(channel: str, make_worker: MakeWorker) -> None:
    """A run that reads another's output fails with the same error, and its worker goes on."""
    first, second = make_worker(folding(), channel), make_worker(doubling(), channel)
    with held(first) as gate:
        first.schedule(numbers(2, 1, 1))
        second.schedule(first.peek_output("early"), numbers(1, 1, 1))
        gate.is_open = True
        with pytest.raises(ShapeError, match="rows_layer"):
            second.peek_output().download_to_array()
    second.schedule(numbers(1), numbers(2))
    assert second.peek_output().download_to_array().tolist() == [3]


def test_disposal_ends_what_is_on_its_way(channel: str, make_worker: MakeWorker) -> None:
    worker = make_worker(repeating(), channel)
    with held(worker):
        worker.schedule(numbers(1, 2, 0, 0))
        output = worker.peek_output()
        output.readback_request()
        worker.dispose()
    for use in (output.is_readback_request_done, output.download_to_array):
        with pytest.raises(DisposedError, match="disposed before this schedule had enqueued"):
            use()
    assert worker not in pending_work()


def test_plans_that_runs_still_need_are_kept(
    channel: str, make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.runtime.plans.plan_cache.KEPT_PLANS", 2)
    monkeypatch.setattr("engine.runtime.plans.plan_cache.KEPT_BYTES", 0)
    worker = make_worker(folding(), channel)
    outputs = []
    with held(worker) as gate:
        for rows in range(1, 7):
            worker.schedule(np.full(2 * rows, 2, np.float32))
            outputs.append(worker.peek_output())
            outputs[-1].readback_request()
        assert len(worker._session.cache.plans) >= 6
        gate.is_open = True
        finish(worker)
    for rows, output in enumerate(outputs, 1):
        assert output.download_to_array().tolist() == [[-2, -2]] * rows
    worker.schedule(numbers(1, 5))
    worker.schedule(numbers(1, 5, 6))
    assert len(worker._session.cache.plans) == 2
    assert worker.peek_output().download_to_array().tolist() == [[-1], [-5], [-6]]


def test_the_latest_output_survives_new_plans_of_others(
    channel: str, make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan is dropped while its output is being read back, and while it is the latest."""
    monkeypatch.setattr("engine.runtime.plans.plan_cache.KEPT_PLANS", 1)
    monkeypatch.setattr("engine.runtime.plans.plan_cache.KEPT_BYTES", 0)
    worker = make_worker(doubling(), channel)
    reads = []
    for n in range(1, 6):
        worker.schedule(np.full(n, n, np.float32), np.ones(n, np.float32))
        reads.append(worker.peek_output())
        reads[-1].readback_request()
    assert len(worker._session.cache.plans) <= 2
    kept = reads[-1].data_on_backend
    for n, read in enumerate(reads, 1):
        assert read.download_to_array().tolist() == [n + 1] * n
    assert kept.download().tolist() == [6] * 5
    with pytest.raises(StaleTensorError):
        _ = reads[0].data_on_backend


def test_each_thread_takes_up_its_own_workers() -> None:
    with Worker(repeating(), BackendType.CPU) as worker, held(worker):
        worker.schedule(numbers(1, 2, 0, 0))
        assert worker in pending_work()
        seen: list[object] = []
        thread = threading.Thread(target=lambda: seen.extend(pending_work()))
        thread.start()
        thread.join()
        assert seen == []


def test_a_session_counts_who_uses_a_plan(make_worker: MakeWorker) -> None:
    worker = make_worker(doubling(), "cpu")
    session: Session = worker._session
    for n in (1, 2, 3, 2):
        worker.schedule(np.ones(n, np.float32), np.ones(n, np.float32))
    users = {recorded.fast_path.shapes[0]: recorded.users for recorded in session.cache.plans.values()}
    assert users == {(1,): 0, (2,): 1, (3,): 0}


def test_a_chain_of_any_length_is_dropped(make_worker: MakeWorker) -> None:
    session = make_worker(repeating(), "cpu")._session
    chain = [RecordedPlan(session.outlook[0]) for _ in range(3000)]
    session.cache.plans["first"] = chain[0]
    for recorded, following in pairwise(chain):
        recorded.continuations["next"] = following
        session.cache.continuations[following] = recorded.continuations, "next"
    session.cache.drop(session.cache.plans, "first")
    assert "first" not in session.cache.plans
    assert not session.cache.continuations
