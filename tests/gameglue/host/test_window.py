"""A real window under Xvfb: its pixels as the X server shows them, its events, and its size."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

pytestmark = [pytest.mark.window, pytest.mark.gl]

RunChild = Callable[..., str]


def read_screen(path: Path) -> np.ndarray:
    """The whole screen of an Xvfb that keeps its framebuffer in a file of the xwd format; (h, w, 3) uint8."""
    data = path.read_bytes()
    header = np.frombuffer(data, ">u4", 25)
    size, width, height, bits, line, colors = (int(header[i]) for i in (0, 4, 5, 11, 12, 19))
    assert bits == 32
    rows = np.frombuffer(data, np.uint8, line * height, size + colors * 12).reshape(height, line)
    pixels = rows[:, : width * 4].reshape(height, width, 4)
    # Byte order 0 is least significant first: blue, green, red.
    return pixels[..., 2::-1] if int(header[7]) == 0 else pixels[..., 1:4]


@pytest.fixture
def screen(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A display whose screen the test can read, and the file that holds it."""
    program = shutil.which("Xvfb")
    if program is None:
        pytest.skip("Xvfb is not installed")
    folder = tmp_path / "screen"
    folder.mkdir()
    command = [
        program,
        "-displayfd",
        "1",
        "-screen",
        "0",
        "640x480x24",
        "-nolisten",
        "tcp",
        "-fbdir",
        str(folder),
    ]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert server.stdout is not None
    number = server.stdout.readline().strip()
    if not number:
        server.wait()
        pytest.skip("Xvfb does not start here")
    yield f":{number}", folder / "Xvfb_screen0"
    server.terminate()
    server.wait()


WINDOW = """
import os, shutil
import pygame
from gameglue import App, MonoBehaviour

class Draws(MonoBehaviour):
    def on_gui(self):
        self.app.gui.rect(0, 0, 200, 100, "#ff0000")
        self.app.gui.rect(100, 50, 100, 100, "#0080ff")

with App("window test", size=(200, 150), on_error="raise") as app:
    assert not app.headless and app.real_time
    print(app.ctx.version_code)
    app.graphics.background = "#00ff00"
    app.scene.create("draws", Draws)
    app.run(frames=5)
    app.ctx.finish()
    shutil.copyfile(os.environ["SCREEN"], os.environ["COPY"])
    assert app.graphics.read_pixels()[10, 10].tolist() == [255, 0, 0]
assert not pygame.display.get_init()
print("closed")
"""


def test_the_window_shows_the_picture(screen: tuple[str, Path], run_child: RunChild, tmp_path: Path) -> None:
    display, file = screen
    copy = tmp_path / "screen.xwd"
    printed = run_child(WINDOW, DISPLAY=display, SCREEN=str(file), COPY=str(copy))
    version, closed = printed.split()
    assert int(version) >= 330
    assert closed == "closed"
    shown = read_screen(copy)
    red = np.argwhere((shown == [255, 0, 0]).all(axis=2))
    assert len(red), "nothing of the window is on the screen"
    top, left = red.min(axis=0)
    expected = np.zeros((150, 200, 3), np.uint8)
    expected[:] = [0, 255, 0]
    expected[:100] = [255, 0, 0]
    expected[50:, 100:] = [0, 128, 255]
    assert np.array_equal(shown[top : top + 150, left : left + 200], expected)


