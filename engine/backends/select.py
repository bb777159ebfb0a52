"""From a `BackendType` and a device's name to a backend; the one place where backends are chosen."""

from __future__ import annotations

from typing import Literal
from weakref import WeakKeyDictionary, WeakValueDictionary

from engine.backends.base import Backend, BackendType, Precision
from engine.base.errors import DeviceError, InputError
from engine.device.cl.device import CLDevice
from engine.device.gl.device import GLDevice
from engine.device.gl.probe import probe_gl
from engine.device.jobs.system import JobSystem

DeviceChoice = GLDevice | CLDevice | Literal["gl", "opencl"] | None
"""A device, or the name of the kind of device, or None for the natural one."""

# One queue serves all workers: OpenCL contexts cost time and memory, and streams of one queue are ordered.
_cl_devices: WeakValueDictionary[str, CLDevice] = WeakValueDictionary()
_shared: WeakKeyDictionary[GLDevice | CLDevice, WeakValueDictionary[BackendType, Backend]] = (
    WeakKeyDictionary()
)


def create_backend(
    backend_type: BackendType,
    device: DeviceChoice = None,
    jobs: JobSystem | None = None,
    precision: Precision = "float32",
    deterministic: bool = False,
) -> Backend:
    """A new stream of work on a device. Raises `DeviceError` that says what is missing.

    `deterministic` is for the CPU: GPU backends compute the same bits every time anyway.
    """
    if backend_type is not BackendType.CPU:
        if precision != "float32":
            raise InputError(f"precision={precision!r} is for BackendType.CPU; GPUs compute in float32 here")
        return _backend_on(backend_type, _choose_device(backend_type, device))
    if device is not None:
        raise InputError("BackendType.CPU runs on job threads and takes no device")
    # Imported where it is chosen, as it brings the kernels of numba.
    from engine.backends.cpu.backend import CPUBackend

    return CPUBackend(jobs, precision, deterministic)


def create_backends(
    backend_type: BackendType,
    device: DeviceChoice,
    jobs: JobSystem | None,
    precision: Precision,
    deterministic: bool,
    native: Backend | None = None,
) -> tuple[Backend, Backend | None]:
    """A backend, if there is none yet, and the CPU's for layers that fall back."""
    if native is None:
        native = create_backend(backend_type, device, jobs, precision, deterministic)
    if native.name == "cpu":
        return native, None
    return native, create_backend(BackendType.CPU, None, jobs, deterministic=deterministic)


def load_backends() -> None:
    """Have ready what the OpenGL backends take time for when one is first made; any thread may do it."""
    # They are imported when they are needed, see `_backend_on`.
    from engine.backends.gl.commands import Replayer
    from engine.backends.gl.compute import backend as _compute
    from engine.backends.gl.pixel import backend as _pixel

    del _compute, _pixel
    Replayer().wait()


def is_opencl(device: DeviceChoice) -> bool:
    """Whether a device, or the name of one, means OpenCL."""
    return device == "opencl" or isinstance(device, CLDevice)


def shared_backend(backend_type: BackendType, device: DeviceChoice = None) -> Backend:
    """The GPU backend for tensors that belong to no worker: one for each kind and device."""
    chosen = _choose_device(backend_type, device)
    backends = _shared.setdefault(chosen, WeakValueDictionary())
    backend = backends.get(backend_type)
    if backend is None:
        backend = backends[backend_type] = _backend_on(backend_type, chosen)
    return backend


def _choose_device(backend_type: BackendType, device: DeviceChoice) -> GLDevice | CLDevice:
    """The device given, the one beside the current context, or a private one."""
    if not isinstance(backend_type, BackendType):
        raise InputError(f"backend_type is {backend_type!r}; one of {', '.join(map(str, BackendType))}")
    if isinstance(device, str) and device not in ("gl", "opencl"):
        raise InputError(f"device is {device!r}; one of 'gl', 'opencl', a GLDevice, a CLDevice, None")
    if device == "opencl" or isinstance(device, CLDevice):
        if backend_type is BackendType.GPU_PIXEL:
            raise InputError(
                "BackendType.GPU_PIXEL draws with OpenGL; for OpenCL use BackendType.GPU_COMPUTE"
            )
        return device if isinstance(device, CLDevice) else _cl_device()
    if backend_type is BackendType.GPU_PIXEL:
        chosen = _gl_device(device)
        problem = probe_gl(chosen, "pixel").problem
        if problem:
            raise DeviceError(f"{problem}; update the graphics card's driver, or use BackendType.CPU")
        return chosen
    try:
        chosen = _gl_device(device)
        problem = probe_gl(chosen, "compute").problem
        if not problem:
            return chosen
    except DeviceError as error:
        if device is not None:
            raise
        problem = str(error)
    if device is not None:
        raise DeviceError(f"{problem}; BackendType.GPU_PIXEL needs OpenGL 3.3 only")
    try:
        return _cl_device()
    except DeviceError as error:
        raise DeviceError(
            f"BackendType.GPU_COMPUTE needs OpenGL 4.3 or OpenCL. OpenGL: {problem}. OpenCL: {error}. "
            "BackendType.GPU_PIXEL needs OpenGL 3.3 only, BackendType.CPU nothing"
        ) from error


def _gl_device(device: GLDevice | Literal["gl"] | None) -> GLDevice:
    return device if isinstance(device, GLDevice) else GLDevice.for_context()


def _cl_device() -> CLDevice:
    found = _cl_devices.get("default")
    if found is None or found.is_disposed:
        found = _cl_devices["default"] = CLDevice()
    return found


def _backend_on(backend_type: BackendType, device: GLDevice | CLDevice) -> Backend:
    # Each backend is imported where it is chosen: a game needs one of them, and pays for its kernels only.
    if isinstance(device, CLDevice):
        from engine.backends.opencl import OpenCLBackend

        return OpenCLBackend(device)
    if backend_type is BackendType.GPU_PIXEL:
        from engine.backends.gl.pixel.backend import GLPixelBackend

        return GLPixelBackend(device)
    from engine.backends.gl.compute.backend import GLComputeBackend

    return GLComputeBackend(device)
