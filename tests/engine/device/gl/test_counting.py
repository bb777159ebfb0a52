"""The counting loader sees the calls that block, and only those."""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import moderngl
import numpy as np
import pytest

from engine.device.gl.counting import CountingLoader
from engine.device.gl.device import GLDevice
from engine.device.gl.functions import GL

pytestmark = pytest.mark.gl


class Counted:
    """A device whose calls are counted, and a buffer and a fence of it."""

    def __init__(self, game: moderngl.Context) -> None:
        self.device = GLDevice(game, loader_wrapper=self._wrap)
        self.gl = self.device.gl
        with self.device.current():
            self.buffer = self.device.ctx.buffer(reserve=256)
            self.texture = self.device.ctx.texture((4, 4), 4)
            self.framebuffer = self.device.ctx.framebuffer([self.texture])

    def _wrap(self, loader: Any) -> CountingLoader:
        self.loader = CountingLoader(loader)
        return self.loader

    def count(self, call: Callable[[], object]) -> Counter[str]:
        with self.device.current(), self.loader.watching() as counts:
            call()
        return counts

    def release(self) -> None:
        with self.device.current():
            self.device.ctx.screen.use()
            for part in (self.framebuffer, self.texture, self.buffer):
                part.release()
        self.device.dispose()


@pytest.fixture
def counted(game: moderngl.Context) -> Iterator[Counted]:
    counted = Counted(game)
    yield counted
    counted.release()


def test_what_always_blocks_is_counted(counted: Counted) -> None:
    gl, ctx = counted.gl, counted.device.ctx
    fence = gl.glFenceSync  # bound outside of what is counted
    number = ctypes.c_int()
    blocking: dict[str, Callable[[], object]] = {
        "glFinish": gl.glFinish,
        "glGetIntegerv": lambda: gl.glGetIntegerv(GL.MAX_TEXTURE_SIZE, ctypes.byref(number)),
        "glGetError": gl.glGetError,
        "glReadPixels": lambda: counted.framebuffer.read(),
        "glGetTexImage": lambda: counted.texture.read(),
        "glGetString": lambda: gl.glGetString(GL.RENDERER),
        "glGetBufferSubData": lambda: _get_buffer_sub_data(counted),
    }
    with counted.device.current():
        handle = fence(GL.SYNC_GPU_COMMANDS_COMPLETE, 0)
    blocking["glClientWaitSync"] = lambda: gl.glClientWaitSync(handle, 0, 1000)
    for name, call in blocking.items():
        assert counted.count(call) == {name: 1}
    assert number.value == counted.device.limits.max_texture_size
    assert ctx.version_code == counted.device.info.version_code


def _get_buffer_sub_data(counted: Counted) -> None:
    counted.gl.glBindBuffer(GL.COPY_READ_BUFFER, counted.buffer.glo)
    room = (ctypes.c_ubyte * 16)()
    counted.gl.glGetBufferSubData(GL.COPY_READ_BUFFER, 0, 16, room)


def test_what_does_not_block_is_not_counted(counted: Counted) -> None:
    gl = counted.gl

    def frame() -> None:
        fence = gl.glFenceSync(GL.SYNC_GPU_COMMANDS_COMPLETE, 0)
        gl.glFlush()
        gl.glClientWaitSync(fence, 0, 0)
        gl.glDeleteSync(fence)
        counted.framebuffer.use()
        counted.framebuffer.clear()
        counted.framebuffer.read_into(counted.buffer)
        counted.buffer.orphan()
        counted.buffer.write(b"1234")
        counted.texture.use(0)

    assert not counted.count(frame)


def test_a_query_may_be_read_when_it_is_available(counted: Counted) -> None:
    gl = counted.gl
    name = ctypes.c_uint()
    value = ctypes.c_int()
    with counted.device.current():
        gl.glGenQueries(1, ctypes.byref(name))
        gl.glBeginQuery(GL.SAMPLES_PASSED, name.value)
        gl.glEndQuery(GL.SAMPLES_PASSED)

    def result(question: int) -> Callable[[], object]:
        return lambda: gl.glGetQueryObjectuiv(name.value, question, ctypes.byref(value))

    assert counted.count(result(GL.QUERY_RESULT)) == {"glGetQueryObjectuiv": 1}
    while not value.value:
        assert not counted.count(result(GL.QUERY_RESULT_AVAILABLE))
    assert not counted.count(result(GL.QUERY_RESULT))
    with counted.device.current():
        gl.glDeleteQueries(1, ctypes.byref(name))


