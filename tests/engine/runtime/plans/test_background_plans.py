"""Plans that are made in the background: `schedule` returns at once, and the same answers come later."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from engine import (
    CancelledError,
    InputError,
    ModelLoader,
    ShapeError,
    ShapePending,
    Tensor,
    Worker,
    advance_loads,
    background_planning,
)
from engine.compiler.lower import Planner
from engine.runtime.plans.session import Session
from gameglue import App, InferenceQueue, MonoBehaviour
from tests.engine.conftest import MakeWorker, answers
from tests.engine.runtime.plans.test_symbolic_continuations import BRANCHES, HALVES, UNIQUE, parsed
from tests.graphs import mlp, model, node

SIZES = (6, 16, 16, 3)


def rows(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, SIZES[0])).astype(np.float32)


@pytest.fixture
def planned_here(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The plans that the test's own thread makes, and what it compiles for them."""
    this, found = threading.get_ident(), list[str]()

    def watched(of: type, name: str) -> None:
        original = getattr(of, name)

        def call(*arguments: Any, **named: Any) -> Any:
            if threading.get_ident() == this:
                found.append(name)
            return original(*arguments, **named)

        monkeypatch.setattr(of, name, call)

    for of, name in ((Planner, "lower"), (Planner, "lower_symbolic"), (Planner, "resume"),
                     (Planner, "resume_symbolic"), (Session, "compile")):  # fmt: skip
        watched(of, name)
    return found


def polled(tensor: Tensor) -> np.ndarray:
    """The elements, asked for now and then as frames do."""
    with background_planning():
        tensor.readback_request()
        end = time.monotonic() + 240
        while not tensor.is_readback_request_done():
            assert time.monotonic() < end
            time.sleep(0.001)
        return tensor.download_to_array()


def asked(worker: Worker, *inputs: np.ndarray) -> Tensor:
    """An output that is scheduled as within a frame."""
    with background_planning():
        worker.schedule(*inputs)
        return worker.peek_output()


def answer(worker: Worker, *inputs: np.ndarray) -> np.ndarray:
    return answers(worker, *inputs)[0]


def test_a_new_size_is_planned_on_another_thread(
    make_worker: MakeWorker, channel: str, planned_here: list[str]
) -> None:
    net = ModelLoader.load(mlp(SIZES))
    worker, other = make_worker(net, channel), make_worker(net, channel)
    for count in (1, 2, 5, 33, 64):
        expected = answer(other, rows(count))
        planned_here.clear()
        given = rows(count)
        tensor = asked(worker, given)
        given[:] = 0
        np.testing.assert_array_equal(polled(tensor), expected)
        assert not planned_here
        assert tensor.shape == expected.shape


def test_the_report_says_that_the_plan_is_being_made(make_worker: MakeWorker, channel: str) -> None:
    worker = make_worker(ModelLoader.load(mlp(SIZES)), channel)
    tensor = asked(worker, rows(3))
    assert tensor.shape_or_none is None
    report = worker.plan_report()
    assert report.planning
    assert "waits for its plan" in str(report)
    polled(tensor)
    report = worker.plan_report()
    assert not report.planning
    assert report.steps
    assert tensor.shape_or_none == (3, SIZES[-1])


def test_a_blocking_read_waits_for_the_plan(make_worker: MakeWorker, channel: str) -> None:
    net = ModelLoader.load(mlp(SIZES))
    worker, other = make_worker(net, channel), make_worker(net, channel)
    for count in (4, 7, 9):
        found = asked(worker, rows(count)).download_to_array()
        np.testing.assert_array_equal(found, answer(other, rows(count)))


def test_asking_for_the_shape_waits_for_the_plan(make_worker: MakeWorker, channel: str) -> None:
    net = ModelLoader.load(mlp((6, 16, 6)))
    first, second = make_worker(net, channel), make_worker(net, channel)
    assert asked(first, rows(3)).shape == (3, 6)
    with background_planning():
        first.schedule(rows(8))
        # What reads it needs its shape.
        second.schedule(first.peek_output())
    expected = answer(first, answer(first, rows(8)))
    np.testing.assert_allclose(polled(second.peek_output()), expected, atol=1e-6)


