"""The table of backends. A new one is a folder next to this file and an entry here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from engine.backends.base import Backend, BackendType
from engine.base.garbage_collection import imported

DeviceName = Literal["gl", "opencl"]
"""Types of devices, as `Worker` takes them."""


@dataclass(frozen=True)
class Entry:
    """A backend: the arguments of `Worker` that select it, and where its class is.

    Attributes:
        name: That of the class, `Backend.name`.
        title: How tables call it.
        backend_type: Its `BackendType`. Of several entries with the same one, the first whose device is found
            is taken when no device is given.
        device: The kind of its devices: the `name` of their class. None if it takes none.
        path: The module and name of its class, which is imported when the backend is chosen: a game needs one
            of them, and pays for its kernels only.
        ahead: The module and name of a function that is called when a model is read, before any worker is
            made: it begins what takes long, and returns at once. None for none.
    """

    name: str
    title: str
    backend_type: BackendType
    device: DeviceName | None
    path: str
    ahead: str | None = None

    def load(self) -> type[Backend]:
        """Import the class."""
        found: type[Backend] = _imported(self.path)
        return found


def _imported(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(imported(module), name)


_CPU, _COMPUTE, _PIXEL = BackendType.CPU, BackendType.GPU_COMPUTE, BackendType.GPU_PIXEL
_FOLDER = "engine.backends"

BACKENDS = (
    Entry(
        "cpu",
        "CPU",
        _CPU,
        None,
        f"{_FOLDER}.cpu.backend:CPUBackend",
        f"{_FOLDER}.cpu.precompile:precompile_kernels",
    ),
    Entry("gl_compute", "GPU_COMPUTE", _COMPUTE, "gl", f"{_FOLDER}.gl.compute.backend:GLComputeBackend"),
    Entry("opencl", "OpenCL", _COMPUTE, "opencl", f"{_FOLDER}.opencl.backend:OpenCLBackend"),
    Entry("gl_pixel", "GPU_PIXEL", _PIXEL, "gl", f"{_FOLDER}.gl.pixel.backend:GLPixelBackend"),
)
"""All backends."""


def start_precompilation() -> None:
    """Start the backends' precompilation, as a worker will probably follow a model that is being read."""
    for entry in BACKENDS:
        if entry.ahead is not None:
            _imported(entry.ahead)()


def named(name: str) -> Entry:
    """The entry of a backend."""
    return next(entry for entry in BACKENDS if entry.name == name)
