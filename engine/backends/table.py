"""The table of backends. A new one is a folder beside this file and an entry here."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Literal

from engine.backends.base import Backend, BackendType

DeviceName = Literal["gl", "opencl"]
"""Kinds of devices, as a worker is asked for them."""


@dataclass(frozen=True)
class Entry:
    """A backend: what a worker is asked for to run on it, and where its class is.

    Attributes:
        name: That of the class, `Backend.name`.
        title: How tables call it.
        backend_type: Its `BackendType`. Of several entries with the same one, the first whose device is found
            is taken when no device is asked for.
        device: The kind of its devices: the `name` of their class. None if it takes none.
        path: The module and name of its class, which is imported when the backend is chosen: a game needs one
            of them, and pays for its kernels only.
    """

    name: str
    title: str
    backend_type: BackendType
    device: DeviceName | None
    path: str

    def load(self) -> type[Backend]:
        """Import the class."""
        module, _, name = self.path.partition(":")
        found: type[Backend] = getattr(importlib.import_module(module), name)
        return found


_CPU, _COMPUTE, _PIXEL = BackendType.CPU, BackendType.GPU_COMPUTE, BackendType.GPU_PIXEL
_FOLDER = "engine.backends"

BACKENDS = (
    Entry("cpu", "CPU", _CPU, None, f"{_FOLDER}.cpu.backend:CPUBackend"),
    Entry("gl_compute", "GPU_COMPUTE", _COMPUTE, "gl", f"{_FOLDER}.gl.compute.backend:GLComputeBackend"),
    Entry("opencl", "OpenCL", _COMPUTE, "opencl", f"{_FOLDER}.opencl.backend:OpenCLBackend"),
    Entry("gl_pixel", "GPU_PIXEL", _PIXEL, "gl", f"{_FOLDER}.gl.pixel.backend:GLPixelBackend"),
)
"""All backends."""


def named(name: str) -> Entry:
    """The entry of a backend."""
    return next(entry for entry in BACKENDS if entry.name == name)
