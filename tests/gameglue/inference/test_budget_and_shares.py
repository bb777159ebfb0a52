"""Budget, priorities, deadlines and fair shares, on a clock that passes only when a slice takes time."""

from __future__ import annotations

import math
import random

import pytest

from engine import BackendType, InputError
from gameglue import InferenceQueue, InferenceRequest
from tests.gameglue.inference.fakes import Clock, Worker, frame, make_queue


@pytest.fixture
def clock() -> Clock:
    return Clock()


def keep_busy(queue: InferenceQueue, workers: list[Worker], depth: int = 2) -> None:
    """Give each worker something to do, whatever it has done."""
    waiting = {share.name: share.waiting for share in queue.stats.workers}
    for worker in workers:
        for _ in range(depth - waiting.get(worker.name, 0)):
            queue.submit(worker, [1.0])


def named(clock: Clock, count: int, costs: list[float] | None = None) -> list[Worker]:
    return [Worker(clock, costs or [0.25] * 4, name=f"net {i}") for i in range(count)]


# The budget


def test_the_budget_is_spent_exactly_while_there_is_work(clock: Clock) -> None:
    queue, worker = make_queue(clock), Worker(clock, [0.25] * 100)
    for _ in range(20):
        queue.submit(worker, [1.0])
        assert frame(queue, clock, budget_ms=2.0) == pytest.approx(2.0)
        assert queue.stats.spent_ms == pytest.approx(2.0)
        assert queue.stats.budget_use == pytest.approx(1.0)


def test_nothing_is_begun_that_does_not_fit(clock: Clock) -> None:
    queue, worker = make_queue(clock), Worker(clock, [1.5] * 10)
    queue.submit(worker, [1.0])
    assert [frame(queue, clock, budget_ms=2.0) for _ in range(3)] == pytest.approx([1.5] * 3)


def test_what_fits_fills_what_a_larger_step_leaves_and_that_comes_first_next(clock: Clock) -> None:
    log: list[tuple[str, float]] = []
    queue = make_queue(clock)
    large, small = (
        Worker(clock, [1.5] * 4, name="large", log=log),
        Worker(clock, [0.25] * 40, name="small", log=log),
    )
    queue.submit(large, [1.0], priority=1)
    queue.submit(small, [1.0])
    assert frame(queue, clock) == pytest.approx(2.0)
    assert log == [("large", 1.5), ("small", 0.25), ("small", 0.25)]
    log.clear()
    frame(queue, clock)
    assert log[0] == ("large", 1.5)


def test_a_slice_dearer_than_the_budget_has_its_turn_and_the_mean_is_kept(clock: Clock) -> None:
    queue, worker = make_queue(clock), Worker(clock, [9.0] * 4)
    request = queue.submit(worker, [1.0])
    taken = []
    while not request.is_done():
        taken.append(frame(queue, clock, budget_ms=2.0))
        assert len(taken) < 100
    ran = [i for i, ms in enumerate(taken) if ms]
    assert [taken[i] for i in ran] == pytest.approx([9.0] * 4)
    assert sum(taken[: ran[-1] + 1]) == pytest.approx(2.0 * (ran[-1] + 1), abs=2.0)
    assert ran[0] == 4, "9 ms at 2 ms a frame: four frames save, the fifth pays"


def test_dear_slices_take_turns_so_that_a_frame_has_one_of_them_at_most(clock: Clock) -> None:
    queue = make_queue(clock)
    workers = named(clock, 3, [7.0] * 3)
    for worker in workers:
        queue.submit(worker, [1.0])
    taken = []
    while queue.pending:
        taken.append(frame(queue, clock, budget_ms=2.0))
        assert len(taken) < 200
    assert max(taken) <= 7.0 + 2.0
    assert sum(taken) == pytest.approx(63.0)
    assert 63.0 / 2.0 <= len(taken) + 1 <= 36


def test_light_workers_go_on_while_a_dear_slice_is_saved_for(clock: Clock) -> None:
    queue = make_queue(clock)
    heavy, light = Worker(clock, [20.0] * 4, name="heavy"), Worker(clock, [0.2], name="light")
    queue.submit(heavy, [1.0])
    waits: list[int] = []
    for _ in range(200):
        queue.submit(light, [1.0], latest_only=True, callback=lambda r: waits.append(r.age_frames))
        frame(queue, clock, budget_ms=2.0)
    assert len(heavy.log) == 4
    assert len(waits) >= 190
    assert max(waits) <= 2


