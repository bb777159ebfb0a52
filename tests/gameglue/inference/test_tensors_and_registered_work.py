"""The queue against stand-ins for tensors and workers, so that time and readiness belong to the test."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import pytest

from gameglue import App, InferenceQueue, InferenceRequest, MonoBehaviour, ValuePending
from gameglue.inference import Pumpable


class Tensor:
    """A readback that comes when the test says so."""

    def __init__(self, value: float = 1.0) -> None:
        self.requests = 0
        self.ready = False
        self.error: Exception | None = None
        self.value = value

    def readback_request(self) -> None:
        self.requests += 1

    def is_readback_request_done(self) -> bool:
        if self.error is not None:
            raise self.error
        return self.ready

    def download_to_array(self) -> np.ndarray:
        return np.array([self.value], np.float32)


class Work:
    """A pumpable that takes a given time."""

    def __init__(self, name: str, log: list[str], seconds: float = 0.0) -> None:
        self.name = name
        self.log = log
        self.seconds = seconds
        self.budgets: list[float] = []
        self.finished = False

    def pump(self, budget_ms: float | None) -> None:
        assert budget_ms is not None, "the queue gives a budget"
        self.log.append(self.name)
        self.budgets.append(budget_ms)
        end = time.perf_counter() + self.seconds
        while time.perf_counter() < end:
            pass

    def is_done(self) -> bool:
        return self.finished


def test_awaiting_a_result_gives_the_array_in_the_frame_that_has_it(app: App) -> None:
    tensor = Tensor(7.0)
    log: list[tuple[str, int]] = []

    class Reader(MonoBehaviour):
        async def start(self) -> None:
            value = await self.app.inference.result(tensor)
            log.append((f"got {value[0]}", self.time.frame_count))

        def update(self) -> None:
            log.append(("update", self.time.frame_count))

    app.scene.create("reader", Reader)
    app.step()
    app.step()
    assert tensor.requests == 1
    tensor.ready = True
    app.step()
    assert log == [("update", 1), ("update", 2), ("got 7.0", 3), ("update", 3)]
    assert app.inference.pending == 0


def test_yielding_a_result_works_in_generators(app: App) -> None:
    tensor = Tensor(3.0)
    got: list[np.ndarray] = []

    def read() -> Generator[Any, Any, Any]:
        got.append((yield app.inference.result(tensor)))

    app.start_coroutine(read())
    tensor.ready = True
    app.step()
    assert got[0].tolist() == [3.0]


def test_a_callback_gets_the_payload_and_the_frame_of_the_question(app: App) -> None:
    tensor = Tensor()
    seen: list[InferenceRequest] = []
    for _ in range(3):
        app.step()
    asked = app.inference.result(tensor, seen.append, payload="board 5")
    app.step()
    assert not asked.is_done()
    with pytest.raises(ValuePending, match="the request is reading"):
        asked.result()
    tensor.ready = True
    app.step()
    app.step()
    assert seen == [asked]
    assert (asked.frame, asked.payload) == (3, "board 5")
    assert asked.result().tolist() == [1.0]


def test_a_failed_readback_raises_where_it_is_awaited(make_app: Callable[..., App]) -> None:
    app = make_app()
    tensor = Tensor()
    caught: list[str] = []

    class Reader(MonoBehaviour):
        async def start(self) -> None:
            try:
                await self.app.inference.result(tensor)
            except LookupError as error:
                caught.append(str(error))

    app.scene.create("reader", Reader)
    app.step()
    tensor.error = LookupError("stale")
    app.step()
    assert caught == ["stale"]
    assert app.errors == []


def test_a_raising_callback_does_not_keep_the_others_from_theirs(caplog: pytest.LogCaptureFixture) -> None:
    queue = InferenceQueue()
    seen: list[str] = []

    def fail(result: InferenceRequest) -> None:
        raise ValueError("callback")

    first, second = Tensor(), Tensor()
    queue.result(first, fail)
    queue.result(second, lambda result: seen.append("second"))
    first.ready = second.ready = True
    queue.poll()
    assert seen == ["second"]
    assert "ValueError: callback" in caplog.text


def test_registered_work_is_pumped_once_a_frame_with_the_budget(make_app: Callable[..., App]) -> None:
    app = make_app(frame_budget_ms=3.0)
    work = Work("work", [])
    app.inference.register(work)
    app.inference.register(work)
    app.step()
    app.step()
    assert work.budgets == pytest.approx([3.0, 3.0], abs=0.5)
    assert isinstance(work, Pumpable)
    work.finished = True
    app.step()
    app.inference.unregister(work)
    app.step()
    assert len(work.budgets) == 2
    assert len(app.inference) == 0


def test_a_heavy_worker_does_not_starve_the_others() -> None:
    queue = InferenceQueue()
    log: list[str] = []
    works = [Work("heavy", log, seconds=0.005), Work("b", log), Work("c", log)]
    for work in works:
        queue.register(work)
    for _ in range(3):
        queue.pump(budget_ms=2.0)
    assert set(log) == {"heavy", "b", "c"}
    assert log.count("heavy") <= 3
    # What remains of the budget is passed on, never a negative number.
    assert all(0.0 <= budget <= 2.0 for work in works for budget in work.budgets)


def test_the_budget_ends_the_frames_turn() -> None:
    queue = InferenceQueue()
    log: list[str] = []
    works = [Work(f"work {i}", log, seconds=0.003) for i in range(4)]
    for work in works:
        queue.register(work)
    spent = queue.pump(budget_ms=2.0)
    assert len(log) == 1
    assert spent >= 2.0


def test_work_nobody_holds_is_forgotten() -> None:
    queue = InferenceQueue()
    log: list[str] = []
    work = Work("work", log)
    queue.register(work)
    del work
    gc.collect()
    queue.pump(1.0)
    assert log == []
    assert len(queue) == 0


def test_work_that_raises_is_logged_once_and_dropped(caplog: pytest.LogCaptureFixture) -> None:
    class Disposed:
        def pump(self, budget_ms: float | None) -> None:
            raise RuntimeError("disposed")

    queue = InferenceQueue()
    work = Disposed()
    queue.register(work)
    queue.pump(1.0)
    queue.pump(1.0)
    assert caplog.text.count("RuntimeError: disposed") == 1


def test_only_what_can_be_pumped_registers() -> None:
    with pytest.raises(TypeError, match=r"cannot register int: it has no method pump\(budget_ms\)"):
        InferenceQueue().register(3)  # type: ignore[arg-type]
