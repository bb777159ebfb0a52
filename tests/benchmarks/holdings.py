"""What a process holds: memory, OpenGL and OpenCL objects, threads, open files."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from engine.device.cl.device_memory import background_release
from engine.device.gl.functions import FUNCTION_TYPE, Loader

_THUNK = FUNCTION_TYPE(ctypes.c_uint64, *[ctypes.c_uint64] * 3)
_MAKES_ONE = ("glCreateShader", "glCreateProgram", "glFenceSync")
_DROPS_ONE = ("glDeleteShader", "glDeleteProgram", "glDeleteSync")
_KINDS = ("Buffers", "Textures", "Framebuffers", "Renderbuffers", "VertexArrays", "Queries", "Samplers")


class ObjectLoader:
    """A loader that counts the objects of one OpenGL context, for `GLDevice(loader_wrapper=ObjectLoader)`.

    `alive`: by the name of their kind, as in glGen<kind>.
    """

    def __init__(self, loader: Any) -> None:
        self._loader: Loader = loader
        self.alive: Counter[str] = Counter()
        self._thunks: dict[str, Any] = {}

    def load_opengl_function(self, name: str) -> int:
        """The address of a counting function, or of the driver's own."""
        address = self._loader.load_opengl_function(name)
        known = {f"gl{verb}{kind}" for verb in ("Gen", "Delete") for kind in _KINDS}
        if not address or name not in (*_MAKES_ONE, *_DROPS_ONE, *known):
            return address
        if name not in self._thunks:
            self._thunks[name] = self._thunk(name, _THUNK(address))
        return ctypes.cast(self._thunks[name], ctypes.c_void_p).value or 0

    def _thunk(self, name: str, forward: Callable[..., int]) -> Any:
        is_made = name.startswith(("glGen", "glCreate", "glFence"))
        kind = name.removeprefix("gl").removeprefix("Gen").removeprefix("Delete").removeprefix("Create")
        is_one = name in (*_MAKES_ONE, *_DROPS_ONE)
        kind = "Sync" if kind == "FenceSync" else kind

        def call(*arguments: int) -> int:
            number = 1 if is_one else arguments[0] & 0xFFFFFFFF
            # Deleting nothing is allowed.
            if not is_made and is_one and not arguments[0]:
                number = 0
            self.alive[kind] += number if is_made else -number
            return forward(*arguments)

        return _THUNK(call)

    def __enter__(self) -> object:
        return self._loader.__enter__()  # type: ignore[attr-defined]

    def __exit__(self, *exception: object) -> None:
        self._loader.__exit__(*exception)  # type: ignore[attr-defined]

    def release(self) -> None:
        """Release the context behind the loader."""
        self._loader.release()  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Holdings:
    """What a process holds at one moment. rss_mb: memory that lies in RAM, in MiB."""

    gl_objects: int
    cl_objects: int
    rss_mb: float
    python_blocks: int
    threads: int
    files: int

    @property
    def row(self) -> list[str]:
        """As cells of a table."""
        return [f"{value:.1f}" if isinstance(value, float) else str(value) for value in self.values]

    @property
    def values(self) -> list[float]:
        """In the order of the fields."""
        return [getattr(self, item.name) for item in fields(self)]


def held(gl: ObjectLoader | None, cl: Any, *, settled: bool) -> Holdings:
    """What this process holds now; `settled`: once garbage is gone and nothing is left to be freed.

    cl: a `CLDevice`. Every OpenCL object refers to its context, whose references are counted.
    """
    if settled:
        gc.collect()
        _release_freed_memory()
        before = -1
        while before != (before := sys.getallocatedblocks()):
            time.sleep(0.1)  # threads that free memory take their time
        background_release.finish()
    with open("/proc/self/statm") as statistics:
        pages = int(statistics.read().split()[1])
    return Holdings(
        gl_objects=0 if gl is None else gl.alive.total(),
        cl_objects=0 if cl is None else cl.context.reference_count,
        rss_mb=pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
        python_blocks=sys.getallocatedblocks(),
        threads=len(os.listdir("/proc/self/task")),
        files=len(os.listdir("/proc/self/fd")),
    )


def _release_freed_memory() -> None:
    """Have the C library return what it keeps of freed memory, where it can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def growth(before: Holdings, after: Holdings, allowed: Holdings) -> list[str]:
    """What has grown by more than is allowed, in words."""
    problems = []
    for item in fields(Holdings):
        first, last, most = (getattr(h, item.name) for h in (before, after, allowed))
        if last - first > most:
            problems.append(f"{item.name}: {first:g} at first, {last:g} at the end, allowed {most:g} more")
    return problems


def thread_names() -> list[str]:
    """Those of Python's threads, to tell who stayed."""
    return [thread.name for thread in threading.enumerate()]
