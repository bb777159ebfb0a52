"""Frames with and without inference, on a clock that the test turns."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from gameglue import App, MonoBehaviour
from gameglue.profiling.recording import ProfileRecording
from gameglue.profiling.session import PAUSED, RUNNING, SETTLING, FramePlan, Profile, profile_frames
from tests.gameglue.profiling.test_recording import Reader


def test_turns_alternate_and_their_first_frames_do_not_count() -> None:
    plan = FramePlan(frames=40, block=10, settle=3)
    labels = [plan.label(number) for number in range(40)]
    assert labels == 2 * ([SETTLING] * 3 + [RUNNING] * 7 + [SETTLING] * 3 + [PAUSED] * 7)
    assert [plan.is_paused(n) for n in (0, 9, 10, 19, 20)] == [False, False, True, True, False]


class Listener(MonoBehaviour):
    """Asks only while inference runs, as games do; notes which frames that was."""

    def start(self) -> None:
        self.asked: list[bool] = []

    def update(self) -> None:
        self.asked.append(not self.app.inference.paused)


def test_inference_is_paused_in_turns_and_runs_on_afterwards(make_app: Callable[..., App]) -> None:
    app = make_app(on_error="raise")
    listener = app.scene.create("listener", Listener).get_component(Listener)
    assert listener is not None
    slept: list[float] = []
    now = [0.0]

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    plan = FramePlan(frames=20, block=5, settle=1, warm_up=2, rate=50.0)
    profile = profile_frames(app, plan, sleep=sleep, clock=lambda: now[0], layers=False)
    asked = ([True] * 5 + [False] * 5) * 2
    assert listener.asked == [True, True, *asked]
    assert slept == pytest.approx([0.02] * 22)
    assert app.inference.paused is False
    assert "inference" in app.frame.names
    assert [len(profile.sides[side]) for side in (RUNNING, PAUSED)] == [8, 8]
    assert len(profile.work) == 20
    # A frame stands for its share of a second, however long it takes.
    assert app.time.time == pytest.approx(22 * 0.02)


def test_a_profile_ends_with_its_app(make_app: Callable[..., App]) -> None:
    app = make_app()

    class Leaver(MonoBehaviour):
        def update(self) -> None:
            if self.time.frame_count >= 6:
                self.app.quit()

    app.scene.create("leaver", Leaver)
    profile = profile_frames(app, FramePlan(frames=50, warm_up=0, rate=0.0))
    assert 5 <= len(profile.work) <= 7


def test_a_profile_waits_for_the_renderer_between_frames(
    make_app: Callable[..., App], monkeypatch: pytest.MonkeyPatch
) -> None:
    naps: list[bool] = []
    app: App = make_app(sleep=lambda seconds: naps.append(app._in_frame))
    # At the end of every frame two pictures are in flight, until the third poll.
    pending = itertools.cycle((2, 2, 0))
    monkeypatch.setattr(app._idle_time, "_pending", lambda: next(pending))
    profile = profile_frames(app, FramePlan(frames=20, block=5, settle=1, warm_up=0), layers=False)
    assert naps == [False] * 2 * 20
    assert [len(profile.late[side]) for side in (RUNNING, PAUSED)] == [8, 8]
    assert [len(profile.intervals[side]) for side in (RUNNING, PAUSED)] == [8, 7]


def test_what_frames_waited_for_is_told() -> None:
    def limit(running: list[float], paused: list[float]) -> str:
        late = {RUNNING: np.array(running), PAUSED: np.array(paused)}
        return Profile("game", ProfileRecording(), 60.0, late=late).limit

    assert limit([], []) == limit([0.0] * 50, [0.0] * 50) == limit([0.01] + [0.0] * 49, [0.0]) == ""
    both = limit([0.01, 0.03, 0.0, 0.0], [0.02, 0.0])
    assert both == (
        "the renderer, not inference, is the limit: 50% of the frames with inference waited for it,"
        " 20.0 ms each; 50% of the frames without inference waited for it, 20.0 ms each"
    )
    assert limit([0.01, 0.0], [0.0]).startswith("the renderer, with inference, is the limit: 50% of")


def test_workers_are_summed_up_with_their_memory_and_layers(app: App) -> None:
    app.scene.create("reader", Reader)
    profile = profile_frames(app, FramePlan(frames=8, block=4, settle=0, warm_up=2, rate=0.0))
    (label,) = profile.memory
    assert label == "digits on cpu"
    memory = profile.memory[label]
    assert memory.device == 0
    # 72,970 parameters are in the model's card; packing may keep some twice.
    assert memory.host_weights > 100_000
    assert memory.total == memory.host == memory.host_weights + memory.host_temporaries + memory.host_tensors
    layers = profile.layers[label]
    assert any(item.op_type.startswith("Conv") for item in layers)
    assert all(item.seconds >= 0.0 for item in layers)
    assert profile.blocking_calls == 0
    assert np.all(profile.recording.times("workers", label)[:4] > 0.0)


class Unhurried:
    """Work that goes on with every pump, and never ends."""

    def __init__(self) -> None:
        self.frames: list[int] = []
        self.frame = 0

    def pump(self, budget_ms: float | None) -> None:
        self.frames.append(self.frame)


def test_work_under_way_waits_while_inference_is_paused(make_app: Callable[..., App]) -> None:
    """Else frames "without inference" would hold the slices of what began before."""
    app = make_app(on_error="raise")
    work = Unhurried()
    app.inference.register(work)

    class Counter(MonoBehaviour):
        def update(self) -> None:
            work.frame += 1

    app.scene.create("counter", Counter)
    before = app.frame.names
    profile_frames(app, FramePlan(frames=20, block=5, settle=1, warm_up=0, rate=0.0), layers=False)
    assert work.frames == [1, 2, 3, 4, 5, 11, 12, 13, 14, 15]
    assert app.frame.names == before
