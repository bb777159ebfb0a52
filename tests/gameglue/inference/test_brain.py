"""A brain asks its worker, tells how long answers took, and takes the worker with it."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest

from engine import DisposedError
from gameglue import (
    App,
    BackendChoice,
    BackendType,
    Brain,
    InferenceRequest,
    InputError,
    PlayOptions,
    RequestCancelledError,
    ResourceError,
    open_worker,
)
from gameglue.host.resources import Resources
from tests.peer import open_session

MODEL = "digits/digits.onnx"
SHAPES = {"batch": 1}
PICTURE = np.random.default_rng(4).random((1, 1, 28, 28), np.float32)
MakeApp = Callable[..., App]


def step_until(app: App, condition: Callable[[], bool]) -> None:
    end = time.perf_counter() + 120.0
    while not condition() and time.perf_counter() < end:
        app.step()
    assert condition()


def test_answers_are_those_of_another_engine_and_are_counted(app: App) -> None:
    brain = Brain.open(app.scene.create("reader"), MODEL, shapes=SHAPES)
    assert (brain.result_count, brain.latency_ms, brain.latency_frames) == (0, 0.0, 0.0)
    assert brain.latency_text == "..."
    assert "answer after" not in brain.statistics
    taken: list[InferenceRequest] = []
    brain.request(PICTURE, payload="first", callback=taken.append)
    second = brain.request(PICTURE)
    assert brain.pending == 2
    step_until(app, lambda: brain.result_count == 2)
    session = open_session(Resources().find(MODEL))
    (expected,) = session.run(None, {session.get_inputs()[0].name: PICTURE})
    np.testing.assert_allclose(taken[0].result(), expected, atol=1e-5)
    assert taken[0].payload == "first"
    assert brain.pending == 0
    third = brain.request(PICTURE)
    brain.cancel()
    assert third.state == "cancelled"
    assert brain.pending == 0
    assert brain.latency_ms == pytest.approx((taken[0].age_ms + second.age_ms) / 2)
    assert brain.latency_frames == (taken[0].age_frames + second.age_frames) / 2
    assert brain.statistics["answers"] == 2
    frames = f"{brain.latency_frames:.0f} frame" + ("" if brain.latency_frames < 1.5 else "s")
    assert brain.latency_text == f"{frames}, {brain.latency_ms:.1f} ms"
    assert str(brain.statistics["answer after"]).startswith(f"{brain.latency_frames:.0f} frame(s), ")


def test_it_runs_where_the_player_wants_it(app: App) -> None:
    told: list[tuple[int, int]] = []
    choice = BackendChoice(BackendType.CPU, precision="float32")
    options = PlayOptions(choice=choice, progress=lambda *progress: told.append(progress))
    brain = Brain.open(app.scene.create("reader"), MODEL, options)
    assert brain.choice is choice
    assert brain.worker.backend_type is BackendType.CPU
    assert brain.label.startswith("cpu on ")
    assert brain.statistics["backend"] == brain.label


def test_a_newer_question_takes_the_place_of_one_that_waits(app: App) -> None:
    brain = Brain.open(app.scene.create("reader"), MODEL, shapes=SHAPES)
    app.inference.paused = True
    older, newer = (brain.request(PICTURE, latest_only=True) for _ in range(2))
    app.inference.paused = False
    step_until(app, newer.is_done)
    assert older.state == "cancelled"
    assert brain.result_count == 1


def test_what_expires_is_told_and_does_not_count(app: App) -> None:
    brain = Brain.open(app.scene.create("reader"), MODEL, shapes=SHAPES)
    app.inference.paused = True
    ended: list[str] = []
    brain.request(PICTURE, deadline_ms=0.0, callback=lambda request: ended.append(request.state))
    step_until(app, lambda: ended == ["expired"])
    assert brain.result_count == 0


class Guard(Brain):
    post: str = ""

    def awake(self) -> None:
        self.woken = True


def test_a_class_that_derives_from_it_has_fields_of_its_own(app: App) -> None:
    guard = Guard.open(app.scene.create("guard"), MODEL, shapes=SHAPES, post="gate")
    app.step()
    assert guard.woken
    assert guard.post == "gate"
    guard.request(PICTURE)
    step_until(app, lambda: guard.result_count == 1)


def test_its_worker_goes_with_it_or_when_another_is_employed(app: App) -> None:
    game_object = app.scene.create("reader")
    brain = Brain.open(game_object, MODEL, shapes=SHAPES)
    first, request = brain.worker, brain.request(PICTURE)
    choice = BackendChoice(BackendType.CPU)
    worker = open_worker(app.resources.load(MODEL), choice)
    brain.set_worker(worker, choice)
    assert first.is_disposed
    assert isinstance(request.error, RequestCancelledError)
    brain.request(PICTURE)
    step_until(app, lambda: brain.result_count == 1)
    game_object.destroy()
    app.step()
    assert worker.is_disposed
    assert str(brain.statistics["backend"]).startswith("cpu on ")  # a report is written at the end
    with pytest.raises(DisposedError):
        worker.schedule(PICTURE)


def test_what_cannot_be_opened_leaves_no_component(app: App) -> None:
    game_object = app.scene.create("reader")
    with pytest.raises(ResourceError, match=r"nothing\.onnx"):
        Brain.open(game_object, "nothing.onnx")
    with pytest.raises(InputError):
        Brain.open(game_object, MODEL, shapes={"nothing": 1})
    assert game_object.get_component(Brain) is None
