"""Makes every blocking call of the contract once, under both contexts, and prints what was counted.

    python -m tests.contract.provoked

What must be counted is named by the key of each call; a line of JSON for each says what was.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from engine import JobSystem
from engine.device.gl.device import GLDevice
from engine.device.gl.functions import GL, GLFunctions
from engine.device.jobs.builtin_commands import builtin_functions
from engine.device.jobs.command_list import CommandList
from tests.contract.place import Place

Call = Callable[[], object]

UNIFORM_DRAW = """#version 330
void main() { gl_Position = vec4(0); }"""
COUNT_UP = """#version 430
layout(local_size_x = 1) in;
layout(std430, binding = 0) buffer Data { float data[]; };
void main() { data[0] += 1.0; }"""


class Provoker:
    """Calls that block, by the name under which they must be counted, for one OpenGL context."""

    def __init__(self, gl: GLFunctions, ctx: Any) -> None:
        self.gl = gl
        self.ctx = ctx
        self.buffer = ctx.buffer(reserve=4096)
        self.texture = ctx.texture((4, 4), 4)
        self.framebuffer = ctx.framebuffer([self.texture])
        self.shader = ctx.compute_shader(COUNT_UP)
        self.number = ctypes.c_int()

    def calls(self) -> dict[str, Call]:
        """Each is to be counted once, under its name, and as nothing else."""
        gl, out = self.gl, ctypes.byref(self.number)
        fence = gl.glFenceSync(GL.SYNC_GPU_COMMANDS_COMPLETE, 0)
        query = ctypes.c_uint()
        gl.glGenQueries(1, ctypes.byref(query))
        shader = gl.glCreateShader(0x8B31)  # a vertex shader
        text = ctypes.c_char_p(UNIFORM_DRAW.encode())
        gl.glShaderSource(shader, 1, ctypes.byref(text), None)
        program = gl.glCreateProgram()
        gl.glAttachShader(program, shader)
        room = (ctypes.c_ubyte * 16)()

        def ask_query() -> None:
            gl.glBeginQuery(GL.SAMPLES_PASSED, query.value)
            gl.glEndQuery(GL.SAMPLES_PASSED)
            gl.glGetQueryObjectuiv(query.value, GL.QUERY_RESULT, ctypes.byref(ctypes.c_uint()))

        def ask_compiled() -> None:
            gl.glCompileShader(shader)
            gl.glGetShaderiv(shader, 0x8B81, out)

        def ask_linked() -> None:
            gl.glLinkProgram(program)
            gl.glGetProgramiv(program, GL.LINK_STATUS, out)

        def used(call: Call) -> Call:
            def both() -> None:
                self.buffer.bind_to_storage_buffer(0)
                self.shader.run()
                gl.glBindBuffer(GL.COPY_READ_BUFFER, self.buffer.glo)
                call()

            return both

        def unmapped(call: Call) -> Call:
            def both() -> None:
                call()
                gl.glUnmapBuffer(GL.COPY_READ_BUFFER)

            return used(both)

        sixteen = (GL.COPY_READ_BUFFER, 0, 16)
        return {
            "glFinish": gl.glFinish,
            "glClientWaitSync": lambda: gl.glClientWaitSync(fence, 0, 1000),
            "glReadPixels": lambda: self.framebuffer.read(),
            "glGetTexImage": lambda: self.texture.read(),
            "glGetBufferSubData": used(lambda: gl.glGetBufferSubData(*sixteen, room)),
            "glMapBufferRange": unmapped(lambda: gl.glMapBufferRange(*sixteen, GL.MAP_READ_BIT)),
            "glBufferSubData": used(lambda: gl.glBufferSubData(*sixteen, room)),
            "glGetQueryObjectuiv": ask_query,
            "glGetShaderiv": ask_compiled,
            "glGetProgramiv": ask_linked,
            "glGetError": gl.glGetError,
            "glGetIntegerv": lambda: gl.glGetIntegerv(GL.MAX_TEXTURE_SIZE, out),
            "glGetString": lambda: gl.glGetString(GL.RENDERER),
        }

    def wait(self) -> None:
        """Have everything done, so that the next call finds nothing in use."""
        self.gl.glFinish()

    def release(self) -> None:
        """Delete what was made."""
        self.ctx.screen.use()
        for part in (self.framebuffer, self.texture, self.shader, self.buffer):
            part.release()


def cl_calls(place: Place) -> dict[str, Call]:
    """The same for OpenCL: by the name under which they must be counted."""
    device = place.cl_device
    assert device is not None
    cl, queue, context = device.cl, device.queue, device.context
    memory = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4096)
    host = np.zeros(1024, np.float32)

    def drop() -> None:
        late = cl.UserEvent(context)
        event = cl.enqueue_copy(queue, memory, host, is_blocking=False, wait_for=[late])
        queue.flush()
        dropped = event._dropped  # reports as if the event went now; dropping the event itself waits
        del event._dropped, dropped
        late.set_status(cl.command_execution_status.COMPLETE)
        while event.command_execution_status > 0:
            pass

    return {
        "clFinish": lambda: queue.finish(),
        "clWaitForEvents": lambda: cl.enqueue_marker(queue).wait(),
        "clWaitForEvents (several)": lambda: cl.wait_for_events([cl.enqueue_marker(queue)]),
        "enqueue_copy": lambda: cl.enqueue_copy(queue, host, memory),
        "enqueue_map_buffer": lambda: cl.enqueue_map_buffer(
            queue, memory, cl.map_flags.READ, 0, (16,), np.float32
        ),
        "dropped event": drop,
    }


def job_calls() -> Iterator[tuple[str, Call]]:
    """Waiting for a job that is not done."""
    target, source = np.zeros(1 << 22, np.float32), np.ones(1 << 22, np.float32)
    words = np.array([target.ctypes.data, source.ctypes.data], np.int64)
    row = (builtin_functions()["copy"], words.ctypes.data, target.nbytes, target.nbytes)
    with JobSystem(1) as jobs:
        commands = CommandList([row] * 20, (words, target, source))
        yield "JobHandle.complete", lambda: jobs.submit(commands).complete()


@contextmanager
def entered(place: Place, device: GLDevice | None) -> Iterator[None]:
    """The context to call in is current."""
    if device is None:
        with place.game:
            yield
    else:
        with device.current():
            yield


def report(place: Place, name: str, call: Call) -> None:
    """Make a call and print what was counted of it."""
    with place.counting() as counted:
        call()
    print(json.dumps([name, counted]), flush=True)


def main() -> None:
    """Provoke everything."""
    place = Place("opencl")
    for owner, device in (("game", None), ("engine", place.gl_device)):
        with entered(place, device):
            ctx = place.game if device is None else device.ctx
            provoker = Provoker(GLFunctions(place.loaders[0 if device is None else 1]), ctx)
            for name, call in provoker.calls().items():
                provoker.wait()
                report(place, f"{owner} {name}", call)
            provoker.release()
    for name, call in cl_calls(place).items():
        report(place, name, call)
    for name, call in job_calls():
        report(place, name, call)
    place.release()


if __name__ == "__main__":
    main()
