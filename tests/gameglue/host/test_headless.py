"""Which surface an app gets, and that a machine without display or OpenGL still plays."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from engine.base import thread_scheduling
from gameglue import App, GraphicsError, MonoBehaviour, RenderTarget, SpriteRenderer
from gameglue.graphics import context, surface
from gameglue.graphics.context import how_to_get_opengl, open_offscreen_context
from gameglue.graphics.surface import has_display
from gameglue.host.pygame_ce import import_pygame

RunChild = Callable[..., str]
MakeApp = Callable[..., App]


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, False),
        ({"DISPLAY": ":0"}, True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, True),
        ({"DISPLAY": ":0", "SDL_VIDEODRIVER": "dummy"}, False),
    ],
)
def test_a_display_is_recognised(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: bool
) -> None:
    monkeypatch.setattr(surface, "SYSTEM", "Linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert has_display() is expected


@pytest.mark.gl
def test_an_app_draws_without_a_display(run_child: RunChild, tmp_path: Path) -> None:
    shot = tmp_path / "shot.png"
    printed = run_child(
        f"""
import os
os.environ.pop("DISPLAY", None), os.environ.pop("WAYLAND_DISPLAY", None)
import pygame
from gameglue import App, SpriteRenderer
with App("headless", size=(64, 48), on_error="raise") as app:
    assert app.headless and not app.real_time
    app.scene.create("sprite").add_component(SpriteRenderer, color="#ff0000", width=4.0)
    app.run(frames=3)
    app.screenshot({str(shot)!r})
assert not pygame.display.get_init()
picture = pygame.image.load({str(shot)!r})
print(picture.get_size(), picture.get_at((32, 24))[:3])
"""
    )
    assert printed.strip() == "(64, 48) (255, 0, 0)"


class Everything(MonoBehaviour):
    """Uses all of the graphics, and counts."""

    frames = 0
    effects = 0

    def start(self) -> None:
        self.texture = self.app.graphics.texture(np.zeros((8, 8), np.uint8))
        self.effect = self.app.graphics.effect("#version 330 core\nnot a shader")

    def on_render_image(self, source: RenderTarget, destination: RenderTarget) -> None:
        self.effects += 1

    def on_gui(self) -> None:
        self.frames += 1
        gui = self.app.gui
        gui.panel(0, 0, 100, 100, "title")
        assert gui.text("text", 0, 0) > 0
        gui.image(self.texture, 0, 0)
        gui.plot(0, 0, 50, 50, [1, 2, 3])
        gui.bars(0, 0, 50, 50, [1, 2, 3])
        self.texture.write(np.ones((8, 8), np.uint8))


def test_without_opengl_the_game_plays_without_drawing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setenv("GAMEGLUE_NO_OPENGL", "1")
    with caplog.at_level(logging.WARNING), App("none", headless=True, on_error="raise") as app:
        assert app.ctx is None
        everything = app.scene.create("everything").add_component(Everything)
        app.scene.create("sprite", SpriteRenderer)
        app.run(frames=5)
        app.screenshot(tmp_path / "shot.png")
        assert app.report().metadata["renderer"] == "none"
        assert app.graphics.read_pixels().shape == (640, 960, 3)
    assert (everything.frames, everything.effects) == (5, 0)
    assert not (tmp_path / "shot.png").exists()
    assert caplog.text.count("no OpenGL (") == 1
    assert "playing without drawing. To draw: " in caplog.text
    assert f"no screenshot {tmp_path / 'shot.png'}: there is no OpenGL" in caplog.text


def test_each_system_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for system, word in (("Linux", "apt install libegl1"), ("Windows", "driver"), ("Darwin", "macOS")):
        monkeypatch.setattr(context, "SYSTEM", system)
        assert word in how_to_get_opengl()


def test_a_driver_that_fails_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**settings: object) -> None:
        raise Exception("libEGL.so not loaded")

    monkeypatch.delenv("GAMEGLUE_NO_OPENGL", raising=False)
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.setattr(context, "release_current_context", lambda: None)
    monkeypatch.setattr(context.moderngl, "create_context", fail)
    monkeypatch.setattr(context, "SYSTEM", "Linux")
    assert open_offscreen_context() == (
        None,
        "egl 4.3: libEGL.so not loaded; egl 3.3: libEGL.so not loaded",
    )


def test_an_older_opengl_is_taken_where_the_newer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def only_3_3(**settings: object) -> object:
        asked.append(settings["require"])
        if settings["require"] != 330:
            raise ValueError("too new")
        return "the context"

    monkeypatch.delenv("GAMEGLUE_NO_OPENGL", raising=False)
    monkeypatch.setattr(context, "release_current_context", lambda: None)
    monkeypatch.setattr(context.moderngl, "create_context", only_3_3)
    assert open_offscreen_context() == ("the context", "")
    assert asked == [430, 330]


def test_no_window_falls_back_unless_it_was_demanded(run_child: RunChild) -> None:
    printed = run_child(
        """
import logging
logging.basicConfig(format="%(message)s", stream=__import__("sys").stdout)
from gameglue import App, GraphicsError
with App("fallback", size=(32, 32)) as app:
    assert app.headless
    app.step()
try:
    App("demanded", headless=False)
except GraphicsError as error:
    print("refused:", error)
""",
        DISPLAY=":9873",
    )
    assert "no window, playing without one: no display: " in printed
    assert "refused: no display: " in printed


def test_the_original_pygame_is_recognised(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    fake = SimpleNamespace(__file__="/site-packages/pygame/__init__.py", version=SimpleNamespace(ver="2.6.1"))
    monkeypatch.setitem(sys.modules, "pygame", fake)
    with pytest.raises(GraphicsError) as caught:
        import_pygame()
    message = str(caught.value)
    assert "/site-packages/pygame is the original pygame 2.6.1" in message
    assert "pip uninstall -y pygame pygame-ce && pip install pygame-ce" in message
    monkeypatch.setitem(sys.modules, "pygame", None)
    with pytest.raises(GraphicsError, match="pip install pygame-ce"):
        import_pygame()


def test_seeds_repeat(make_app: Callable[..., App]) -> None:
    first, second = make_app(seed=5), make_app(seed=5)
    assert first.random.random() == second.random.random()
    assert first.python_random.random() == second.python_random.random()


def test_frames_go_before_what_draws_for_them(make_drawing_app: MakeApp) -> None:
    app = make_drawing_app(real_time=True)
    if thread_scheduling.get_slice(0) is None:
        pytest.skip("this system has no time slices that can be asked for")
    assert thread_scheduling.get_slice(0) == thread_scheduling.FRAME_SLICE
    drawing = thread_scheduling.threads_named("llvmpipe")
    has_threads = os.environ.get("LP_NUM_THREADS") != "0"
    assert bool(drawing) == ("llvmpipe" in app.graphics.renderer and has_threads)
    for thread in drawing:
        assert thread_scheduling.get_slice(thread) == thread_scheduling.LONG_SLICE
        assert os.sched_getscheduler(thread) & 0xFF == os.SCHED_BATCH


def test_frames_that_nobody_waits_for_leave_their_core(make_app: MakeApp) -> None:
    def sliced(real_time: bool) -> bool:
        make_app(real_time=real_time).dispose()
        return thread_scheduling.get_slice(0) == thread_scheduling.FRAME_SLICE

    with ThreadPoolExecutor(1) as fresh:
        if fresh.submit(thread_scheduling.get_slice, 0).result() is None:
            pytest.skip("this system has no time slices that can be asked for")
        assert [fresh.submit(sliced, each).result() for each in (False, True)] == [False, True]
