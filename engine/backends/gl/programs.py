"""GL programs of one device: compiled once, kept for all workers, and stored between runs."""

from __future__ import annotations

import ctypes
import hashlib
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Generic, NamedTuple, Self, TypeVar, cast

from engine.backends.base import Progress
from engine.base.cache import cache_dir, read_sealed, write_sealed
from engine.base.errors import KernelCompileError
from engine.device.gl.device import GLDevice
from engine.device.gl.functions import GL
from engine.device.gl.limits import query_integer
from engine.device.gl.shared_context import SharedContext

_FORMAT = b"GGGLB1\n"
_LOG_SIZE = 2048

Shader = TypeVar("Shader")


class LinkedProgram(NamedTuple):
    """A program that is ready: its GL name, and the location of its argument array `A`."""

    program: int
    location: int


class ProgramStore(ABC, Generic[Shader]):
    """Linked programs by kernel key. `Shader` is the type that a subclass compiles.

    Threads share a store: background loading compiles in a shared context while frames run. A program enters
    the table last, with everything that its users read. Binaries are stored under the driver's name and
    version where the driver gives them out. Each program is used once, on nothing, as many drivers compile
    at the first use.
    """

    stage: ClassVar[int]
    """The GL kind of the shaders."""

    def __init__(self, device: GLDevice, folder: Path | None = None) -> None:
        # The store of a device is kept by the device's key in a weak dictionary: no reference back.
        self.device: GLDevice = weakref.proxy(device)
        info = device.info
        self._identity = "\0".join((info.vendor, info.renderer, info.version))
        self._programs: dict[str, LinkedProgram] = {}
        self._publishing = threading.Lock()
        self._elsewhere = threading.local()
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
    def of(cls, device: GLDevice) -> Self:
        """The store that all backends of a kind share on a device."""
        # The lock is held while the store is created, so that two threads never compile for two stores.
        with _creating:
            stores = _stores.setdefault(device, {})
            if cls not in stores:
                stores[cls] = cls(device)
            return cast(Self, stores[cls])

    def __getitem__(self, key: str) -> int:
        return self._programs[key].program

    def __contains__(self, key: str) -> bool:
        return key in self._programs

    @property
    def context(self) -> GLDevice | SharedContext:
        """The context in which this thread compiles: the device, or the one of `compiled_in`."""
        return getattr(self._elsewhere, "context", None) or self.device

    @contextmanager
    def compiled_in(self, context: SharedContext) -> Iterator[None]:
        """Context manager: `prepare` compiles in this thread's context."""
        self._elsewhere.context = context
        try:
            yield
        finally:
            del self._elsewhere.context

    # What differs by the kind of shader; `context` is current in `use_once`

    @abstractmethod
    def text(self, shader: Shader) -> str:
        """Source of a shader."""

    @abstractmethod
    def use_once(self, programs: Mapping[str, tuple[int, Shader]]) -> Iterator[tuple[str, int]]:
        """Run each linked program on nothing; yields its key and the location of `A` when that is done."""

    @property
    def companions(self) -> Sequence[int]:
        """GL names of compiled shaders linked into every program."""
        return ()

    # What all have in common

    def location(self, key: str) -> int:
        """The location of a program's argument array `A`."""
        return self._programs[key].location

    def prepare(self, shaders: Mapping[str, Shader], progress: Progress | None = None) -> int:
        """Compile missing programs; returns how many were compiled from source.

        Raises `KernelCompileError` with the numbered source of a program that the driver refuses.
        """
        wanted = {key: shader for key, shader in shaders.items() if key not in self._programs}
        texts = {key: self.text(shader) for key, shader in wanted.items()}
        report = progress or (lambda ready, total: None)
        report(0, len(wanted))
        if not wanted:
            return 0
        with self.context.current():
            found = {key: self._load_binary(text) for key, text in texts.items()}
            programs = {key: program for key, program in found.items() if program is not None}
            compiled = {key: text for key, text in texts.items() if key not in programs}
            ready = len(wanted) - len(compiled)
            # All are submitted before the first status is queried: drivers may compile them in parallel.
            started = {key: self._start(text) for key, text in compiled.items()}
            programs |= {key: program for key, (program, _) in started.items()}
            locations: dict[str, int] = {}
            try:
                for key, (program, shader) in started.items():
                    self._finish(program, shader, compiled[key])
                    self._store_binary(program, compiled[key])
                for key, location in self.use_once({key: (programs[key], wanted[key]) for key in wanted}):
                    locations[key] = location
                    ready += key in compiled
                    report(ready, len(wanted))
            finally:
                if len(locations) < len(wanted):
                    self._delete(programs.values())
        # Other contexts may use what that block made only when it has ended.
        self._publish({key: LinkedProgram(programs[key], location) for key, location in locations.items()})
        with self._publishing:
            self.compilations += len(compiled)
        return len(compiled)

    def _delete(self, programs: Iterable[int]) -> None:
        for program in programs:
            self.context.gl.glDeleteProgram(program)

    def _publish(self, ready: Mapping[str, LinkedProgram]) -> None:
        """Enter programs into the table. The first of a key stays: recorded commands may hold its name."""
        with self._publishing:
            unused = [linked.program for key, linked in ready.items() if key in self._programs]
            self._programs |= {key: linked for key, linked in ready.items() if key not in self._programs}
        if unused:
            with self.context.current(flush=False):
                self._delete(unused)

    def compile(self, stage: int, source: str) -> int:
        """Start compiling a shader; returns its GL name."""
        gl = self.context.gl
        shader: int = gl.glCreateShader(stage)
        text = source.encode("ascii")
        pointer = ctypes.c_char_p(text)
        gl.glShaderSource(shader, 1, ctypes.byref(pointer), ctypes.byref(ctypes.c_int(len(text))))
        gl.glCompileShader(shader)
        return shader

    def _start(self, source: str) -> tuple[int, int]:
        gl = self.context.gl
        shader = self.compile(self.stage, source)
        program = gl.glCreateProgram()
        for part in (*self.companions, shader):
            gl.glAttachShader(program, part)
        if self._folder is not None:
            gl.glProgramParameteri(program, GL.PROGRAM_BINARY_RETRIEVABLE_HINT, 1)
        gl.glLinkProgram(program)
        return program, shader

    def _finish(self, program: int, shader: int, source: str) -> None:
        gl = self.context.gl
        if not self._is_linked(program):
            logs = []
            for read, name in ((gl.glGetShaderInfoLog, shader), (gl.glGetProgramInfoLog, program)):
                text = ctypes.create_string_buffer(_LOG_SIZE)
                read(name, _LOG_SIZE, None, text)
                logs.append(text.value.decode("utf-8", "replace").strip())
            gl.glDeleteShader(shader)
            numbered = "\n".join(f"{n:4} | {line}" for n, line in enumerate(source.splitlines(), 1))
            raise KernelCompileError(
                "\n".join(("the OpenGL driver refused a kernel:", *filter(None, logs), numbered))
            )
        gl.glDetachShader(program, shader)
        gl.glDeleteShader(shader)

    def _is_linked(self, program: int) -> bool:
        status = ctypes.c_int(0)
        self.context.gl.glGetProgramiv(program, GL.LINK_STATUS, ctypes.byref(status))
        return bool(status.value)

    def _path(self, source: str) -> Path | None:
        if self._folder is None:
            return None
        return self._folder / (hashlib.sha256(f"{self._identity}\0{source}".encode()).hexdigest() + ".bin")

    def _load_binary(self, source: str) -> int | None:
        """The program of a stored binary; None where there is none that the driver takes."""
        path = self._path(source)
        body = read_sealed(path, _FORMAT) if path is not None else None
        if body is None:
            return None
        gl = self.context.gl
        program: int = gl.glCreateProgram()
        gl.glProgramBinary(program, int.from_bytes(body[:4], "little"), body[4:], len(body) - 4)
        if not self._is_linked(program):
            # The driver was updated without a new version text, or the binary is of another machine.
            gl.glDeleteProgram(program)
            gl.glGetError()
            return None
        return program

    def _store_binary(self, program: int, source: str) -> None:
        path = self._path(source)
        if path is None:
            return
        gl = self.context.gl
        size = ctypes.c_int(0)
        gl.glGetProgramiv(program, GL.PROGRAM_BINARY_LENGTH, ctypes.byref(size))
        if size.value <= 0:
            return
        data, kind = ctypes.create_string_buffer(size.value), ctypes.c_uint(0)
        gl.glGetProgramBinary(program, size.value, ctypes.byref(size), ctypes.byref(kind), data)
        write_sealed(path, _FORMAT, kind.value.to_bytes(4, "little") + data.raw[: size.value])


_creating = threading.RLock()
_stores: weakref.WeakKeyDictionary[GLDevice, dict[type, object]] = weakref.WeakKeyDictionary()