def test_schedules_queue_behind_it(make_worker: MakeWorker, channel: str) -> None:
    net = ModelLoader.load(mlp(SIZES))
    worker, other = make_worker(net, channel), make_worker(net, channel)
    tensors = []
    for count in (2, 3, 2, 11, 3):
        tensors.append(asked(worker, rows(count, count)))
        tensors[-1].readback_request()
    for count, tensor in zip((2, 3, 2, 11, 3), tensors, strict=True):
        np.testing.assert_array_equal(polled(tensor), answer(other, rows(count, count)))


def test_slice_by_slice(make_worker: MakeWorker, channel: str) -> None:
    worker = make_worker(ModelLoader.load(mlp(SIZES)), channel)
    expected = answer(worker, rows(5))
    other = make_worker(worker.model, channel)
    with background_planning():
        schedule = other.schedule_iterable(rows(5))
        assert schedule.progress == 0.0
        for _ in schedule:
            time.sleep(0.001)
    np.testing.assert_array_equal(schedule.output().download_to_array(), expected)


@pytest.mark.spread("text")
@pytest.mark.parametrize("text", [UNIQUE, HALVES, BRANCHES], ids=["unique", "halves", "branches"])
def test_what_follows_computed_data_is_planned_there_too(
    make_worker: MakeWorker, channel: str, text: str, planned_here: list[str]
) -> None:
    net = ModelLoader.load(parsed(text))
    options = {"allow_fallback": True}
    worker, other = make_worker(net, channel, **options), make_worker(net, channel, **options)
    rng = np.random.default_rng(1)
    for count in (1, 4, 5, 17):
        x = rng.uniform(-2, 2.5, count).astype(np.float32)
        expected = answer(other, x)
        planned_here.clear()
        np.testing.assert_array_equal(polled(asked(worker, x)), expected)
        assert not planned_here


def test_a_size_that_the_model_refuses_is_reported_where_outputs_are_read(channel: str) -> None:
    with added_worker() as worker:
        good, wrong = np.ones((1, 3), np.float32), np.ones((2, 3), np.float32)
        wide = np.ones((3, 3), np.float32)
        with pytest.raises(ShapeError):
            worker.schedule(wide, wrong)
        with pytest.raises(InputError, match="needs"), background_planning():
            worker.schedule(wide, np.ones(3, np.float64))
        for _ in range(2):
            tensor = asked(worker, wide, wrong)
            with pytest.raises(ShapeError):
                polled(tensor)
        np.testing.assert_array_equal(polled(asked(worker, wide, good)), wide + good)
        # Nobody reads this one: the host is told.
        asked(worker, wide, wrong)
        later = asked(worker, wide, good)
        with pytest.raises(ShapeError):
            pumped(worker.pump)
        assert pumped(worker.pump)
        np.testing.assert_array_equal(later.download_to_array(), wide + good)


def pumped(pump: Callable[[], bool]) -> bool:
    end = time.monotonic() + 240
    while not pump():
        assert time.monotonic() < end
        time.sleep(0.001)
    return True


@contextmanager
def added_worker() -> Iterator[Worker]:
    shape = ("float32", [None, 3])
    net = model([node("Add", ["a", "b"], ["y"])], {"a": shape, "b": shape}, {"y": shape})
    with Worker(net) as worker:
        yield worker


def test_two_schedules_of_sizes_that_are_refused_both_fail() -> None:
    with added_worker() as worker:
        wide, wrong = np.ones((3, 3), np.float32), np.ones((2, 3), np.float32)
        first = asked(worker, wide, wrong)
        first.readback_request()
        second = asked(worker, wide, wrong)
        second.readback_request()
        for tensor in (second, first):
            with pytest.raises(ShapeError):
                tensor.download_to_array()


def test_a_worker_is_disposed_while_it_plans(make_worker: MakeWorker, channel: str) -> None:
    worker = make_worker(ModelLoader.load(mlp(SIZES)), channel)
    asked(worker, rows(3)).readback_request()
    asked(worker, rows(4))
    worker.dispose()


