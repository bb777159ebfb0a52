"""Backend selection: from a `BackendType` and device to a backend."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from engine.backends import table
from engine.backends.base import Backend, BackendType, Precision
from engine.backends.host import HostBackend
from engine.backends.table import DeviceName, Entry
from engine.base.errors import DeviceError, InputError
from engine.device.cl.device import CLDevice
from engine.device.gl.device import GLDevice
from engine.device.jobs.system import JobSystem

DeviceChoice = GLDevice | CLDevice | DeviceName | None
"""A device, or the name of the kind of device, or None for the natural one."""

_shared: WeakKeyDictionary[Any, WeakValueDictionary[str, Backend]] = WeakKeyDictionary()
"""By device and name."""


def create_backend(
    backend_type: BackendType,
    device: DeviceChoice = None,
    jobs: JobSystem | None = None,
    precision: Precision = "float32",
    deterministic: bool = False,
) -> Backend:
    """Create a stream of work on a device. Raises `DeviceError` that explains what is missing.

    `deterministic` is for the CPU: GPU backends compute the same bits every time anyway.
    """
    if backend_type is BackendType.CPU and device is not None:
        raise InputError("BackendType.CPU runs on job threads and takes no device")
    if backend_type is not BackendType.CPU and precision != "float32":
        raise InputError(f"precision={precision!r} is for BackendType.CPU; GPUs compute in float32 here")
    entry, chosen = _choose(backend_type, device)
    found = entry.load()
    return (
        found.on_jobs(jobs, precision, deterministic) if issubclass(found, HostBackend) else found.on(chosen)
    )


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
    if native.is_host:
        return native, None
    return native, create_backend(BackendType.CPU, None, jobs, deterministic=deterministic)


def load_backends() -> None:
    """Import the OpenGL backends and preload them; on any thread."""
    for entry in table.BACKENDS:
        if entry.device == GLDevice.name:
            entry.load().preload()


def may_use_opengl(backend_type: BackendType, device: DeviceChoice) -> bool:
    """Whether a worker with these arguments may run on OpenGL."""
    return "gl" in {entry.device for entry in _fitting(backend_type, device)}


def shared_backend(backend_type: BackendType, device: DeviceChoice = None) -> Backend:
    """The GPU backend for tensors that belong to no worker: one for each kind and device."""
    entry, chosen = _choose(backend_type, device)
    backends = _shared.setdefault(chosen, WeakValueDictionary())
    backend = backends.get(entry.name)
    if backend is None:
        backend = backends[entry.name] = entry.load().on(chosen)
    return backend


def _fitting(backend_type: BackendType, device: DeviceChoice) -> list[Entry]:
    """The backends of a type that run on a device, the preferred one first."""
    name = device if isinstance(device, str) else getattr(device, "name", None)
    return [
        entry
        for entry in table.BACKENDS
        if entry.backend_type is backend_type and (device is None or entry.device == name)
    ]


def _choose(backend_type: BackendType, device: DeviceChoice) -> tuple[Entry, Any]:
    """A backend, and the device: the given one, the current context's, or a private one."""
    if not isinstance(backend_type, BackendType):
        raise InputError(f"backend_type is {backend_type!r}; one of {', '.join(map(str, BackendType))}")
    name = device if isinstance(device, str) else getattr(device, "name", None)
    runs = [entry.backend_type for entry in table.BACKENDS if entry.device == name]
    if device is not None and (name is None or not runs):
        kinds = dict.fromkeys(repr(entry.device) for entry in table.BACKENDS if entry.device is not None)
        raise InputError(f"device is {device!r}; one of {', '.join(kinds)}, a GLDevice, a CLDevice, None")
    entries = _fitting(backend_type, device)
    if not entries:
        raise InputError(f"{backend_type} does not run on {name!r}; for that use {runs[0]}")
    problems: list[str] = []
    for entry in entries:
        try:
            return entry, entry.load().device_for(None if isinstance(device, str) else device)
        except DeviceError as error:
            if len(entries) == 1:
                raise
            problems.append(f"{entry.device}: {error}")
    raise DeviceError(
        f"no device here runs {backend_type} (BackendType.CPU needs none). {'. '.join(problems)}"
    )
