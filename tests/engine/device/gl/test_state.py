"""The game's OpenGL state and the device's do not reach each other, whatever either sets."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import moderngl
import numpy as np
import numpy.typing as npt
import pytest

from engine.device.gl.device import GLDevice
from engine.device.gl.functions import GL, GLFunctions

pytestmark = pytest.mark.gl

Pixels = npt.NDArray[np.uint8]
State = Callable[[moderngl.Context, GLFunctions], None]

PROGRAM_POINT_SIZE = 0x8642
PRIMITIVE_RESTART_INDEX = 0x8F9E
STENCIL_ALWAYS = 0x0207


def blend(ctx: moderngl.Context, gl: GLFunctions) -> None:
    gl.glEnable(GL.BLEND)
    gl.glBlendFunc(0, 0)


def scissor(ctx: moderngl.Context, gl: GLFunctions) -> None:
    gl.glEnable(GL.SCISSOR_TEST)
    gl.glScissor(3, 3, 2, 2)


def colour_mask(ctx: moderngl.Context, gl: GLFunctions) -> None:
    gl.glColorMask(0, 1, 0, 1)


def rasterizer_discard(ctx: moderngl.Context, gl: GLFunctions) -> None:
    gl.glEnable(GL.RASTERIZER_DISCARD)


def srgb(ctx: moderngl.Context, gl: GLFunctions) -> None:
    gl.glEnable(GL.FRAMEBUFFER_SRGB)


def stencil_and_depth(ctx: moderngl.Context, gl: GLFunctions) -> None:
    gl.glEnable(GL.STENCIL_TEST)
    gl.glStencilMask(0)
    gl.glEnable(GL.DEPTH_TEST)
    gl.glDepthFunc(0x0200)


def culling_and_logic(ctx: moderngl.Context, gl: GLFunctions) -> None:
    gl.glEnable(GL.CULL_FACE)
    gl.glCullFace(0x0408)
    gl.glEnable(GL.COLOR_LOGIC_OP)


def primitive_restart(ctx: moderngl.Context, gl: GLFunctions) -> None:
    gl.glEnable(GL.PRIMITIVE_RESTART)


def pixel_store(ctx: moderngl.Context, gl: GLFunctions) -> None:
    gl.glPixelStorei(GL.PACK_ROW_LENGTH, 37)
    gl.glPixelStorei(GL.UNPACK_ROW_LENGTH, 41)
    gl.glPixelStorei(GL.UNPACK_SKIP_PIXELS, 3)
    gl.glPixelStorei(GL.UNPACK_SWAP_BYTES, 1)


def small_viewport(ctx: moderngl.Context, gl: GLFunctions) -> None:
    gl.glViewport(1, 1, 2, 2)


HOSTILE: list[State] = [
    blend,
    scissor,
    colour_mask,
    rasterizer_discard,
    srgb,
    stencil_and_depth,
    culling_and_logic,
    primitive_restart,
    pixel_store,
    small_viewport,
]


@contextmanager
def state_of(game: moderngl.Context, gl: GLFunctions, state: State | None) -> Iterator[None]:
    """A state set in the game's context, and the defaults again afterwards."""
    try:
        if state is not None:
            state(game, gl)
        yield
    finally:
        for switch in (
            *(GL.BLEND, GL.SCISSOR_TEST, GL.RASTERIZER_DISCARD, GL.FRAMEBUFFER_SRGB, GL.STENCIL_TEST),
            *(GL.DEPTH_TEST, GL.CULL_FACE, GL.COLOR_LOGIC_OP),
        ):
            gl.glDisable(switch)
        gl.glColorMask(1, 1, 1, 1)
        gl.glStencilMask(0xFFFFFFFF)
        gl.glDepthFunc(0x0203)
        gl.glCullFace(0x0405)
        for name in (GL.PACK_ROW_LENGTH, GL.UNPACK_ROW_LENGTH, GL.UNPACK_SKIP_PIXELS, GL.UNPACK_SWAP_BYTES):
            gl.glPixelStorei(name, 0)


