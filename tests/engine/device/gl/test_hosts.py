"""A worker leaves the OpenGL state as it found it, whoever made the context: pygame, glfw, pyglet (arcade and
moderngl-window), moderngl itself. All state that can be asked for is read before and after each step.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.gl, pytest.mark.window]

DIGITS = Path(__file__).parents[4] / "assets" / "digits" / "digits.onnx"
RunChild = Callable[..., str]

PYGAME = """
import pygame
pygame.display.init()
for name, value in (("MAJOR_VERSION", 3), ("MINOR_VERSION", 3), ("PROFILE_MASK", 1)):
    pygame.display.gl_set_attribute(getattr(pygame, f"GL_CONTEXT_{name}"), value)
pygame.display.set_mode((64, 48), pygame.OPENGL | pygame.DOUBLEBUF)
ctx = moderngl.create_context()
"""

GLFW = """
import glfw
assert glfw.init()
for hint, value in ((glfw.CONTEXT_VERSION_MAJOR, 3), (glfw.CONTEXT_VERSION_MINOR, 3),
                    (glfw.OPENGL_PROFILE, glfw.OPENGL_CORE_PROFILE)):
    glfw.window_hint(hint, value)
window = glfw.create_window(64, 48, "glfw", None, None)
glfw.make_context_current(window)
ctx = moderngl.create_context()
"""

MODERNGL_WINDOW = """
import moderngl_window
moderngl_window.settings.WINDOW["class"] = "moderngl_window.context.KIND.Window"
moderngl_window.settings.WINDOW.update(size=(64, 48), vsync=False)
window = moderngl_window.create_window_from_settings()
ctx = window.ctx
"""

ARCADE = """
import arcade
window = arcade.Window(64, 48, "arcade", gl_version=(3, 3))
arcade.draw_circle_filled(10, 10, 5, arcade.color.RED)
ctx = None
"""

STANDALONE = """
ctx = moderngl.create_standalone_context(backend="egl")
"""

HOSTS = {
    "pygame": ("pygame", PYGAME),
    "glfw": ("glfw", GLFW),
    "moderngl_window-pyglet": ("moderngl_window", MODERNGL_WINDOW.replace("KIND", "pyglet")),
    "moderngl_window-pygame2": ("moderngl_window", MODERNGL_WINDOW.replace("KIND", "pygame2")),
    "arcade": ("arcade", ARCADE),
    "standalone": ("moderngl", STANDALONE),
}

WORK = """
import numpy as np
from engine import BackendType, GLDevice, ModelLoader, Worker
from engine.device.gl.functions import GLFunctions
from engine.device.gl.context_switch import current_platform
from tests.engine.gl_state import Disturbed, differences, snapshot

platform = current_platform()
gl = GLFunctions(platform)
handle = platform.current_context()
assert gl.glGetError() in (0, 0x0502), "the host left an error"  # moderngl asks default framebuffers too much
disturbed = Disturbed(gl)
before = snapshot(gl)
model = ModelLoader.load(DIGITS)
image = np.random.default_rng(0).random((1, 1, 28, 28), np.float32)

def unchanged(after):
    assert current_platform().current_context() == handle, f"{after}: another context is current"
    found = differences(before, snapshot(gl))
    assert not found, f"{after} changed {found}"

with Worker(model) as worker:
    worker.schedule(image)
    expected = worker.peek_output().download_to_array()

for kind in (BackendType.GPU_PIXEL, BackendType.GPU_COMPUTE):
    for way in ("picked up", "given"):
        device = "gl" if ctx is None or way == "picked up" else GLDevice(ctx)
        unchanged("making a device")
        worker = Worker(model, kind, device=device)
        assert worker.device.shares_with_game
        unchanged("loading")
        for _ in range(3):
            worker.schedule(image)
            unchanged("scheduling")
            scores = worker.peek_output()
            scores.readback_request()
            unchanged("asking for a readback")
            while not scores.is_readback_request_done():
                unchanged("polling")
            answer = scores.download_to_array()
            unchanged("downloading")
            assert np.abs(answer - expected).max() < 1e-4
        blocking = worker.peek_output().download_to_array()
        unchanged("a blocking download")
        worker.dispose()
        unchanged("disposing")
        if device != "gl":
            device.dispose()
            unchanged("disposing the device")
        print(kind.value, way)
print("unchanged", len(before))
"""


@pytest.mark.parametrize(
    "host", [h if h in ("pygame", "standalone") else pytest.param(h, marks=pytest.mark.long) for h in HOSTS]
)
def test_a_worker_leaves_all_state_as_it_was(host: str, run_child: RunChild, display: str) -> None:
    package, make = HOSTS[host]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f'{package} is not installed: pip install "gameglue[loops]"')
    code = f"DIGITS = {str(DIGITS)!r}\nimport moderngl\n{make}\n{WORK}"
    said = run_child(code, DISPLAY=display, SDL_VIDEODRIVER="x11")
    assert said.count("picked up") == said.count("given") == 2
    assert int(said.split()[-1]) > 150


@pytest.mark.parametrize("host", ["pygame", pytest.param("arcade", marks=pytest.mark.long)])
def test_a_worker_leaves_all_state_where_opengl_ends_at_3_3(
    host: str, run_child: RunChild, display: str, held_to_3_3: dict[str, str]
) -> None:
    package, make = HOSTS[host]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f'{package} is not installed: pip install "gameglue[loops]"')
    work = WORK.replace("(BackendType.GPU_PIXEL, BackendType.GPU_COMPUTE)", "(BackendType.GPU_PIXEL,)")
    code = f"DIGITS = {str(DIGITS)!r}\nimport moderngl\n{make}\n{work}"
    assert "unchanged" in run_child(code, DISPLAY=display, SDL_VIDEODRIVER="x11", **held_to_3_3)


SEEN = """
import numpy as np
import moderngl
from tests.engine.gl_state import Disturbed, differences, snapshot
from engine.device.gl.functions import GLFunctions
from engine.device.gl.context_switch import current_platform
ctx = moderngl.create_standalone_context(backend="egl")
gl = GLFunctions(current_platform())
plain = snapshot(gl)
Disturbed(gl)
print(len(differences(plain, snapshot(gl))))
"""


def test_the_snapshot_sees_what_is_set(run_child: RunChild) -> None:
    """About forty settings and bindings are made; a snapshot that saw fewer would prove little."""
    assert int(run_child(SEEN)) > 45
