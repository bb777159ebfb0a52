"""Trial compilation of a game's shaders in the background, before they are compiled for use."""

from __future__ import annotations

import ctypes

from engine.base.sliced_thread import SlicedThread
from engine.device.gl.device import GLDevice
from engine.device.gl.functions import GL
from engine.device.gl.shared_context import SharedContext
from engine.runtime.loading.handle import Loading, Steps

_LOG_BYTES = 4096
_VERTEX, _FRAGMENT = 0x8B31, 0x8B30


def try_program(device: GLDevice, vertex: str, fragment: str) -> Loading[str]:
    """Compile and link a program in a shared context on another thread, and delete it.

    Drivers cache what they compile, so the same program compiles faster afterwards.

    Returns:
        A handle whose result is the driver's log, "" if the program is valid.
    """
    loading: Loading[str] = Loading(name="a shader")

    def steps() -> Steps[str]:
        if (make := device.shared_maker()) is not None:
            yield SlicedThread(make)
        shared = device.borrow_shared()
        thread = SlicedThread(lambda: _compile_log(shared, vertex, fragment))
        try:
            found: str = yield thread
            return found
        finally:
            thread.wait()
            device.give_back_shared(shared)

    return loading.begin(steps())


def _compile_log(shared: SharedContext, vertex: str, fragment: str) -> str:
    gl = shared.gl
    with shared.current():
        program = gl.glCreateProgram()
        shaders = []
        for stage, source in ((_VERTEX, vertex), (_FRAGMENT, fragment)):
            shader = gl.glCreateShader(stage)
            text = source.encode("utf-8", "replace")
            size = ctypes.byref(ctypes.c_int(len(text)))
            gl.glShaderSource(shader, 1, ctypes.byref(ctypes.c_char_p(text)), size)
            gl.glCompileShader(shader)
            gl.glAttachShader(program, shader)
            shaders.append(shader)
        gl.glLinkProgram(program)
        status = ctypes.c_int(0)
        gl.glGetProgramiv(program, GL.LINK_STATUS, ctypes.byref(status))
        logs = []
        if not status.value:
            for name, read in (
                *((s, gl.glGetShaderInfoLog) for s in shaders),
                (program, gl.glGetProgramInfoLog),
            ):
                buffer = ctypes.create_string_buffer(_LOG_BYTES)
                read(name, _LOG_BYTES, None, buffer)
                logs.append(buffer.value.decode("utf-8", "replace").strip())
        for shader in shaders:
            gl.glDeleteShader(shader)
        gl.glDeleteProgram(program)
        if status.value:
            return ""
        return "\n".join(filter(None, logs)) or "the driver refuses the program and does not say why"
