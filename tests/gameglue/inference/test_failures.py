"""A network that fails every frame is an error of the game: counted, logged once, and raised for tests."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from engine import InputError
from gameglue import App, Brain, ModelLoader, MonoBehaviour, Worker
from gameglue.inference.failures import described
from tests.graphs import mlp

WRONG = np.zeros((28, 28), np.float32)
RIGHT = np.zeros((1, 3), np.float32)


class Asker(MonoBehaviour):
    """Asks in every frame."""

    way: str

    def start(self) -> None:
        self.brain = self.get_component(Brain)

    def update(self) -> None:
        assert self.brain is not None
        image, callback = ASKED[self.way]
        self.brain.request(image, callback=None if callback is None else callback(self))

    def ignore(self, request: object) -> None: ...

    def divide(self, request: object) -> None:
        _ = 1 / 0


def divide(request: object) -> None:
    """Raise in a callback that belongs to no component."""
    _ = 1 / 0


ASKED: dict[str, tuple[np.ndarray, Callable[[Asker], Callable[[Any], object]] | None]] = {
    "wrong shape": (WRONG, lambda asker: asker.ignore),
    "wrong shape, error let out": (WRONG, lambda asker: lambda request: request.result()),
    "wrong shape, no callback": (WRONG, None),
    "callback": (RIGHT, lambda asker: asker.divide),
    "partial": (RIGHT, lambda asker: functools.partial(asker.divide)),
    "function": (RIGHT, lambda asker: divide),
}


def play(way: str, on_error: Any = "log") -> tuple[App, Asker]:
    app = App("failing", headless=True, deterministic=True, on_error=on_error)
    with app, Worker(ModelLoader.load(mlp((3, 4, 2), 0))) as worker:
        asker = app.scene.create("one").add_component(Asker, way=way)
        asker.game_object.add_component(Brain, worker=worker)
        app.run(frames=8)
        app.inference.cancel_all()
        return app, asker


@pytest.mark.parametrize(
    ("way", "owned", "where"),
    [
        ("wrong shape", True, "the request of update (test_failures.py:"),
        ("wrong shape, error let out", False, "the request of update (test_failures.py:"),
        ("wrong shape, no callback", False, "the request of update (test_failures.py:"),
        ("callback", True, "the callback Asker.divide"),
        ("partial", True, "the callback Asker.divide"),
        ("function", False, "the callback divide"),
    ],
)
def test_what_fails_in_every_frame_is_one_error(
    way: str, owned: bool, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    app, asker = play(way)
    assert app.exit_code == 1
    (failed,) = app.errors
    assert failed.component is (asker if owned else None)
    assert failed.where.startswith(where)
    assert caplog.text.count("Traceback") == 1
    kind = InputError if "wrong" in way else ZeroDivisionError
    assert type(failed.error) is kind
    with pytest.raises(kind):
        play(way, on_error="raise")


def test_the_component_that_failed_is_disabled(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[bool] = []

    class Watch(MonoBehaviour):
        asker: Asker

        def late_update(self) -> None:
            seen.append(self.asker.enabled)

    with (
        App("failing", headless=True, deterministic=True) as app,
        Worker(ModelLoader.load(mlp((3, 4, 2), 0))) as worker,
    ):
        asker = app.scene.create("one").add_component(Asker, way="wrong shape")
        asker.game_object.add_component(Brain, worker=worker)
        app.scene.create("watch").add_component(Watch, asker=asker)
        app.run(frames=8)
        asker.enabled = True
        app.run(frames=8)
        assert (seen[0], seen[7], seen[8], seen[15]) == (True, False, True, False)
        assert len(app.errors) == 2


def test_a_lambda_belongs_to_the_method_that_wrote_it() -> None:
    class Writer(MonoBehaviour):
        def callback(self) -> Callable[[object], object]:
            return lambda request: self.name

    writer = Writer()
    assert described(writer.callback())[0] is writer
    assert described(writer.callback) == (writer, f"{Writer.__qualname__}.callback")
    assert described(divide) == (None, "divide")