def test_random_costs_never_overspend_by_more_than_a_slice(clock: Clock) -> None:
    rng = random.Random(5)
    queue = make_queue(clock)
    workers = [
        Worker(clock, [rng.choice([0.05, 0.3, 1.0, 3.0, 8.0]) for _ in range(12)], name=f"net {i}")
        for i in range(7)
    ]
    taken = []
    for _ in range(600):
        keep_busy(queue, workers)
        before = [len(worker.log) for worker in workers]
        taken.append(frame(queue, clock, budget_ms=2.0))
        ran = [cost for n, worker in zip(before, workers, strict=True) for _, cost in worker.log[n:]]
        assert taken[-1] <= 2.0 + max(ran, default=0.0) + 1e-6
    assert sum(taken) / len(taken) == pytest.approx(2.0, rel=0.05)


def test_what_took_longer_than_expected_is_missing_in_the_next_frame(clock: Clock) -> None:
    queue, worker = make_queue(clock), Worker(clock, [0.3] * 100, submission_ms=0.8)
    queue.submit(worker, [1.0])
    taken = [frame(queue, clock, budget_ms=2.0) for _ in range(30)]
    assert max(taken) <= 2.0 + 0.8
    assert sum(taken) / len(taken) == pytest.approx(2.0, rel=0.05)


def test_one_hitch_costs_one_frames_budget_at_most(clock: Clock) -> None:
    queue, worker = make_queue(clock), Worker(clock, [0.5] * 100)
    queue.submit(worker, [1.0])
    worker.submission_ms = 300.0
    frame(queue, clock)
    worker.submission_ms = None
    assert frame(queue, clock) == 0.0
    assert frame(queue, clock) == pytest.approx(2.0)


def test_without_a_budget_nothing_begins(clock: Clock) -> None:
    queue, worker = make_queue(clock), Worker(clock)
    queue.submit(worker, [1.0])
    for budget in (0.0, -1.0, math.nan):
        assert frame(queue, clock, budget_ms=budget) == 0.0
    assert worker.begun == []


def test_work_on_job_threads_costs_its_submission(clock: Clock) -> None:
    queue = make_queue(clock)
    worker = Worker(clock, [4.0] * 6, submission_ms=0.1, backend_type=BackendType.CPU)
    request = queue.submit(worker, [1.0])
    taken = []
    while not request.is_done():
        taken.append(frame(queue, clock, budget_ms=0.5))
        assert len(taken) < 20
    assert max(taken) <= 0.5
    assert len(taken) <= 4, "it would take 48 frames, were its 24 ms paid with 0.5 ms a frame"


def test_job_threads_are_not_given_more_than_they_can_do_soon(clock: Clock) -> None:
    """So that an urgent request finds little before it."""
    queue = make_queue(clock)
    worker = Worker(clock, [4.0] * 100, submission_ms=0.01, backend_type=BackendType.CPU)
    queue.submit(worker, [1.0])
    for count in range(1, 20):
        frame(queue, clock, length_ms=10.0)
        assert worker.spent <= 10.0 * count + 24.0
    assert worker.spent >= 10.0 * 18, "they have always something to do"


