"""One handle: asked, polled, awaited, called back, cancelled, replaced, expired, failed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import pytest

from gameglue import (
    App,
    DisposedError,
    InferenceRequest,
    InputError,
    MonoBehaviour,
    RequestCancelledError,
    RequestExpiredError,
    RequestReplacedError,
    ValuePending,
)
from tests.gameglue.inference.fakes import Clock, Worker, frame, make_queue


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_request_goes_through_its_states_and_gives_the_array(clock: Clock) -> None:
    queue, worker = make_queue(clock), Worker(clock, [1.5, 1.5], delay=1)
    request = queue.submit(worker, [3.0], payload="board 5")
    assert (request.state, request.frame, request.payload) == ("waiting", 0, "board 5")
    seen = []
    for _ in range(4):
        frame(queue, clock, budget_ms=2.0)
        seen.append(request.state)
    assert seen == ["running", "reading", "reading", "done"]
    assert request.result().tolist() == [6.0]
    assert (request.age_frames, request.age_ms) == (4, pytest.approx(48.0))
    frame(queue, clock)
    assert (request.age_frames, request.age_ms) == (4, pytest.approx(48.0)), "it ages no more"
    assert queue.pending == 0


def test_asking_for_the_result_too_early_says_what_to_do(clock: Clock) -> None:
    request = make_queue(clock).submit(Worker(clock), [1.0])
    with pytest.raises(ValuePending, match=r"the request is waiting: wait until is_done\(\), or await it"):
        request.result()


def test_a_callback_comes_with_the_poll_and_once(clock: Clock) -> None:
    queue = make_queue(clock)
    seen: list[InferenceRequest] = []
    request = queue.submit(Worker(clock), [1.0], callback=seen.append)
    frame(queue, clock)
    assert seen == []
    frame(queue, clock)
    frame(queue, clock)
    assert seen == [request]


def test_await_and_yield_go_on_in_the_frame_that_has_the_result(make_app: Callable[..., App]) -> None:
    app, worker = make_app(on_error="raise"), Worker(Clock(), [0.1])
    log: list[tuple[str, float, int]] = []

    class Reader(MonoBehaviour):
        async def start(self) -> None:
            value = await self.app.inference.submit(worker, [2.0])
            log.append(("awaited", value[0], self.time.frame_count))

        def update(self) -> None:
            log.append(("update", 0.0, self.time.frame_count))

    def generator() -> Generator[Any, Any, Any]:
        value = yield app.inference.submit(worker, [5.0])
        log.append(("yielded", value[0], app.time.frame_count))

    app.scene.create("reader", Reader)
    app.start_coroutine(generator())
    for _ in range(500):
        app.step()
    got = {name: (value, number) for name, value, number in log if name != "update"}
    assert (got["awaited"][0], got["yielded"][0]) == (4.0, 10.0)
    number = got["awaited"][1]
    assert number >= 2
    assert log.index(("awaited", 4.0, number)) < log.index(("update", 0.0, number))


def test_await_works_in_asyncio_too(clock: Clock) -> None:
    queue, worker = make_queue(clock), Worker(clock)

    async def play() -> Any:
        asked = asyncio.ensure_future(read())
        for _ in range(4):
            frame(queue, clock)
            await asyncio.sleep(0.002)
        return await asked

    async def read() -> Any:
        return await queue.submit(worker, [4.0])

    assert asyncio.run(play()).tolist() == [8.0]


def test_arrays_are_copied_when_asked(clock: Clock) -> None:
    queue, worker, image = make_queue(clock), Worker(clock), np.array([1.0], np.float32)
    by_position = queue.submit(worker, image)
    by_name = queue.submit(worker, x=image)
    image[:] = 9.0
    for _ in range(3):
        frame(queue, clock, budget_ms=5.0)
    assert (by_position.result()[0], by_name.result()[0]) == (2.0, 2.0)


def test_outputs_are_selected(clock: Clock) -> None:
    queue, worker = make_queue(clock), Worker(clock, [0.1], outputs=("double", "triple"))
    everything = queue.submit(worker, [1.0])
    named = queue.submit(worker, [1.0], outputs="triple")
    numbered = queue.submit(worker, [1.0], outputs=1)
    listed = queue.submit(worker, [1.0], outputs=["triple"])
    for _ in range(3):
        frame(queue, clock)
    assert {name: array.tolist() for name, array in everything.result(dict).items()} == {
        "double": [2.0],
        "triple": [3.0],
    }
    assert named.result().tolist() == numbered.result().tolist() == [3.0]
    assert listed.result()["triple"].tolist() == [3.0]
    with pytest.raises(InputError, match="no output 'quadruple'; its outputs: double, triple"):
        queue.submit(worker, [1.0], outputs="quadruple")
    with pytest.raises(InputError, match=r"has 2 output\(s\), no number 2"):
        queue.submit(worker, [1.0], outputs=2)
    with pytest.raises(InputError, match="names no output"):
        queue.submit(worker, [1.0], outputs=[])


@pytest.mark.parametrize("frames", [0, 1, 2])
def test_cancelling_ends_it_in_any_state(clock: Clock, frames: int) -> None:
    queue, worker = make_queue(clock), Worker(clock, [1.5, 1.5], delay=3)
    seen: list[Any] = []
    request = queue.submit(worker, [1.0], callback=seen.append)
    other = queue.submit(worker, [2.0])
    for _ in range(frames):
        frame(queue, clock)
    assert request.state == ("waiting", "running", "reading")[frames]
    request.cancel()
    request.cancel()
    assert request.is_done()
    assert repr(request) == "<InferenceRequest 1 of frame 0: cancelled>"
    with pytest.raises(RequestCancelledError, match="request 1 was cancelled"):
        request.result()
    for _ in range(12):
        frame(queue, clock)
    assert seen == []
    assert len(worker.log) == (2, 3, 4)[frames], "slices that were not enqueued never are"
    assert other.result().tolist() == [4.0]
    assert queue.stats.cancelled == 1


def test_cancelling_from_a_callback_reaches_what_came_in_the_same_frame(clock: Clock) -> None:
    queue, worker = make_queue(clock), Worker(clock, [0.1])
    requests: list[InferenceRequest] = []
    requests.append(queue.submit(worker, [1.0], callback=lambda r: requests[1].cancel()))
    requests.append(queue.submit(worker, [1.0], callback=lambda r: pytest.fail("it was cancelled")))
    for _ in range(3):
        frame(queue, clock)
    assert [request.state for request in requests] == ["done", "cancelled"]


def test_cancelling_all_of_a_worker(clock: Clock) -> None:
    queue, worker, other = make_queue(clock), Worker(clock), Worker(clock)
    mine = [queue.submit(worker, [1.0]) for _ in range(3)]
    theirs = queue.submit(other, [1.0])
    queue.cancel_all(worker)
    assert {request.state for request in mine} == {"cancelled"}
    assert theirs.state == "waiting"
    queue.cancel_all()
    assert queue.pending == 0


def test_the_latest_replaces_what_waits_and_takes_its_place(clock: Clock) -> None:
    queue, worker = make_queue(clock), Worker(clock, [1.0] * 4)
    seen: list[Any] = []
    running = queue.submit(worker, [1.0], latest_only=True)
    frame(queue, clock)
    stale = queue.submit(worker, [2.0], latest_only=True, callback=seen.append)
    between = queue.submit(worker, [3.0])
    latest = queue.submit(worker, [4.0], latest_only=True)
    assert stale.state == "cancelled"
    with pytest.raises(RequestReplacedError, match="request 2 made way for a newer one"):
        stale.result()
    for _ in range(12):
        frame(queue, clock)
    assert [request.state for request in (running, between, latest)] == ["done"] * 3
    assert worker.begun == [1.0, 4.0, 3.0]
    assert seen == []


def test_a_worker_whose_only_request_makes_way_counts_once(clock: Clock) -> None:
    queue, worker = make_queue(clock), Worker(clock)
    for number in range(5):
        queue.submit(worker, [float(number)], latest_only=True)
    stats = queue.stats
    assert (stats.waiting, len(stats.workers)) == (1, 1)


def test_only_the_same_key_makes_way(clock: Clock) -> None:
    queue, worker, other = make_queue(clock), Worker(clock), Worker(clock)
    left = queue.submit(worker, [1.0], latest_only="left eye")
    right = queue.submit(worker, [2.0], latest_only="right eye")
    theirs = queue.submit(other, [2.0], latest_only="left eye")
    newer = queue.submit(worker, [3.0], latest_only="left eye")
    assert [r.state for r in (left, right, theirs, newer)] == ["cancelled", "waiting", "waiting", "waiting"]


def test_a_worker_whose_only_request_was_replaced_is_listed_once(clock: Clock) -> None:
    """What made way was the worker's only task; the worker was listed a second time, with a part for each."""
    queue, worker = make_queue(clock), Worker(clock)
    for number in range(5):
        queue.submit(worker, [float(number)], latest_only=True)
    assert len(queue.stats.workers) == 1
    assert queue.stats.waiting == 1