def test_nor_does_a_frame_wait_for_that(
    make_worker: MakeWorker, channel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = make_worker(ModelLoader.load(mlp(SIZES)), channel)
    freed: list[bool] = []
    may_go_on, begun = threading.Event(), threading.Event()
    compile_kernels, free = Session.compile, Session._free

    def slow(*arguments: Any) -> int:
        begun.set()
        assert may_go_on.wait(60)
        return compile_kernels(*arguments)

    def freeing(session: Session) -> None:
        freed.append(session.is_planning)
        free(session)

    monkeypatch.setattr(Session, "compile", slow)
    monkeypatch.setattr(Session, "_free", freeing)
    asked(worker, rows(3))
    end = time.monotonic() + 240
    while not begun.is_set():
        assert time.monotonic() < end
        advance_loads(1.0)
    with background_planning():
        worker.dispose()
    assert not freed
    may_go_on.set()
    while advance_loads(1.0):
        assert time.monotonic() < end
    assert freed == [False]


def test_what_is_cancelled_is_not_computed(make_worker: MakeWorker, channel: str) -> None:
    worker = make_worker(ModelLoader.load(mlp(SIZES)), channel)
    with background_planning():
        schedule = worker.schedule_iterable(rows(3))
        schedule.advance(0.1, force=True)
        schedule.cancel()
        with pytest.raises(CancelledError):
            schedule.output().download_to_array()
    other = make_worker(worker.model, channel)
    np.testing.assert_array_equal(polled(asked(worker, rows(2))), answer(other, rows(2)))


def test_plans_at_once_and_in_the_background_in_turn(make_worker: MakeWorker, channel: str) -> None:
    net = ModelLoader.load(mlp(SIZES))
    worker, other = make_worker(net, channel), make_worker(net, channel)
    loading = worker.warm_up([{net.inputs[0].name: (n, SIZES[0])} for n in (40, 41)])
    for count in range(1, 7):
        tensor = asked(worker, rows(count))
        tensor.readback_request()
        # Outside of a frame the plan is there when `schedule` returns.
        at_once = answer(worker, rows(count + 20))
        np.testing.assert_array_equal(at_once, answer(other, rows(count + 20)))
        np.testing.assert_array_equal(polled(tensor), answer(other, rows(count)))
    loading.wait()
    for count in (40, 41):
        np.testing.assert_array_equal(answer(worker, rows(count)), answer(other, rows(count)))


def test_the_length_of_a_sequence_waits_for_the_plan() -> None:
    text = "g (float[n, 2] x) => (seq(float[2]) parts) { parts = SplitToSequence<axis = 0, keepdims = 0>(x) }"
    with Worker(ModelLoader.load(parsed(text))) as worker, background_planning():
        x = np.arange(6, dtype=np.float32).reshape(3, 2)
        worker.schedule(x)
        parts = worker.peek_output(0, list)
        assert [part.download_to_array().tolist() for part in parts] == x.tolist()


def test_a_shape_that_depends_on_data_is_still_pending() -> None:
    with Worker(ModelLoader.load(parsed(HALVES))) as worker:
        tensor = asked(worker, np.full(3, 1.5, np.float32))
        with background_planning(), pytest.raises(ShapePending):
            _ = tensor.shape
        assert polled(tensor).shape == (1,)


class Herd(MonoBehaviour):
    """Another number of agents in every frame."""

    def awake(self) -> None:
        self.worker = Worker(ModelLoader.load(mlp(SIZES)))
        self.answers: list[tuple[int, Tensor]] = []
        self.count = 0

    def update(self) -> None:
        self.count += 1
        self.worker.schedule(rows(self.count, self.count))
        tensor = self.worker.peek_output()
        tensor.readback_request()
        self.answers.append((self.count, tensor))

    def on_destroy(self) -> None:
        self.worker.dispose()


def test_frames_of_an_app_plan_nothing(planned_here: list[str]) -> None:
    with App("herd", headless=True, on_error="raise") as app, Worker(ModelLoader.load(mlp(SIZES))) as other:
        herd = app.scene.create("herd").add_component(Herd)
        app.step()
        planned_here.clear()
        for _ in range(12):
            app.step()
        assert not planned_here
        for count, tensor in herd.answers:
            np.testing.assert_array_equal(tensor.download_to_array(), answer(other, rows(count, count)))


def test_requests_of_a_queue_plan_nothing(planned_here: list[str]) -> None:
    queue = InferenceQueue()
    with Worker(ModelLoader.load(mlp(SIZES))) as worker:
        expected = answer(worker, rows(3))
        answer(worker, rows(2))
        planned_here.clear()
        requests = [queue.submit(worker, rows(count)) for count in (3, 65, 1)]
        end = time.monotonic() + 240
        while queue.pending:
            assert time.monotonic() < end
            queue.poll()
            queue.pump(2.0)
            time.sleep(0.001)
        assert not planned_here
        np.testing.assert_array_equal(requests[0].result(), expected)
        assert [request.result().shape for request in requests] == [(n, SIZES[-1]) for n in (3, 65, 1)]