def test_what_is_too_short_for_slices_runs_whole(clock: Clock) -> None:
    """Job threads only: whatever they run, the frame loses no more than the submission."""
    queue = make_queue(clock)
    short = Worker(clock, [0.1] * 3, submission_ms=0.01, backend_type=BackendType.CPU)
    long = Worker(clock, [0.4] * 3, submission_ms=0.01, backend_type=BackendType.CPU)
    gpu = Worker(clock, [0.1] * 3)
    requests = [queue.submit(worker, [float(n)]) for n in range(8) for worker in (short, long, gpu)]
    while queue.pending:
        frame(queue, clock)
    assert [request.result()[0] for request in requests] == [2.0 * (n // 3) for n in range(24)]
    assert (short.wholes, long.wholes, gpu.wholes) == (7, 0, 0)


def test_a_slice_that_waits_for_data_leaves_the_budget_to_the_others(clock: Clock) -> None:
    queue, stalled, other = make_queue(clock), Worker(clock, name="stalled"), Worker(clock, [0.5] * 8)
    stalled.stalled = True
    first, second = queue.submit(stalled, [1.0], priority=1), queue.submit(other, [1.0])
    assert frame(queue, clock) == pytest.approx(2.0)
    stalled.stalled = False
    for _ in range(5):
        frame(queue, clock)
    assert (first.state, second.state) == ("done", "done")


# Whose turn it is


def test_a_higher_priority_comes_first(clock: Clock) -> None:
    queue = make_queue(clock)
    low, high = named(clock, 2, [0.5] * 8)
    later, sooner = queue.submit(low, [1.0]), queue.submit(high, [1.0], priority=3)
    for _ in range(3):
        frame(queue, clock)
    assert sooner.state == "done"
    assert low.spent <= 2.0
    for _ in range(4):
        frame(queue, clock)
    assert later.state == "done"


def test_among_equals_the_earliest_deadline_comes_first(clock: Clock) -> None:
    queue = make_queue(clock)
    workers = named(clock, 3, [0.5] * 4)
    order: list[object] = []
    deadlines = [None, 500.0, 200.0]
    for worker, deadline in zip(workers, deadlines, strict=True):
        queue.submit(
            worker,
            [1.0],
            deadline_ms=deadline,
            payload=worker.name,
            callback=lambda r: order.append(r.payload),
        )
    for _ in range(6):
        frame(queue, clock)
    assert order == ["net 2", "net 1", "net 0"]


def test_what_is_urgent_lends_its_urgency_to_what_it_waits_for(clock: Clock) -> None:
    """A request of high priority behind a running one of low priority: the middle does not delay it."""
    log: list[tuple[str, float]] = []
    queue = make_queue(clock)
    low, middle = (Worker(clock, [0.5] * 8, name=name, log=log) for name in ("low", "middle"))
    queue.submit(low, [1.0])
    frame(queue, clock, budget_ms=0.5)
    queue.submit(middle, [1.0], priority=1)
    urgent = queue.submit(low, [2.0], priority=2)
    for _ in range(5):
        frame(queue, clock)
    assert urgent.state == "done"
    assert [name for name, _ in log[:16]] == ["low"] * 16
    assert ("middle", 0.5) in log


def test_requests_of_a_worker_run_in_order_the_urgent_first(clock: Clock) -> None:
    queue, worker = make_queue(clock), Worker(clock)
    for number, priority in enumerate([0, 0, 5, 0, 5]):
        queue.submit(worker, [float(number)], priority=priority)
    for _ in range(10):
        frame(queue, clock)
    assert worker.begun == [2.0, 4.0, 0.0, 1.0, 3.0]


def test_results_are_delivered_in_the_order_asked_unless_priority_says_otherwise(clock: Clock) -> None:
    queue = make_queue(clock)
    workers = named(clock, 4, [0.01])
    order: list[object] = []
    for number, priority in enumerate([0, 2, 0, 1]):
        queue.submit(
            workers[3 - number],
            [1.0],
            priority=priority,
            payload=number,
            callback=lambda r: order.append(r.payload),
        )
    for _ in range(2):
        frame(queue, clock)
    assert order == [1, 3, 0, 2]


def test_a_later_result_of_a_worker_never_overtakes(clock: Clock) -> None:
    queue, worker = make_queue(clock), Worker(clock, [0.1], delay=5)
    order: list[InferenceRequest] = []
    queue.submit(worker, [1.0], callback=order.append)
    frame(queue, clock)
    worker.delay = 0
    queue.submit(worker, [2.0], callback=order.append)
    for _ in range(8):
        frame(queue, clock)
    assert [request.result()[0] for request in order] == [2.0, 4.0]
    assert order[0].age_frames > 4


def test_a_result_never_arrives_for_another_request(clock: Clock) -> None:
    rng = random.Random(3)
    queue = make_queue(clock)
    workers = [Worker(clock, [rng.uniform(0.05, 1.5) for _ in range(3)], name=str(i)) for i in range(5)]
    asked: list[tuple[float, InferenceRequest]] = []
    for number in range(400):
        worker = rng.choice(workers)
        worker.delay = rng.randrange(3)
        options = {"priority": rng.randrange(2), "latest_only": rng.random() < 0.3}
        asked.append((float(number), queue.submit(worker, [float(number)], **options)))  # type: ignore[arg-type]
        if rng.random() < 0.1:
            rng.choice(asked)[1].cancel()
        frame(queue, clock)
    for _ in range(600):
        frame(queue, clock)
    assert queue.pending == 0
    done = [(value, request) for value, request in asked if request.state == "done"]
    assert len(done) > 200
    assert all(request.result().tolist() == [2.0 * value] for value, request in done)


def test_no_more_of_a_worker_is_in_flight_than_allowed(clock: Clock) -> None:
    queue, worker = make_queue(clock, in_flight=2), Worker(clock, [0.1], delay=1000)
    for _ in range(10):
        queue.submit(worker, [1.0])
        frame(queue, clock)
    assert len(worker.begun) == 2
    assert (queue.stats.reading, queue.stats.waiting) == (2, 8)


# Fair shares


def test_twenty_workers_have_equal_shares(clock: Clock) -> None:
    queue, workers = make_queue(clock), named(clock, 20)
    for _ in range(400):
        keep_busy(queue, workers)
        frame(queue, clock, budget_ms=2.0)
    spent = [worker.spent for worker in workers]
    assert sum(spent) == pytest.approx(800.0, rel=0.01)
    assert min(spent) >= 0.95 * 40.0
    assert max(spent) <= 1.05 * 40.0
    shares = [share.share for share in queue.stats.workers]
    assert shares == pytest.approx([0.05] * 20, abs=0.02)


def test_twenty_workers_of_different_weight_in_slices_of_different_size(clock: Clock) -> None:
    rng = random.Random(1)
    queue = make_queue(clock)
    workers = [Worker(clock, [rng.uniform(0.05, 0.6) for _ in range(9)], name=f"net {i}") for i in range(20)]
    for number, worker in enumerate(workers):
        queue.set_weight(worker, 3.0 if number < 4 else 1.0)
    for _ in range(1500):
        keep_busy(queue, workers)
        frame(queue, clock, budget_ms=2.0)
    each = 3000.0 / (4 * 3 + 16)
    for number, worker in enumerate(workers):
        assert worker.spent == pytest.approx(each * (3.0 if number < 4 else 1.0), rel=0.1)
    with pytest.raises(InputError, match="weight must be above 0, got 0"):
        queue.set_weight(workers[0], 0.0)


def test_a_heavy_worker_does_not_starve_light_ones(clock: Clock) -> None:
    queue = make_queue(clock)
    heavy = Worker(clock, [5.0] * 30, name="heavy")
    light = named(clock, 19, [0.02])
    waits: list[int] = []
    queue.submit(heavy, [1.0])
    for _ in range(300):
        keep_busy(queue, [heavy])
        for worker in light:
            queue.submit(worker, [1.0], latest_only=True, callback=lambda r: waits.append(r.age_frames))
        frame(queue, clock, budget_ms=2.0)
    assert len(waits) >= 19 * 295
    assert max(waits) <= 3
    # 19 light ones take 0.38 ms of each frame's two; all that is left is the heavy one's.
    assert heavy.spent == pytest.approx(300 * 1.62, rel=0.05)


def test_idling_saves_nothing(clock: Clock) -> None:
    queue = make_queue(clock)
    busy, late = named(clock, 2)
    for _ in range(100):
        keep_busy(queue, [busy])
        frame(queue, clock)
    before = busy.spent
    for _ in range(100):
        keep_busy(queue, [busy, late])
        frame(queue, clock)
    assert late.spent == pytest.approx(busy.spent - before, rel=0.05)


def test_even_the_lowest_priority_gets_a_turn_now_and_then(clock: Clock) -> None:
    queue = make_queue(clock)
    low, high = named(clock, 2, [1.0] * 3)
    request = queue.submit(low, [1.0], priority=-1)
    frames = 0
    while not request.is_done() and frames < 400:
        queue.submit(high, [1.0], latest_only=True)
        frame(queue, clock, budget_ms=1.0)
        frames += 1
    assert request.state == "done"
    assert frames > 100, "but no more than one in a while"


def test_statistics(clock: Clock) -> None:
    queue = make_queue(clock)
    eyes, ears = Worker(clock, [0.5] * 3, name="eyes"), Worker(clock, [9.0], name="ears")
    for _ in range(2):
        queue.submit(eyes, [1.0])
    queue.submit(ears, [1.0])
    frame(queue, clock, budget_ms=2.0)
    stats = queue.stats
    assert (stats.frame, stats.waiting, stats.running, stats.reading) == (1, 1, 2, 0)
    assert stats.budget_ms == 2.0
    assert stats.spent_ms == pytest.approx(1.0)
    assert stats.saved_ms == pytest.approx(1.0)
    assert {share.name: share.spent_ms for share in stats.workers} == pytest.approx(
        {"eyes": 1.0, "ears": 0.0}
    )
    assert (stats.done, stats.failed) == (0, 0)


def test_bad_options_are_refused(clock: Clock) -> None:
    with pytest.raises(InputError, match="must be at least 1, got 0, 2 and 4"):
        make_queue(clock, latency_frames=0)


def test_while_paused_nothing_new_begins(clock: Clock) -> None:
    queue, worker = make_queue(clock), Worker(clock, [0.5] * 8)
    running, waiting = queue.submit(worker, [1.0]), queue.submit(worker, [2.0])
    frame(queue, clock)
    queue.paused = True
    for _ in range(4):
        frame(queue, clock)
    assert (running.state, waiting.state) == ("done", "waiting")
    queue.paused = False
    for _ in range(4):
        frame(queue, clock)
    assert waiting.state == "done"
