"""What the tests of faults share: workers on any backend, and an OpenGL driver that fails when told to."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import BackendType, Model, Worker
from engine.device.gl.functions import FUNCTION_TYPE, GL

CHANNELS = ("cpu", "gl_compute", "gl_pixel", "opencl")
"""The four backends by name."""

DIGITS = Path(__file__).parents[2] / "assets" / "digits" / "digits.onnx"
IMAGE = np.random.default_rng(0).random((1, 1, 28, 28), np.float32)


def open_worker(request: pytest.FixtureRequest, model: Model, channel: str, **options: Any) -> Worker:
    """A worker on a backend, disposed when the test ends."""
    kind = BackendType.GPU_COMPUTE
    if channel == "cpu":
        kind = BackendType.CPU
    elif channel == "opencl":
        options.setdefault("device", request.getfixturevalue("cl_device"))
    else:
        options.setdefault("device", request.getfixturevalue("gl_device"))
        kind = BackendType.GPU_COMPUTE if channel == "gl_compute" else BackendType.GPU_PIXEL
    worker = Worker(model, kind, **options)
    request.addfinalizer(worker.dispose)
    return worker


class FaultyLoader:
    """A loader for `GLDevice(ctx, loader_wrapper=FaultyLoader)`, whose functions fail where it is told to.

    lost: fences answer WAIT_FAILED, and errors CONTEXT_LOST. has_no_memory: buffers of 16 MiB and more are
    refused, as drivers do it: the call returns, and the error is there to be asked for.
    """

    made: FaultyLoader

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self.lost = self.has_no_memory = False
        self._error = GL.NO_ERROR
        self._kept: dict[str, Any] = {}
        FaultyLoader.made = self

    def load_opengl_function(self, name: str) -> int:
        """The driver's function, or one that may fail."""
        address = self._loader.load_opengl_function(name)
        replaced = {
            "glClientWaitSync": (
                self._wait,
                ctypes.c_uint,
                (ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint64),
            ),
            "glGetError": (self._get_error, ctypes.c_uint, ()),
            "glBufferData": (
                *(self._buffer_data, None),
                (ctypes.c_uint, ctypes.c_ssize_t, ctypes.c_void_p, ctypes.c_uint),
            ),
        }
        if name not in replaced:
            return int(address)
        if name not in self._kept:
            function, result, arguments = replaced[name]
            kind: Any = FUNCTION_TYPE(result, *arguments)
            real = kind(address)
            self._kept[name] = kind(lambda *given: function(real, *given))  # type: ignore[operator]
        return ctypes.cast(self._kept[name], ctypes.c_void_p).value or 0

    def refuse(self) -> None:
        """Be out of memory once, for whatever was asked for last."""
        self._error = GL.OUT_OF_MEMORY

    def _wait(self, real: Any, *given: Any) -> int:
        return GL.WAIT_FAILED if self.lost else real(*given)

    def _get_error(self, real: Any) -> int:
        if self.lost:
            return GL.CONTEXT_LOST
        error, self._error = self._error, GL.NO_ERROR
        return error or real()

    def _buffer_data(self, real: Any, target: int, size: int, data: Any, usage: int) -> None:
        if self.has_no_memory and size >= 16 << 20:
            self._error = GL.OUT_OF_MEMORY
        else:
            real(target, size, data, usage)

    def __enter__(self) -> object:
        return self._loader.__enter__()

    def __exit__(self, *exception: object) -> None:
        self._loader.__exit__(*exception)

    def release(self) -> None:
        """Called by moderngl."""
        self._loader.release()
