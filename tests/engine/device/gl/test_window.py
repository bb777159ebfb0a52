"""The device beside a real window: pygame on X11, through GLX and through EGL."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.gl, pytest.mark.window]

WINDOW = """
import numpy as np
import pygame
import moderngl
from engine.device.gl.device import GLDevice
from engine.device.gl.functions import GL
from engine.device.gl.functions import GLFunctions
from engine.base.errors import DeviceError

pygame.display.init()
pygame.display.gl_set_attribute(pygame.GL_CONTEXT_MAJOR_VERSION, 3)
pygame.display.gl_set_attribute(pygame.GL_CONTEXT_MINOR_VERSION, 3)
pygame.display.gl_set_attribute(pygame.GL_CONTEXT_PROFILE_MASK, pygame.GL_CONTEXT_PROFILE_CORE)
pygame.display.set_mode((64, 48), pygame.OPENGL | pygame.DOUBLEBUF)
game = moderngl.create_context()
gl = GLFunctions(game.mglo._context)
device = GLDevice.for_context(game)
"""

DRAWS = (
    WINDOW
    + """
print("platform", device.platform_name)
program = game.program(
    vertex_shader='''#version 330
    in vec2 at; void main() { gl_Position = vec4(at, 0, 1); }''',
    fragment_shader='''#version 330
    out vec4 color; void main() { color = vec4(gl_FragCoord.xy / 64.0, 0.5, 1.0); }''')
points = game.buffer(np.array([-0.9, -0.9, 0.9, -0.9, 0, 0.9], np.float32).tobytes())
triangle = game.vertex_array(program, [(points, "2f", "at")])

def frame(between):
    game.screen.use()
    game.clear(0.2, 0.1, 0.0, 1.0)
    gl.glEnable(GL.BLEND)
    gl.glBlendFunc(1, 1)
    triangle.render()
    between()
    gl.glDrawArrays(GL.TRIANGLES, 0, 3)
    gl.glDisable(GL.BLEND)
    assert game.error == "GL_NO_ERROR"
    pixels = np.frombuffer(game.screen.read(components=3), np.uint8).copy()
    game.error  # moderngl asks the window for a buffer that only framebuffer objects have
    pygame.display.flip()
    return pixels

answers = []
def inference():
    with device.current(after_game=True, before_game=True):
        texture = device.ctx.texture((8, 8), 4, dtype="f4")
        target = device.ctx.framebuffer([texture])
        target.use()
        device.gl.glEnable(GL.RASTERIZER_DISCARD)
        device.gl.glColorMask(0, 0, 0, 0)
        device.ctx.clear(1, 1, 1, 1)
        device.ctx.screen.use()
        device.gl.glDisable(GL.RASTERIZER_DISCARD)
        device.gl.glColorMask(1, 1, 1, 1)
        target.release()
        texture.release()
        answers.append(device.staging.read_buffer(points.glo, 24, np.float32))

expected = frame(lambda: None)
assert expected.max() > 150 and len(np.unique(expected)) > 20, np.unique(expected)
for _ in range(5):
    assert np.array_equal(frame(inference), expected)
for answer in answers:
    while not answer.done():
        pass
    assert np.array_equal(answer.array(), np.frombuffer(points.read(), np.float32))
pygame.display.set_mode((80, 60), pygame.OPENGL | pygame.DOUBLEBUF)
with device.current(after_game=True):
    assert device.ctx.external_buffer(points.glo, 24).read() == points.read()
device.check_errors("drawing beside a window")
assert game.error == "GL_NO_ERROR", game.error
device.dispose()
assert np.array_equal(np.frombuffer(points.read(), np.float32)[:2], np.array([-0.9, -0.9], np.float32))
pygame.quit()
print("drawn")
"""
)

CLOSED = (
    WINDOW
    + """
with device.current():
    buffer = device.ctx.buffer(reserve=16)
    readback = device.staging.read_buffer(buffer.glo, 16, np.float32)
pygame.quit()
for use in (lambda: device.current().__enter__(), readback.wait):
    try:
        use()
    except DeviceError as error:
        print("refused:", error)
del readback, buffer
device.dispose()
print("survived")
"""
)


def test_a_window_through_glx(run_child, display: str) -> None:
    answer = run_child(DRAWS, DISPLAY=display, SDL_VIDEODRIVER="x11")
    assert "platform GLX" in answer
    assert "drawn" in answer


def test_a_shared_context_of_a_window_is_created_on_another_thread(run_child, display: str) -> None:
    """Where Xlib is safe for threads, as SDL makes it; else the device has one from the start."""
    code = (
        WINDOW
        + """
import threading
from engine.device.gl.glx import GLX
make = device.shared_maker()
thread = threading.Thread(target=make)
thread.start()
while thread.is_alive():
    pygame.event.pump()
assert device.shared_maker() is None
shared = device.borrow_shared()
made = []
def compile_there():
    with shared.current():
        made.append(shared.gl.glCreateProgram())
thread = threading.Thread(target=compile_there)
thread.start()
thread.join()
with device.current():
    assert device.gl.glIsProgram(made[0])
    device.gl.glDeleteProgram(made[0])
