"""From a `BackendType` and a device's name to a backend; the one place where backends are chosen."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Literal

from engine.backends.base import Backend, BackendType
from engine.devices import CLDevice, GLDevice
from engine.errors import DeviceError, InputError
from engine.jobs import JobSystem

DeviceChoice = GLDevice | CLDevice | Literal["gl", "opencl"] | None
"""A device, or the name of the kind of device, or None for the natural one."""


def create_backend(
    backend_type: BackendType, device: DeviceChoice = None, jobs: JobSystem | None = None
) -> Backend:
    """A new stream of work on a device. Raises `DeviceError` that says what is missing."""
    if not isinstance(backend_type, BackendType):
        raise InputError(f"backend_type is {backend_type!r}; one of {', '.join(map(str, BackendType))}")
    if isinstance(device, str) and device not in ("gl", "opencl"):
        raise InputError(f"device is {device!r}; one of 'gl', 'opencl', a GLDevice, a CLDevice, None")
    if backend_type is BackendType.CPU:
        if device is not None:
            raise InputError("BackendType.CPU runs on job threads and takes no device")
        # Each backend's module is imported where it is chosen: they bring numba's objects, GL or OpenCL.
        from engine.backends.cpu.backend import CPUBackend

        return CPUBackend(jobs)
    if backend_type is BackendType.GPU_PIXEL:
        if device == "opencl" or isinstance(device, CLDevice):
            raise InputError(
                "BackendType.GPU_PIXEL draws with OpenGL; for OpenCL use BackendType.GPU_COMPUTE"
            )
        from engine.backends.gl_pixel.backend import GLPixelBackend

        return GLPixelBackend(gl_device(device))
    if device == "opencl" or isinstance(device, CLDevice):
        return _opencl(device)
    try:
        chosen = gl_device(device)
        problem = (
            None if chosen.info.supports_compute else f"OpenGL {chosen.info.version} has no compute shaders"
        )
    except DeviceError as error:
        if device is not None:
            raise
        problem = str(error)
    if problem is None:
        from engine.backends.gl_compute.backend import GLComputeBackend

        return GLComputeBackend(chosen)
    if device is not None:
        raise DeviceError(f"{problem}; BackendType.GPU_PIXEL needs OpenGL 3.3 only")
    try:
        return _opencl(None)
    except DeviceError as error:
        raise DeviceError(
            f"BackendType.GPU_COMPUTE needs OpenGL 4.3 or OpenCL. OpenGL: {problem}. OpenCL: {error}. "
            "BackendType.GPU_PIXEL needs OpenGL 3.3 only, BackendType.CPU nothing"
        ) from error


def gl_device(device: DeviceChoice) -> GLDevice:
    """The GL device to use: the one given, the one beside the current context, else a private one."""
    if isinstance(device, GLDevice):
        return device
    return GLDevice.for_context()


_cl_default: list[weakref.ref[CLDevice]] = []


def _opencl(device: object) -> Backend:
    from engine.backends.opencl.backend import OpenCLBackend

    if isinstance(device, CLDevice):
        return OpenCLBackend(device)
    # One queue serves all workers: OpenCL contexts cost time and memory, and one queue keeps its order.
    found = _cl_default[0]() if _cl_default else None
    if found is None:
        found = CLDevice()
        _cl_default[:] = [weakref.ref(found)]
    return OpenCLBackend(found)


_shared: dict[tuple[BackendType, object], Callable[[], Backend | None]] = {}


def shared_backend(backend_type: BackendType, device: DeviceChoice = None) -> Backend:
    """The backend for tensors that belong to no worker: one for each kind and device."""
    if device is None and backend_type is not BackendType.CPU:
        probe = create_backend(backend_type)
        key: tuple[BackendType, object] = (backend_type, id(getattr(probe, "device", None)))
        found = _shared[key]() if key in _shared else None
        if found is not None:
            return found
        _shared[key] = weakref.ref(probe)
        return probe
    key = (backend_type, device if isinstance(device, str) else id(device))
    found = _shared[key]() if key in _shared else None
    if found is None:
        found = create_backend(backend_type, device)
        _shared[key] = weakref.ref(found)
    return found
