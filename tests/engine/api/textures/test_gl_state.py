"""Conversions leave a game's OpenGL state as they found it, whatever it is, and are right under any."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytestmark = pytest.mark.gl

RunChild = Callable[..., str]

STATE = """
import moderngl, numpy as np
from engine import BackendType, GLDevice, TextureConverter, TextureTransform
from engine.device.gl.functions import GLFunctions
from engine.device.gl.context_switch import current_platform
from tests.engine.gl_state import Disturbed, differences, snapshot

ctx = moderngl.create_standalone_context(backend="egl")
image = np.random.default_rng(0).integers(0, 256, (5, 7, 4), np.uint8)
source, target = ctx.texture((7, 5), 4, image.tobytes()), ctx.texture((7, 5), 4)
fresh = ctx.texture((7, 5), 4)
device = GLDevice.for_context(ctx)
gl = GLFunctions(current_platform())
assert ctx.error == "GL_NO_ERROR"
disturbed = Disturbed(gl)
before = snapshot(gl)

def unchanged(after):
    found = differences(before, snapshot(gl))
    assert not found, f"{after} changed {found}"

how = TextureTransform(channels=4)
for kind in (BackendType.GPU_PIXEL, BackendType.GPU_COMPUTE):
    tensor = TextureConverter.to_tensor(source, how, on=kind)
    unchanged("to_tensor")
    TextureConverter.to_tensor(source, how, tensor)
    TextureConverter.to_tensor([source, source], how, on=kind)
    unchanged("a batch")
    TextureConverter.render_to_texture(tensor, target, how)
    unchanged("render_to_texture")
    staged = TextureConverter.to_tensor(source, how, on=BackendType.CPU)
    while type(staged.available_data).__name__ != "CPUTensorData":
        unchanged("waiting for a copy")
    TextureConverter.render_to_texture(staged, fresh, how)
    while TextureConverter.poll():
        unchanged("polling")
    unchanged("a staged picture")
    from engine.device.gl.functions import GL
    for texture in (target, fresh):
        kind = (GL.RGBA, GL.UNSIGNED_BYTE, np.uint8)
        read = device.staging.read_texture(texture.glo, (7, 5), *kind, image.shape)
        read.wait()
        assert (read.array() == image).all()
assert gl.glGetError() == 0
print("unchanged", len(before))
"""

SCREEN = """
import numpy as np, pygame, moderngl
from engine import Tensor, TextureConverter, TextureTransform, BackendType
from engine.device.gl.functions import GLFunctions
from engine.device.gl.context_switch import current_platform
from tests.engine.gl_state import differences, snapshot

pygame.display.init()
CORE = pygame.GL_CONTEXT_PROFILE_CORE
for name, value in (("MAJOR_VERSION", 3), ("MINOR_VERSION", 3), ("PROFILE_MASK", CORE)):
    pygame.display.gl_set_attribute(getattr(pygame, "GL_CONTEXT_" + name), value)
pygame.display.set_mode((64, 48), pygame.OPENGL | pygame.DOUBLEBUF)
ctx = moderngl.create_context()
gl = GLFunctions(current_platform())
image = np.random.default_rng(0).integers(0, 256, (48, 64, 4), np.uint8)
source, target = ctx.texture((64, 48), 4, image.tobytes()), ctx.framebuffer([ctx.texture((8, 8), 4)])
how = TextureTransform(channels=4)
for kind in (BackendType.GPU_PIXEL, BackendType.CPU):
    picture = source if kind is BackendType.GPU_PIXEL else image[::-1]
    tensor = TextureConverter.to_tensor(picture, how, on=kind)
    for bound in (ctx.screen, target):
        TextureConverter.render_to_screen(tensor, how)
        ctx.screen.use()
        ctx.clear()
        bound.use()
        ctx.enable(moderngl.BLEND | moderngl.CULL_FACE)
        before = snapshot(gl)
        for _ in range(2):
            TextureConverter.render_to_screen(tensor, how)
        found = differences(before, snapshot(gl))
        assert not found, found
        shown = np.frombuffer(ctx.screen.read(components=3), np.uint8).reshape(48, 64, 3)
        gl.glGetError()  # moderngl asks the window for a buffer that only framebuffer objects have
        assert (shown == image[..., :3]).all()
        print("shown")
"""


def test_all_state_stays(run_child: RunChild) -> None:
    said = run_child(STATE)
    assert int(said.split()[-1]) > 150


@pytest.mark.long
def test_all_state_stays_where_opengl_ends_at_3_3(run_child: RunChild, held_to_3_3: dict[str, str]) -> None:
    code = STATE.replace("(BackendType.GPU_PIXEL, BackendType.GPU_COMPUTE)", "(BackendType.GPU_PIXEL,)")
    code = code.replace(
        'create_standalone_context(backend="egl")', 'create_standalone_context(backend="egl", require=330)'
    )
    assert int(run_child(code, **held_to_3_3).split()[-1]) > 100


@pytest.mark.window
def test_a_tensor_on_the_screen(run_child: RunChild, display: str) -> None:
    assert run_child(SCREEN, DISPLAY=display, SDL_VIDEODRIVER="x11").count("shown") == 4
