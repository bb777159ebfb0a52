"""Replays: the same inputs give the same results in the same frames, whatever the computer's speed."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gameglue import (
    App,
    InferenceRequest,
    InputScript,
    MonoBehaviour,
    RequestCancelledError,
    RequestExpiredError,
    RequestReplacedError,
)
from tests.gameglue.inference.fakes import Clock, Worker, frame, make_queue

FRAMES = 1000


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.mark.parametrize("latency", [1, 2, 5])
@pytest.mark.parametrize("delay", [0, 3, 1000])
def test_a_result_comes_exactly_so_many_frames_later(clock: Clock, latency: int, delay: int) -> None:
    queue = make_queue(clock, deterministic=True, latency_frames=latency)
    workers = [Worker(clock, [0.5] * 7, delay=delay), Worker(clock, [0.5], delay=delay)]
    ages: list[int] = []
    for number in range(40):
        request = queue.submit(workers[number % 2], [1.0], callback=lambda r: ages.append(r.age_frames))
        frame(queue, clock)
        assert request.state == ("done" if latency == 1 else "running")
    assert ages == [latency] * (40 - latency + 1)
    assert request.age_ms == pytest.approx(1000 / 60)


def test_slices_are_counted_and_not_timed(clock: Clock) -> None:
    queue = make_queue(clock, deterministic=True, latency_frames=10, slices_per_frame=3)
    worker = Worker(clock, [7.0, 0.1] * 10)
    queue.submit(worker, [1.0])
    for _ in range(3):
        frame(queue, clock, budget_ms=0.001)
    assert len(worker.log) == 9
    assert queue.stats.budget_ms == queue.stats.spent_ms == 3.0


def test_a_newer_request_replaces_one_of_the_same_frame_only(clock: Clock) -> None:
    queue = make_queue(clock, deterministic=True, latency_frames=3, slices_per_frame=1)
    worker = Worker(clock, [1.0] * 9)
    kept = queue.submit(worker, [1.0], latest_only=True)
    frame(queue, clock)
    replaced = queue.submit(worker, [2.0], latest_only=True)
    newest = queue.submit(worker, [3.0], latest_only=True)
    assert isinstance(replaced.error, RequestReplacedError)
    for _ in range(3):
        frame(queue, clock)
    assert kept.result().tolist() == [2.0]
    frame(queue, clock)
    assert newest.result().tolist() == [6.0]


def test_what_was_accepted_runs_though_its_request_is_over(clock: Clock) -> None:
    """So that a worker sees the same sequence everywhere: its random numbers count its schedules."""
    queue = make_queue(clock, deterministic=True, latency_frames=4, slices_per_frame=1)
    worker = Worker(clock, [1.0] * 2)
    queue.submit(worker, [1.0])
    cancelled = queue.submit(worker, [2.0], callback=lambda r: pytest.fail("it was cancelled"))
    expiring = queue.submit(worker, [3.0], deadline_ms=30.0)
    frame(queue, clock)
    cancelled.cancel()
    early = queue.submit(worker, [4.0])
    early.cancel()
    for _ in range(8):
        frame(queue, clock)
    assert worker.begun == [1.0, 2.0, 3.0]
    assert isinstance(cancelled.error, RequestCancelledError)
    assert isinstance(expiring.error, RequestExpiredError)
    assert expiring.age_frames == 2


def test_failures_come_in_their_frame_too(clock: Clock) -> None:
    queue = make_queue(clock, deterministic=True, latency_frames=3)
    seen: list[int] = []
    request = queue.submit(Worker(clock), "seven", callback=lambda r: seen.append(r.age_frames))
    for _ in range(5):
        frame(queue, clock)
    assert seen == [3]
    assert isinstance(request.error, ValueError)


def test_tensors_of_ones_own_come_in_their_frame(clock: Clock) -> None:
    queue = make_queue(clock, deterministic=True, latency_frames=2)
    worker = Worker(clock, delay=1000)
    request = queue.result(worker.schedule_iterable([1.0]).output())
    states = []
    for _ in range(3):
        queue.poll()
        states.append(request.is_done())
    assert states == [False, True, True]
    assert request.result().tolist() == [2.0]


class Chase(MonoBehaviour):
    """A small game: a body that is steered by keys and by two networks, asked in every frame in every way."""

    workers: list[Any]
    dawdle: Any

    def awake(self) -> None:
        self.state = np.zeros(4)
        self.history: list[tuple[Any, ...]] = []
        self.seen: list[tuple[Any, ...]] = []
        self.rare: InferenceRequest | None = None

    async def start(self) -> None:
        while True:
            value = await self.app.inference.submit(self.workers[0], self.input_array() + 1.0)
            self.state[2] += float(value[0]) * 1e-3
            self.seen.append(("awaited", self.time.frame_count, value.tobytes()))

    def input_array(self) -> np.ndarray:
        return self.state.astype(np.float32)

    def update(self) -> None:
        frame_count = self.time.frame_count
        self.state[0] += self.input.get_axis("left", "right") * self.time.delta_time
        self.state[1] += self.app.random.normal() * self.time.delta_time
        self.app.inference.submit(self.workers[0], self.input_array(), latest_only=True, callback=self.steer)
        if frame_count % 3 == 0:
            self.app.inference.submit(self.workers[1], self.input_array(), priority=1, callback=self.steer)
        if self.input.get_key_down("space"):
            self.rare = self.app.inference.submit(self.workers[1], self.input_array(), deadline_ms=20.0)
        elif self.rare is not None and self.input.get_key("up"):
            self.rare.cancel()
        state = None if self.rare is None else (self.rare.is_done(), type(self.rare.error).__name__)
        self.history.append((self.state.tobytes(), state, self.app.inference.pending))
        self.dawdle()

    def steer(self, request: InferenceRequest) -> None:
        array = request.result()
        self.state[3] = 0.9 * self.state[3] + 0.1 * np.tanh(float(array.reshape(-1)[0]))
        self.seen.append((request.frame, self.time.frame_count, request.age_ms, array.tobytes()))


def recorded_input(path: Path) -> InputScript:
    """Keys pressed at random over 1,000 frames, written and read as a recording is."""
    rng = random.Random(11)
    script = InputScript()
    for _ in range(250):
        key = rng.choice(["left", "right", "up", "space"])
        script.press(key, at=rng.uniform(0.0, FRAMES / 60), hold=rng.uniform(0.02, 0.4))
    script.save(path)
    return InputScript.load(path)


def replay(make_app: Callable[..., App], script: InputScript, workers: list[Any], dawdle: Any) -> Chase:
    script.rewind()
    app = make_app(deterministic=True, latency_frames=2, input_source=script, on_error="raise")
    chase = app.scene.create("chase").add_component(Chase, workers=workers, dawdle=dawdle)
    app.run(frames=FRAMES)
    app.dispose()
    return chase


def test_a_replay_of_1000_frames_is_the_same_to_the_bit(make_app: Callable[..., App], tmp_path: Path) -> None:
    """Once with few, quick slices, once with many that come late."""
    script = recorded_input(tmp_path / "input.json")
    quick = [Worker(Clock(), [0.1]), Worker(Clock(), [0.1])]
    first = replay(make_app, script, quick, lambda: None)
    rng = random.Random(2)
    slow = [Worker(Clock(), [5.0] * 3), Worker(Clock(), [0.4] * 30)]

    def dawdle() -> None:
        for worker in slow:
            worker.delay = rng.randrange(4)
            worker.costs = [rng.uniform(0.1, 3.0) for _ in range(rng.randrange(1, 40))]
            worker.clock.pass_ms(rng.uniform(0.0, 50.0))

    second = replay(make_app, script, slow, dawdle)
    assert len(first.seen) > 1500
    assert first.history == second.history
    assert first.seen == second.seen
    for one, other in zip(quick, slow, strict=True):
        # The last few were still waiting for their slices when the game ended.
        count = len(other.begun)
        assert count >= len(one.begun) - 6
        assert one.begun[:count] == other.begun