device.give_back_shared(shared)
device.dispose()
GLX.creates_anywhere = lambda self, of: False
with GLDevice(game) as careful:
    assert careful.shared_maker() is None
    context = careful.borrow_shared()
    assert not careful._spare
    careful.give_back_shared(context)
pygame.quit()
print("platform", device.platform_name)
"""
    )
    assert "platform GLX" in run_child(code, DISPLAY=display, SDL_VIDEODRIVER="x11")


@pytest.mark.parametrize("force_egl", ["0", "1"])
def test_a_window_may_be_closed_while_another_thread_compiles(
    run_child, display: str, force_egl: str
) -> None:
    """Xlib tells before it closes the display: the thread gets an error before the display is gone."""
    code = (
        WINDOW
        + """
import threading
shared = device.borrow_shared()
begun = threading.Event()
TEXT = "#version 330\\nuniform int n; in vec2 a; out float b[30]; void main() { " + "".join(
    f"b[{k}] = a.x; for (int i = 0; i < n; ++i) b[{k}] += sin(b[{k}] + SEED); " for k in range(30)) + "}"

def compile_there():
    count = 0
    try:
        with shared.current():
            while True:
                gl, text = shared.gl, TEXT.replace("SEED", f"{count}.0").encode()
                shader = gl.glCreateShader(GL.VERTEX_SHADER)
                gl.glShaderSource(shader, 1, ctypes.byref(ctypes.c_char_p(text)), None)
                gl.glCompileShader(shader)
                gl.glDeleteShader(shader)
                count += 1
                if count == 2:
                    begun.set()
                if ended.is_set():
                    return
    except DeviceError as error:
        print("ended:", error)

import ctypes
ended = threading.Event()
thread = threading.Thread(target=compile_there)
thread.start()
begun.wait()
pygame.quit()
ended.set()
thread.join()
try:
    shared.hand_over()
    with shared.current():
        pass
except DeviceError as error:
    print("refused:", error)
device.give_back_shared(shared)
device.dispose()
print("survived", device.platform_name)
"""
    )
    answer = run_child(code, DISPLAY=display, SDL_VIDEODRIVER="x11", SDL_VIDEO_X11_FORCE_EGL=force_egl)
    assert f"survived {'EGL' if force_egl == '1' else 'GLX'}" in answer
    if force_egl == "0":
        assert "ended: the window" in answer
    assert "refused: " in answer


def test_a_window_through_egl(run_child, display: str) -> None:
    answer = run_child(DRAWS, DISPLAY=display, SDL_VIDEODRIVER="x11", SDL_VIDEO_X11_FORCE_EGL="1")
    assert "platform EGL" in answer
    assert "drawn" in answer


def test_a_window_of_a_machine_held_to_opengl_3_3(run_child, display: str, held_to_3_3) -> None:
    code = DRAWS.replace('print("drawn")', 'print("drawn with", device.info.version_code)')
    code = code.replace("device.dispose()\n", "", 1)
    assert "drawn with 330" in run_child(code, DISPLAY=display, SDL_VIDEODRIVER="x11", **held_to_3_3)


@pytest.mark.parametrize("force_egl", ["0", "1"])
def test_use_after_the_window_closed_is_an_error_not_a_crash(run_child, display: str, force_egl: str) -> None:
    answer = run_child(CLOSED, DISPLAY=display, SDL_VIDEODRIVER="x11", SDL_VIDEO_X11_FORCE_EGL=force_egl)
    assert answer.count("refused:") == 2
    assert "survived" in answer


def test_a_private_device_beside_a_window(run_child, display: str) -> None:
    """A headless EGL context while the window's GLX context is current: no library replaces another's."""
    code = """
import pygame, moderngl
from engine.device.gl.device import GLDevice
private = GLDevice()
assert not private.shares_with_game
pygame.display.init()
pygame.display.gl_set_attribute(pygame.GL_CONTEXT_PROFILE_MASK, pygame.GL_CONTEXT_PROFILE_CORE)
pygame.display.set_mode((64, 48), pygame.OPENGL | pygame.DOUBLEBUF)
game = moderngl.create_context(require=330)
buffer = game.buffer(b"game")
with private.current(after_game=True, before_game=True):
    own = private.ctx.buffer(b"mine")
    assert own.read() == b"mine"
assert buffer.read() == b"game"
assert game.error == "GL_NO_ERROR"
private.dispose()
pygame.quit()
print("both")
"""
    assert "both" in run_child(code, DISPLAY=display, SDL_VIDEODRIVER="x11")


def test_a_standalone_context_through_glx(run_child, display: str) -> None:
    """moderngl's contexts without a window have configurations that GLX does not choose for windows."""
    code = """
import moderngl
from engine.device.gl.device import GLDevice
game = moderngl.create_context(standalone=True)
buffer = game.buffer(b"12345678")
device = GLDevice.for_context(game)
with device.current(after_game=True):
    assert device.ctx.external_buffer(buffer.glo, 8).read() == b"12345678"
print("platform", device.platform_name)
device.dispose()
"""
    assert "platform GLX" in run_child(code, DISPLAY=display)
