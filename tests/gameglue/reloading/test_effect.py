"""An image effect that follows its shader's file: tried on another thread, then swapped in."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import moderngl
import numpy as np
import pytest

from gameglue import App, GraphicsError, MonoBehaviour, RenderTarget

MakeApp = Callable[..., App]


def shader(red: float) -> str:
    return f"""
#version 330 core
in vec2 uv;
uniform sampler2D source;
out vec4 color;
void main() {{ color = vec4({red}, texture(source, uv).gb, 1.0); }}
"""


class Clock:
    """The time that the watches see."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Painter(MonoBehaviour):
    """Has an effect from a file."""

    file: str = ""

    def awake(self) -> None:
        self.effect = self.app.hot_reload.effect(self.file)

    def on_render_image(self, source: RenderTarget, destination: RenderTarget) -> None:
        self.effect.apply(source, destination)


@pytest.fixture
def played(make_drawing_app: MakeApp, tmp_path: Path, game: moderngl.Context) -> tuple[App, Painter, Path]:
    path = tmp_path / "tint.frag"
    path.write_text(shader(1.0))
    app = make_drawing_app(folder=tmp_path)
    app.graphics.background = "#002040"
    app.hot_reload._clock = Clock()
    return app, app.scene.create("painter").add_component(Painter, file="tint.frag"), path


def play_until(app: App, condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    clock: Any = app.hot_reload._clock
    while not condition():
        assert time.monotonic() < end
        clock.now += 0.11
        app.step()
        time.sleep(0.001)


def red_of(app: App) -> int:
    return int(np.median(app.graphics.picture.read()[..., 0]))


def test_the_picture_follows_the_shader(played: tuple[App, Painter, Path]) -> None:
    app, painter, path = played
    app.step()
    assert red_of(app) == 0
    play_until(app, painter.effect.is_done)
    app.step()
    assert red_of(app) == 255
    for number, red in enumerate((0.2, 0.4, 0.6), 1):
        path.write_text(shader(red))
        play_until(app, lambda n=number: painter.effect.reloads == n)  # type: ignore[misc]
        app.step()
        assert abs(red_of(app) - red * 255) <= 1


def test_a_shader_with_a_mistake_is_reported_and_the_old_one_stays(
    played: tuple[App, Painter, Path], caplog: pytest.LogCaptureFixture
) -> None:
    app, painter, path = played
    app.step()
    play_until(app, painter.effect.is_done)
    path.write_text(shader(0.5).replace("texture(", "testure("))
    play_until(app, lambda: painter.effect.error is not None)
    for _ in range(20):
        app.step()
    error = painter.effect.error
    assert isinstance(error, GraphicsError)
    assert "testure" in str(error)
    assert "tint.frag" in str(error)
    assert caplog.text.count("cannot be used") == 1
    assert red_of(app) == 255
    live = app.graphics.device.live_objects
    path.write_text(shader(0.5))
    play_until(app, lambda: painter.effect.reloads == 1)
    app.step()
    assert abs(red_of(app) - 127) <= 1
    assert painter.effect.error is None
    assert app.graphics.device.live_objects == live
    assert app.errors == []


def test_without_opengl_it_is_there_and_draws_nothing(make_app: MakeApp, tmp_path: Path) -> None:
    (tmp_path / "tint.frag").write_text(shader(1.0))
    app = make_app(on_error="raise", folder=tmp_path)
    painter = app.scene.create("painter").add_component(Painter, file="tint.frag")
    app.hot_reload._clock = Clock()
    app.step()
    play_until(app, painter.effect.is_done)
    assert painter.effect.error is None
