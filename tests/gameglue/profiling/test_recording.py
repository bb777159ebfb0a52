"""What a recording holds of an app's frames, and that nothing is left behind when it ends."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from engine import BackendType, ModelLoader, Worker
from engine.base import instrumentation
from gameglue import App, InferenceRequest, MonoBehaviour
from gameglue.profiling import ProfileRecording
from tests.gameglue.profiling.recorded import recorded

DIGITS = Path(__file__).parents[3] / "assets" / "digits" / "digits.onnx"


class Reader(MonoBehaviour):
    """Asks a network in every frame."""

    def start(self) -> None:
        self.worker = Worker(ModelLoader.load(DIGITS), BackendType.CPU)
        self.worker.warm_up({"image": (1, 1, 28, 28)}).wait()
        self.answers = 0

    def update(self) -> None:
        self.worker.schedule(np.zeros((1, 1, 28, 28), np.float32))
        self.app.inference.result(self.worker.peek_output(), self.take)

    def take(self, result: InferenceRequest) -> None:
        self.answers += 1

    def on_destroy(self) -> None:
        self.worker.dispose()


class Remover(MonoBehaviour):
    """Destroys what comes behind it in the same walk."""

    execution_order = -1
    victim: Reader

    def update(self) -> None:
        if self.victim.enabled:
            self.victim.enabled = False


def test_frames_phases_and_hooks() -> None:
    recording = recorded(frames=12, ms=4.0)
    assert [frame.number for frame in recording.frames] == list(range(12))
    assert recording.times("phases", "update") == pytest.approx(np.full(12, 0.002))
    assert recording.times("hooks", "Reader.update") == pytest.approx(np.full(12, 0.001))
    assert recording.names("phases") == ["update", "gui"] or recording.names("phases") == ["gui", "update"]
    assert recording.totals["bytes up"] == 12 * 64
    assert recording.frames[3].counts == {"bytes up": 64}


def test_an_apps_frames_are_recorded_with_their_hooks_and_workers(app: App) -> None:
    reader = app.scene.create("reader", Reader).get_component(Reader)
    app.step()
    assert reader is not None
    recording = app.profiler.record()
    steps = 0
    # A busy machine answers later; the first answer may be to what was asked before the recording.
    while steps < 5 or (reader.answers < 2 and steps < 1000):
        app.step()
        steps += 1
    assert app.profiler.stop() is recording
    app.step()
    assert len(recording.frames) == steps
    frame = recording.frames[2]
    assert set(frame.phases) == set(app.frame.names)
    assert sum(frame.phases.values()) == pytest.approx(frame.seconds, rel=0.05)
    assert 0.0 < frame.hooks["Reader.update"] <= frame.phases["update"]
    (times,) = recording.workers
    assert times.worker is reader.worker
    assert times.label == "digits on cpu"
    assert times.schedules == steps
    assert 0.0 < frame.workers["digits on cpu"] <= frame.hooks["Reader.update"]
    assert times.state in ("idle", "in flight")
    names = {(event.track, event.name) for event in recording.events}
    assert {("main", "schedule"), ("main", "upload"), ("readback", "readback")} <= names
    assert {("hooks", "Reader.update"), ("phases", "update")} <= names
    for event in recording.events:
        assert event.start <= event.end


def test_nothing_is_left_when_a_recording_ends(app: App) -> None:
    app.scene.create("reader", Reader)
    callbacks = len(gc.callbacks)
    app.profiler.record()
    app.profiler.record()
    app.step()
    assert instrumentation.installed == 1
    app.profiler.stop()
    assert instrumentation.installed == 0
    assert len(gc.callbacks) == callbacks
    assert app._lifecycle.wrap is None
    assert all(hooks.wrap is None for hooks in app._lifecycle.hooks.values())
    assert app.profiler.stop() is None


def test_an_app_that_is_disposed_stops_recording(make_app: Callable[..., App]) -> None:
    app = make_app()
    app.profiler.record()
    app.step()
    app.dispose()
    assert instrumentation.installed == 0


def test_a_hook_removed_within_the_walk_is_not_called_while_recording(app: App) -> None:
    reader = app.scene.create("reader", Reader).get_component(Reader)
    assert reader is not None
    app.step()
    recording = app.profiler.record()
    app.scene.create("remover").add_component(Remover, victim=reader)
    answered = reader.answers
    for _ in range(3):
        app.step()
    assert "Reader.update" not in recording.frames[-1].hooks
    assert reader.answers <= answered + 1


class Faulty(MonoBehaviour):
    """Raises in its second update."""

    def start(self) -> None:
        self.updates = 0

    def update(self) -> None:
        self.updates += 1
        if self.updates == 2:
            raise ValueError("on purpose")


def test_a_component_that_raises_is_reported_while_recording(make_app: Callable[..., App]) -> None:
    app = make_app()
    faulty = app.scene.create("faulty", Faulty).get_component(Faulty)
    reader = app.scene.create("reader", Reader).get_component(Reader)
    recording = app.profiler.record()
    for _ in range(4):
        app.step()
    assert [error.component for error in app.errors] == [faulty]
    assert recording.workers[0].schedules == 4
    assert reader is not None


def test_garbage_collections_are_told(app: App) -> None:
    recording = app.profiler.record()
    app.step()
    gc.collect()
    found = [event for event in recording.events if event.name == "garbage collection"]
    assert found[-1].detail == {"generation": 2}
    assert found[-1].end > found[-1].start


def test_the_oldest_events_and_frames_go_first() -> None:
    recording = ProfileRecording(events=10, frames=3)
    for number in range(8):
        recording.begin_frame(number)
        recording.phase("update", number, number + 1)
        recording.phase("gui", number, number + 1)
        recording.end_frame(number, number + 1)
    assert [frame.number for frame in recording.frames] == [5, 6, 7]
    assert [event.frame for event in recording.events] == [3, 3, 4, 4, 5, 5, 6, 6, 7, 7]