EVENTS = """
import pygame
from gameglue import App, MonoBehaviour
from gameglue.input import KeyEvent, MouseButton, MouseMoved, MouseScrolled, Resized, TextEvent

class Watch(MonoBehaviour):
    seen = []
    def update(self):
        if self.input.get_key_down("space"):
            self.seen.append(("space", self.input.mouse_position, self.input.get_mouse_button(1)))

with App("events", size=(200, 150), on_error="raise", target_frame_rate=1000) as app:
    app.scene.create("watch", Watch)
    app.run(frames=2)
    pygame.event.clear()
    post = lambda kind, **values: pygame.event.post(pygame.event.Event(kind, **values))
    post(pygame.MOUSEMOTION, pos=(12, 34), rel=(0, 0), buttons=(0, 0, 0))
    post(pygame.MOUSEBUTTONDOWN, pos=(15, 35), button=3)
    post(pygame.MOUSEBUTTONDOWN, pos=(15, 35), button=4)
    post(pygame.MOUSEWHEEL, x=0, y=-1)
    post(pygame.KEYDOWN, key=pygame.K_SPACE)
    post(pygame.TEXTINPUT, text="é")
    app.step()
    assert Watch.seen == [("space", (15, 35), True)], Watch.seen
    assert app.input.text == "é" and app.input.mouse_scroll == (0, -1)
    kinds = [type(e) for e in app.input.events]
    assert kinds == [MouseMoved, MouseButton, MouseScrolled, KeyEvent, TextEvent], kinds
    post(pygame.VIDEORESIZE, w=300, h=120, size=(300, 120))
    app.step()
    assert app.size == (300, 120) and app.gui.width == 300, app.size
    assert app.graphics.read_pixels().shape == (120, 300, 3)
    post(pygame.QUIT)
    app.run()
    assert app.is_quitting
print("fine")
"""


def test_window_events_become_input(display: str, run_child: RunChild) -> None:
    assert run_child(EVENTS, DISPLAY=display).strip() == "fine"


TWO = """
import numpy as np
from gameglue import App, GraphicsError, MonoBehaviour

class Draws(MonoBehaviour):
    color: str = "#ff0000"
    def start(self):
        self.texture = self.app.graphics.texture(np.full((4, 4), 255, np.uint8))
    def on_gui(self):
        self.app.gui.image(self.texture, 0, 0, 20, 20, color=self.color)

window = App("window", size=(200, 150), on_error="raise")
hidden = App("hidden", size=(100, 100), headless=True, on_error="raise")
third = App("third", size=(50, 50), headless=True, on_error="raise")
assert not window.headless and hidden.headless
try:
    App("fourth", headless=False)
except GraphicsError as error:
    assert "headless=True" in str(error)
else:
    raise AssertionError("a second window was opened")
apps = {window: "#ff0000", hidden: "#00ff00", third: "#0000ff"}
for app, color in apps.items():
    app.scene.create("draws").add_component(Draws, color=color)
for _ in range(3):
    for app in apps:
        app.step()
for app, color in apps.items():
    expected = [int(color[i:i + 2], 16) for i in (1, 3, 5)]
    pixels = app.graphics.read_pixels()
    assert pixels[10, 10].tolist() == expected, (color, pixels[10, 10])
    assert pixels[30, 30].tolist() == [18, 21, 28]
third.dispose()
hidden.step()
window.step()
assert hidden.graphics.read_pixels()[10, 10].tolist() == [0, 255, 0]
hidden.dispose()
window.step()
assert window.graphics.read_pixels()[10, 10].tolist() == [255, 0, 0]
window.dispose()
again = App("again", size=(60, 60), headless=False)
again.step()
again.dispose()
print("fine")
"""


def test_a_window_and_two_hidden_apps_in_one_process(display: str, run_child: RunChild) -> None:
    assert run_child(TWO, DISPLAY=display).strip() == "fine"


def test_a_window_through_egl_as_on_wayland(display: str, run_child: RunChild) -> None:
    code = TWO.replace("import numpy", "import ctypes, os, numpy", 1).replace(
        'hidden = App("hidden"',
        """egl = ctypes.CDLL("libEGL.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
assert egl.eglGetCurrentContext(), "SDL did not use EGL, so this would test nothing"
hidden = App("hidden\"""",
        1,
    )
    assert run_child(code, DISPLAY=display, SDL_VIDEO_X11_FORCE_EGL="1").strip() == "fine"


def test_the_window_works_where_only_opengl_3_3_is_offered(
    display: str, run_child: RunChild, held_to_3_3: dict[str, str]
) -> None:
    code = """
from gameglue import App, SpriteRenderer
with App("old", size=(200, 150), headless=False, on_error="raise") as app:
    assert app.ctx.version_code == 330, app.ctx.version_code
    app.scene.create("sprite", SpriteRenderer)
    app.run(frames=2)
    assert app.graphics.read_pixels()[75, 100].tolist() == [255, 255, 255]
"""
    run_child(code, DISPLAY=display, **held_to_3_3)