def test_per_frame_perception_never_piles_up(clock: Clock) -> None:
    """A network that takes five frames is asked in every one: one waits at most, the answers are fresh."""
    queue, worker = make_queue(clock), Worker(clock, [1.0] * 10)
    ages: list[Any] = []
    for number in range(100):
        queue.submit(
            worker,
            [float(number)],
            latest_only=True,
            callback=lambda request: ages.append(request.age_frames),
        )
        assert queue.stats.waiting == 1
        frame(queue, clock)
    assert len(ages) >= 19
    assert max(ages) <= 7
    assert queue.pending <= 3


def test_what_runs_may_be_cancelled_for_the_latest(clock: Clock) -> None:
    queue, worker = make_queue(clock), Worker(clock, [1.0] * 4)
    running = queue.submit(worker, [1.0], latest_only=True)
    frame(queue, clock)
    latest = queue.submit(worker, [2.0], latest_only=True, cancel_running=True)
    assert running.state == "cancelled"
    for _ in range(4):
        frame(queue, clock)
    assert latest.result().tolist() == [4.0]
    assert len(worker.log) == 2 + 4


def test_a_deadline_that_passes_expires_the_request(clock: Clock) -> None:
    queue, worker = make_queue(clock), Worker(clock, [1.0] * 8)
    seen: list[Any] = []
    late = queue.submit(worker, [1.0], deadline_ms=40.0, callback=seen.append)
    other = queue.submit(worker, [2.0], deadline_ms=400.0)
    for _ in range(4):
        frame(queue, clock)
    assert late.state == "expired"
    assert seen == [late]
    with pytest.raises(RequestExpiredError, match="request 1 of frame 0 had no result before its deadline"):
        late.result()
    assert len(worker.log) == 6 + 2, "nothing more of it was enqueued"
    for _ in range(6):
        frame(queue, clock)
    assert other.state == "done"
    assert (queue.stats.done, queue.stats.expired) == (1, 1)