class Scene:
    """Two triangles over a 16x16 target, and what may happen between them."""

    def __init__(self, ctx: moderngl.Context, gl: GLFunctions) -> None:
        self.ctx = ctx
        self.gl = gl
        self.program = ctx.program(
            vertex_shader="""#version 330
            in vec2 position; uniform vec2 offset; out vec2 where;
            void main() { where = position; gl_Position = vec4(position + offset, 0.0, 1.0); }""",
            fragment_shader="""#version 330
            uniform sampler2D image; in vec2 where; out vec4 color;
            void main() { color = vec4(texture(image, where).rgb * 0.5 + 0.25, 0.75); }""",
        )
        points = np.array([-0.9, -0.8, 0.9, -0.7, 0.1, 0.9], np.float32)
        self.points = ctx.buffer(points.tobytes())
        self.triangle = ctx.vertex_array(self.program, [(self.points, "2f", "position")])
        self.image = ctx.texture((2, 2), 3, bytes(range(0, 240, 20)))
        self.target = ctx.renderbuffer((16, 16), 4)
        self.framebuffer = ctx.framebuffer([self.target])

    def draw(self, state: State | None = None, between: Callable[[], None] = lambda: None) -> Pixels:
        """A frame drawn in a state, with something happening in its middle: (16, 16, 4)."""
        self.framebuffer.use()
        self.framebuffer.clear(0.1, 0.2, 0.3, 1.0)
        self.image.use(0)
        self.program["offset"] = (0.0, 0.0)
        # After moderngl has set what it sets for a framebuffer.
        with state_of(self.ctx, self.gl, state):
            self.triangle.render()
            self.program["offset"] = (-0.3, 0.2)
            between()
            # Nothing is bound again: what comes now depends on what `between` left.
            self.gl.glDrawArrays(GL.TRIANGLES, 0, 3)
            self.program["offset"] = (0.3, 0.1)
            self.triangle.render()
        pixels = np.frombuffer(self.framebuffer.read(components=4), np.uint8)
        return pixels.reshape(16, 16, 4)

    def release(self) -> None:
        for part in (self.framebuffer, self.target, self.image, self.triangle, self.points, self.program):
            part.release()


@pytest.fixture
def scene(game: moderngl.Context, game_gl: GLFunctions) -> Iterator[Scene]:
    scene = Scene(game, game_gl)
    yield scene
    scene.release()


def upset_everything(device: GLDevice) -> None:
    """Work with a readback and uploads, in the worst manners that a backend could have."""
    with device.current(after_game=True, before_game=True):
        for state in HOSTILE:
            state(device.ctx, device.gl)
        texture = device.ctx.texture((4, 4), 4, dtype="f4")
        framebuffer = device.ctx.framebuffer([texture])
        framebuffer.use()
        program = device.ctx.program(
            vertex_shader="""#version 330
            void main() { gl_Position = vec4(gl_VertexID % 2 * 4 - 1, gl_VertexID / 2 * 4 - 1, 0, 1); }""",
            fragment_shader="#version 330\nout vec4 color; void main() { color = vec4(5.0); }",
        )
        array = device.ctx.vertex_array(program, [])
        array.render(vertices=3)
        device.staging.write_texture(texture.glo, (4, 4), GL.RGBA, GL.FLOAT, np.arange(64, dtype=np.float32))
        for target in (GL.ARRAY_BUFFER, GL.PIXEL_PACK_BUFFER, GL.PIXEL_UNPACK_BUFFER, GL.UNIFORM_BUFFER):
            device.gl.glBindBuffer(target, 0)
        device.gl.glActiveTexture(GL.TEXTURE0)
        device.gl.glBindTexture(GL.TEXTURE_2D, texture.glo)
        device.gl.glUseProgram(program.glo)
        device.gl.glBindVertexArray(array.glo)
        # moderngl binds the framebuffer that was in use once more when it makes another, deleted or not.
        device.ctx.screen.use()
        for part in (array, program, framebuffer, texture):
            part.release()
        with state_of(device.ctx, device.gl, None):
            pass


@pytest.mark.parametrize("state", [None, *HOSTILE], ids=lambda state: state.__name__ if state else "plain")
def test_a_frame_with_inference_in_its_middle_is_pixel_identical(
    scene: Scene, gl_device: GLDevice, state: State | None
) -> None:
    expected = scene.draw(state)
    got = scene.draw(state, lambda: upset_everything(gl_device))
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("state", [blend, scissor, colour_mask, rasterizer_discard, small_viewport])
def test_the_scene_tells_states_apart(scene: Scene, state: State) -> None:
    """The comparison above would pass on a scene that no state changes."""
    assert not np.array_equal(scene.draw(state), scene.draw())


def test_the_scene_notices_a_change_in_its_middle(scene: Scene, game_gl: GLFunctions) -> None:
    for forget in (
        lambda: game_gl.glUseProgram(0),
        lambda: game_gl.glColorMask(0, 0, 0, 0),
        lambda: game_gl.glBindTexture(GL.TEXTURE_2D, 0),
    ):
        changed = scene.draw(None, forget)
        # A draw without a program is an error, which is not what is tested.
        game_gl.glGetError()
        assert not np.array_equal(changed, scene.draw())


