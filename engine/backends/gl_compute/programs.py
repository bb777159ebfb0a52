"""Compute programs of one device: compiled once, kept for all workers, and stored between runs."""

from __future__ import annotations

import ctypes
import hashlib
import os
import tempfile
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path

from engine.backends.gl_compute.printer import ARGUMENTS_LOCATION
from engine.cache import cache_dir
from engine.devices import GL, GLDevice
from engine.devices.gl_limits import query_integer
from engine.errors import DeviceError, KernelCompileError

_MAGIC = b"GGGLB1\n"
_DIGEST_SIZE = 32
_LOG_SIZE = 2048

Progress = Callable[[int, int], None]


class ProgramStore:
    """GL names of linked compute programs, by kernel key.

    Binaries are stored under the driver's name and version where the driver gives them out. Each program is
    dispatched once, on nothing, as many drivers compile at the first dispatch.
    """

    def __init__(self, device: GLDevice, folder: Path | None = None) -> None:
        # The store of a device is kept by the device's key in a weak dictionary: no reference back.
        self._device = weakref.ref(device)
        info = device.info
        self._identity = "\0".join((info.vendor, info.renderer, info.version))
        self._programs: dict[str, int] = {}
        self._scratch = 0
        with device.current():
            formats = (
                query_integer(device.gl, GL.NUM_PROGRAM_BINARY_FORMATS) if info.has_program_binary else 0
            )
            if info.has_parallel_shader_compile and device.gl.has("glMaxShaderCompilerThreadsKHR"):
                device.gl.glMaxShaderCompilerThreadsKHR(0xFFFFFFFF)
        self._folder = (folder or cache_dir("gl")) if formats else None
        self.compilations = 0
        """How many programs had to be compiled from source so far."""

    @classmethod
    def of(cls, device: GLDevice) -> ProgramStore:
        """The store that all backends on a device share."""
        store = _stores.get(device)
        if store is None:
            store = _stores[device] = cls(device)
        return store

    def __getitem__(self, key: str) -> int:
        return self._programs[key]

    def __contains__(self, key: str) -> bool:
        return key in self._programs

    def prepare(self, sources: Mapping[str, str], progress: Progress | None = None) -> int:
        """Compile what is missing; returns how many programs came from source rather than from a binary.

        Raises `KernelCompileError` with the numbered source of a program that the driver refuses.
        """
        device = self._require_device()
        wanted = {key: text for key, text in sources.items() if key not in self._programs}
        report = progress or (lambda ready, total: None)
        report(0, len(wanted))
        with device.current():
            compiled = {key: text for key, text in wanted.items() if not self._load_binary(key, text)}
            ready = len(wanted) - len(compiled)
            # All are handed over before the first answer is asked for: drivers may work on them in parallel.
            started = {key: self._start(text) for key, text in compiled.items()}
            for key, (program, shader) in started.items():
                self._finish(program, shader, compiled[key])
                self._programs[key] = program
                self._store_binary(program, compiled[key])
            for key in wanted:
                self._warm_up(self._programs[key])
                ready += key in compiled
                report(ready, len(wanted))
        self.compilations += len(compiled)
        return len(compiled)

    def _require_device(self) -> GLDevice:
        device = self._device()
        if device is None:
            raise DeviceError("the OpenGL device of these programs is gone")
        return device

    def _start(self, source: str) -> tuple[int, int]:
        gl = self._require_device().gl
        shader = gl.glCreateShader(GL.COMPUTE_SHADER)
        text = source.encode("ascii")
        pointer = ctypes.c_char_p(text)
        gl.glShaderSource(shader, 1, ctypes.byref(pointer), ctypes.byref(ctypes.c_int(len(text))))
        gl.glCompileShader(shader)
        program = gl.glCreateProgram()
        gl.glAttachShader(program, shader)
        if self._folder is not None:
            gl.glProgramParameteri(program, GL.PROGRAM_BINARY_RETRIEVABLE_HINT, 1)
        gl.glLinkProgram(program)
        return program, shader

    def _finish(self, program: int, shader: int, source: str) -> None:
        gl = self._require_device().gl
        if not self._is_linked(program):
            logs = []
            for read in (
                lambda size, text: gl.glGetShaderInfoLog(shader, _LOG_SIZE, size, text),
                lambda size, text: gl.glGetProgramInfoLog(program, _LOG_SIZE, size, text),
            ):
                text = ctypes.create_string_buffer(_LOG_SIZE)
                read(None, text)
                logs.append(text.value.decode("utf-8", "replace").strip())
            gl.glDeleteShader(shader)
            gl.glDeleteProgram(program)
            numbered = "\n".join(f"{n:4} | {line}" for n, line in enumerate(source.splitlines(), 1))
            raise KernelCompileError(
                "\n".join(("the OpenGL driver refused a compute kernel:", *filter(None, logs), numbered))
            )
        gl.glDetachShader(program, shader)
        gl.glDeleteShader(shader)

    def _is_linked(self, program: int) -> bool:
        status = ctypes.c_int(0)
        self._require_device().gl.glGetProgramiv(program, GL.LINK_STATUS, ctypes.byref(status))
        return bool(status.value)

    def _warm_up(self, program: int) -> None:
        """Dispatch with all arguments 0, which writes nothing."""
        gl = self._require_device().gl
        if not self._scratch:
            name = ctypes.c_uint(0)
            gl.glGenBuffers(1, ctypes.byref(name))
            self._scratch = name.value
            gl.glBindBuffer(GL.COPY_WRITE_BUFFER, self._scratch)
            gl.glBufferData(GL.COPY_WRITE_BUFFER, 1024, None, GL.DYNAMIC_COPY)
        for binding in range(8):
            gl.glBindBufferBase(GL.SHADER_STORAGE_BUFFER, binding, self._scratch)
        gl.glUseProgram(program)
        gl.glUniform4iv(ARGUMENTS_LOCATION, 1, (ctypes.c_int * 4)())
        gl.glDispatchCompute(1, 1, 1)

    def _path(self, source: str) -> Path | None:
        if self._folder is None:
            return None
        return self._folder / (hashlib.sha256(f"{self._identity}\0{source}".encode()).hexdigest() + ".bin")

    def _load_binary(self, key: str, source: str) -> bool:
        path = self._path(source)
        try:
            data = path.read_bytes() if path is not None else b""
        except OSError:
            return False
        start = len(_MAGIC) + _DIGEST_SIZE
        body = data[start:]
        if data[: len(_MAGIC)] != _MAGIC or hashlib.sha256(body).digest() != data[len(_MAGIC) : start]:
            return False
        gl = self._require_device().gl
        program = gl.glCreateProgram()
        gl.glProgramBinary(program, int.from_bytes(body[:4], "little"), body[4:], len(body) - 4)
        if not self._is_linked(program):
            # The driver was updated without a new version text, or the binary is of another machine.
            gl.glDeleteProgram(program)
            gl.glGetError()
            return False
        self._programs[key] = program
        return True

    def _store_binary(self, program: int, source: str) -> None:
        path = self._path(source)
        if path is None:
            return
        gl = self._require_device().gl
        size = ctypes.c_int(0)
        gl.glGetProgramiv(program, GL.PROGRAM_BINARY_LENGTH, ctypes.byref(size))
        if size.value <= 0:
            return
        data, kind = ctypes.create_string_buffer(size.value), ctypes.c_uint(0)
        gl.glGetProgramBinary(program, size.value, ctypes.byref(size), ctypes.byref(kind), data)
        body = kind.value.to_bytes(4, "little") + data.raw[: size.value]
        try:
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
            with os.fdopen(handle, "wb") as file:
                file.write(_MAGIC + hashlib.sha256(body).digest() + body)
            os.replace(temporary, path)
        except OSError:
            # A full or read-only disk: the program compiles again next time.
            return


_stores: weakref.WeakKeyDictionary[GLDevice, ProgramStore] = weakref.WeakKeyDictionary()