def test_a_link_status_may_be_read_when_linking_is_complete(counted: Counted) -> None:
    gl = counted.gl
    value = ctypes.c_int()
    if not counted.device.info.has_parallel_shader_compile:
        pytest.skip("needs KHR_parallel_shader_compile")
    with counted.device.current():
        program = gl.glCreateProgram()
        gl.glLinkProgram(program)

    def status(question: int) -> Callable[[], object]:
        return lambda: gl.glGetProgramiv(program, question, ctypes.byref(value))

    assert counted.count(status(GL.LINK_STATUS)) == {"glGetProgramiv": 1}
    value.value = 0
    while not value.value:
        assert not counted.count(status(GL.COMPLETION_STATUS))
    assert not counted.count(status(GL.LINK_STATUS))
    with counted.device.current():
        gl.glDeleteProgram(program)


def test_overwriting_or_mapping_a_buffer_in_use_is_counted(counted: Counted) -> None:
    gl, device, buffer = counted.gl, counted.device, counted.buffer
    if not device.info.supports_compute:
        pytest.skip("needs OpenGL 4.3")
    with device.current():
        shader = device.ctx.compute_shader(
            """#version 430
            layout(local_size_x = 1) in;
            layout(std430, binding = 0) buffer Data { float data[]; };
            void main() { data[0] += 1.0; }"""
        )

    def dispatch() -> None:
        buffer.bind_to_storage_buffer(0)
        shader.run()

    def fence_and_wait() -> None:
        fence = gl.glFenceSync(GL.SYNC_GPU_COMMANDS_COMPLETE, 0)
        gl.glFlush()
        while gl.glClientWaitSync(fence, 0, 0) == GL.TIMEOUT_EXPIRED:
            pass
        gl.glDeleteSync(fence)

    assert not counted.count(lambda: buffer.write(b"1234"))
    assert not counted.count(dispatch)
    assert counted.count(lambda: buffer.write(b"1234")) == {"glBufferSubData": 1}
    assert counted.count(lambda: buffer.read()) == {"glMapBufferRange": 1}
    assert not counted.count(fence_and_wait)
    assert not counted.count(lambda: buffer.write(b"1234"))
    assert not counted.count(lambda: buffer.read())
    with device.current():
        shader.release()


CHILD_GAME = """
import moderngl, glcontext, numpy as np
from engine.device.gl.counting import CountingLoader
from engine.device.gl.device import GLDevice

loader = CountingLoader(glcontext.get_backend_by_name("egl")(mode="standalone", glversion=330))
game = moderngl.create_context(context=loader)
device = GLDevice(game)
target = game.renderbuffer((64, 64), 4)
framebuffer = game.framebuffer([target])
program = game.program(
    vertex_shader='''#version 330
    in vec2 at; void main() { gl_Position = vec4(at, 0, 1); }''',
    fragment_shader='''#version 330
    uniform vec4 tint; out vec4 color; void main() { color = tint; }''')
points = game.buffer(np.array([-1, -1, 3, -1, -1, 3], np.float32).tobytes())
triangle = game.vertex_array(program, [(points, "2f", "at")])
values = game.buffer(np.arange(1000, dtype=np.float32).tobytes())
with loader.watching() as counts:
    for frame in range(20):
        framebuffer.use()
        framebuffer.clear(0, 0, 0, 1)
        program["tint"] = (frame / 20, 0, 0, 1)
        triangle.render()
        with device.current(after_game=True, before_game=True):
            readback = device.staging.read_buffer(values.glo, 4000, np.float32)
        triangle.render()
        while not readback.done():
            pass
        assert readback.array()[999] == 999
assert not counts, counts
with loader.watching() as counts:
    framebuffer.read()
    values.read()
assert counts["glReadPixels"] == 1 and counts.total() >= 1, counts
device.dispose()
print("counted")
"""


def test_a_game_under_the_counting_loader_makes_no_blocking_call(run_child) -> None:
    assert "counted" in run_child(CHILD_GAME)


def test_a_name_that_is_unknown_stays_unknown() -> None:
    class Empty:
        def load_opengl_function(self, name: str) -> int:
            return 0

    assert CountingLoader(Empty()).load_opengl_function("glFinish") == 0


def test_results_and_arguments_pass_unchanged(counted: Counted) -> None:
    with counted.device.current():
        data = np.arange(64, dtype=np.float32)
        buffer = counted.device.ctx.buffer(data.tobytes())
        assert np.array_equal(np.frombuffer(buffer.read(size=100, offset=28), np.float32), data[7:32])
        assert "OpenGL" in counted.device.info.version or counted.device.info.version[0].isdigit()
        buffer.release()
