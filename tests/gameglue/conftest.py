"""Apps for tests: without OpenGL where nothing is drawn, on the process's one context where something is."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import moderngl
import pytest

from gameglue import App

MakeApp = Callable[..., App]


@pytest.fixture
def make_app(monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeApp]:
    """`make_app(**options)`: an app that draws nothing; frames without a given length last 1/60 s."""
    monkeypatch.setenv("GAMEGLUE_NO_OPENGL", "1")
    made: list[App] = []

    def make(**options: object) -> App:
        app = App("test", **{"headless": True, "size": (320, 240), **options})  # type: ignore[arg-type]
        made.append(app)
        return app

    yield make
    for app in made:
        app.dispose()


@pytest.fixture
def app(make_app: MakeApp) -> App:
    """An app that draws nothing, and in which no component is expected to raise."""
    return make_app(on_error="raise")


@pytest.fixture
def make_drawing_app(game: moderngl.Context) -> Iterator[MakeApp]:
    """`make_drawing_app(**options)`: an app on the test process's OpenGL context."""
    made: list[App] = []

    def make(**options: object) -> App:
        app = App("test", context=game, **{"size": (320, 240), "on_error": "raise", **options})  # type: ignore[arg-type]
        made.append(app)
        return app

    yield make
    for app in made:
        app.dispose()