def test_a_result_that_comes_after_its_deadline_is_not_delivered(clock: Clock) -> None:
    queue, worker = make_queue(clock), Worker(clock, delay=4)
    late = queue.submit(worker, [1.0], deadline_ms=40.0)
    for _ in range(4):
        frame(queue, clock)
    assert late.state == "expired"


def test_a_failing_input_fails_its_request_alone(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    queue, worker = make_queue(clock), Worker(clock, [0.1])
    seen: list[Any] = []
    before = queue.submit(worker, [1.0])
    wrong = queue.submit(worker, "seven", callback=lambda request: seen.append(request.error))
    after = queue.submit(worker, [2.0])
    for _ in range(3):
        frame(queue, clock)
    assert (before.state, wrong.state, after.state) == ("done", "failed", "done")
    with pytest.raises(ValueError, match="input 'x' is no number: seven"):
        wrong.result()
    assert seen == [wrong.error]
    assert caplog.text.count("Traceback") == 1
    assert caplog.text.count("ValueError: input 'x' is no number: seven") == 1


@pytest.mark.parametrize("where", ["run_error", "read_error"])
def test_a_fault_while_running_or_reading_is_that_requests(
    clock: Clock, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    queue, sick, sound = make_queue(clock), Worker(clock), Worker(clock)
    setattr(sick, where, RuntimeError("device lost"))
    failing, fine = queue.submit(sick, [1.0]), queue.submit(sound, [2.0])
    for _ in range(3):
        frame(queue, clock, budget_ms=4.0)
    assert fine.result().tolist() == [4.0]
    with pytest.raises(RuntimeError, match="device lost"):
        failing.result()
    assert caplog.text.count("RuntimeError: device lost") == 1


def test_a_callback_that_lets_the_error_out_does_not_log_it_twice(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    queue, worker = make_queue(clock), Worker(clock)
    queue.submit(worker, "seven", callback=lambda request: request.result())
    queue.submit(worker, [1.0], deadline_ms=0.0, callback=lambda request: request.result())
    for _ in range(3):
        frame(queue, clock)
    assert caplog.text.count("Traceback") == 1


def test_a_raising_callback_is_logged_and_the_others_are_called(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    queue, worker = make_queue(clock), Worker(clock, [0.1])
    seen: list[Any] = []

    def fail(request: InferenceRequest) -> None:
        raise LookupError("no such label")

    request = queue.submit(worker, [1.0], callback=fail)
    queue.submit(worker, [2.0], callback=seen.append)
    for _ in range(3):
        frame(queue, clock)
    assert request.state == "done"
    assert len(seen) == 1
    assert caplog.text.count("LookupError: no such label") == 1


def test_a_failure_goes_to_whoever_awaits_it(make_app: Callable[..., App], caplog: Any) -> None:
    app, worker = make_app(), Worker(Clock())
    caught: list[str] = []

    class Reader(MonoBehaviour):
        async def start(self) -> None:
            try:
                await self.app.inference.submit(worker, "seven")
            except ValueError as error:
                caught.append(str(error))

    app.scene.create("reader", Reader)
    for _ in range(3):
        app.step()
    assert caught == ["input 'x' is no number: seven"]
    assert app.errors == []
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_a_disposed_worker_fails_its_requests_and_is_no_error_of_the_game(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    queue, worker, other = make_queue(clock), Worker(clock, delay=5, name="eyes"), Worker(clock)
    requests = [queue.submit(worker, [float(number)]) for number in range(4)]
    theirs = queue.submit(other, [1.0])
    frame(queue, clock, budget_ms=2.0)
    worker.is_disposed = True
    for _ in range(3):
        frame(queue, clock, budget_ms=4.0)
    assert {request.state for request in requests} == {"failed"}
    with pytest.raises(DisposedError, match="the worker of 'eyes' was disposed"):
        requests[0].result()
    assert "DisposedError" not in caplog.text
    assert theirs.state == "done"


def test_a_callback_may_ask_again(clock: Clock) -> None:
    queue, worker = make_queue(clock), Worker(clock, [0.1])
    seen: list[Any] = []

    def again(request: InferenceRequest) -> None:
        seen.append(request.result()[0])
        if len(seen) < 3:
            queue.submit(worker, request.result(), callback=again)

    queue.submit(worker, [1.0], callback=again)
    for _ in range(5):
        frame(queue, clock)
    assert seen == [2.0, 4.0, 8.0]


def test_workers_nobody_holds_are_forgotten(clock: Clock) -> None:
    import gc
    import weakref

    queue, worker = make_queue(clock), Worker(clock)
    request = queue.submit(worker, [1.0])
    for _ in range(3):
        frame(queue, clock)
    dead = weakref.ref(worker)
    del worker
    gc.collect()
    assert dead() is None
    assert request.result().tolist() == [2.0]