@pytest.mark.parametrize("state", [None, *HOSTILE], ids=lambda state: state.__name__ if state else "plain")
def test_the_device_is_right_under_any_state_of_the_game(
    game: moderngl.Context, game_gl: GLFunctions, gl_device: GLDevice, state: State | None
) -> None:
    values = np.random.default_rng(5).random((4, 5, 4), np.float32)
    with state_of(game, game_gl, state):
        buffer = game.buffer(reserve=7)
        for target in (GL.PIXEL_PACK_BUFFER, GL.PIXEL_UNPACK_BUFFER):
            game_gl.glBindBuffer(target, buffer.glo)
        with gl_device.current():
            texture = gl_device.ctx.texture((5, 4), 4, dtype="f4")
            gl_device.staging.write_texture(texture.glo, (5, 4), GL.RGBA, GL.FLOAT, values)
            readback = gl_device.staging.read_texture(
                texture.glo, (5, 4), GL.RGBA, GL.FLOAT, np.float32, values.shape
            )
        readback.wait()
        for target in (GL.PIXEL_PACK_BUFFER, GL.PIXEL_UNPACK_BUFFER):
            game_gl.glBindBuffer(target, 0)
        buffer.release()
    assert np.array_equal(readback.array(), values)
    with gl_device.current():
        texture.release()


def test_an_active_query_counts_only_the_drawing_of_the_game(scene: Scene, gl_device: GLDevice) -> None:
    def samples(between: Callable[[], None]) -> int:
        query = scene.ctx.query(samples=True)
        with query:
            scene.draw(None, between)
        return int(query.samples)

    assert samples(lambda: upset_everything(gl_device)) == samples(lambda: None) > 0


def test_active_transform_feedback_records_only_the_game(
    scene: Scene, game_gl: GLFunctions, gl_device: GLDevice
) -> None:
    game = scene.ctx
    # Without a window there is nothing to draw to by default, and no drawing without something.
    scene.framebuffer.use()
    program = game.program(
        vertex_shader="""#version 330
        in float value; out float doubled;
        void main() { doubled = 2.0 * value; gl_Position = vec4(0.0); }""",
        varyings=("doubled",),
    )
    source = game.buffer(np.array([1, 2, 3], np.float32).tobytes())
    target = game.buffer(reserve=24)
    array = game.vertex_array(program, [(source, "1f", "value")])
    game_gl.glUseProgram(program.glo)
    game_gl.glBindVertexArray(array.glo)
    game_gl.glBindBufferBase(0x8C8E, 0, target.glo)
    game_gl.glEnable(GL.RASTERIZER_DISCARD)
    game_gl.glBeginTransformFeedback(0)
    game_gl.glDrawArrays(0, 0, 3)
    upset_everything(gl_device)
    game_gl.glDrawArrays(0, 0, 3)
    game_gl.glEndTransformFeedback()
    game_gl.glDisable(GL.RASTERIZER_DISCARD)
    game_gl.glBindBufferBase(0x8C8E, 0, 0)
    assert np.array_equal(np.frombuffer(target.read(), np.float32), [2, 4, 6, 2, 4, 6])
    for part in (array, source, target, program):
        part.release()


def test_the_bindings_of_the_game_are_what_they_were(
    game: moderngl.Context, game_gl: GLFunctions, gl_device: GLDevice
) -> None:
    names = {
        "ARRAY_BUFFER_BINDING": 0x8894,
        "PIXEL_PACK_BUFFER_BINDING": 0x88ED,
        "PIXEL_UNPACK_BUFFER_BINDING": 0x88EF,
        "COPY_READ_BUFFER_BINDING": 0x8F36,
        "COPY_WRITE_BUFFER_BINDING": 0x8F37,
        "DRAW_FRAMEBUFFER_BINDING": 0x8CA6,
        "READ_FRAMEBUFFER_BINDING": 0x8CAA,
        "CURRENT_PROGRAM": 0x8B8D,
        "VERTEX_ARRAY_BINDING": 0x85B5,
        "ACTIVE_TEXTURE": 0x84E0,
        "TEXTURE_BINDING_2D": 0x8069,
    }

    def bindings() -> dict[str, int]:
        value = ctypes.c_int()
        answer = {}
        for name, number in names.items():
            game_gl.glGetIntegerv(number, ctypes.byref(value))
            answer[name] = value.value
        return answer

    buffer = game.buffer(reserve=64)
    texture = game.texture((2, 2), 4)
    texture.use(3)
    for target in (GL.COPY_READ_BUFFER, GL.COPY_WRITE_BUFFER, GL.PIXEL_PACK_BUFFER):
        game_gl.glBindBuffer(target, buffer.glo)
    before = bindings()
    assert before["COPY_READ_BUFFER_BINDING"] == buffer.glo
    upset_everything(gl_device)
    assert bindings() == before
    for target in (GL.COPY_READ_BUFFER, GL.COPY_WRITE_BUFFER, GL.PIXEL_PACK_BUFFER):
        game_gl.glBindBuffer(target, 0)
    buffer.release()
    texture.release()
