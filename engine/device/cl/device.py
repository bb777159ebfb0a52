"""`CLDevice`: an OpenCL device with one in-order queue, chosen by preference, index or name."""

from __future__ import annotations

import ctypes
import itertools
import os
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from engine.base import instrumentation
from engine.base.errors import DeviceError, DisposedError
from engine.base.lifetime import Disposable
from engine.device.cl.device_memory import background_release, device_memory_class
from engine.device.cl.native_calls import DATA, NativeCalls
from engine.device.cl.probe import probe_cl
from engine.device.cl.runtimes import runtimes_registered
from engine.device.counters import DeviceCounters
from engine.device.probe_results import Probe

if TYPE_CHECKING:
    from types import ModuleType

OPENCL_HINT = (
    'install one for the CPU with: pip install "gameglue[intel-opencl]" (x86-64 processors of any maker) or'
    ' pip install "gameglue[pocl]" (Linux), or the graphics card\'s driver'
)
"""What to do where there is no OpenCL device."""


@dataclass(frozen=True)
class CLInfo:
    """Properties of an OpenCL device."""

    name: str
    platform: str
    vendor: str
    version: str
    driver_version: str
    is_gpu: bool
    extensions: frozenset[str] = field(repr=False)

    @property
    def is_software(self) -> bool:
        """Whether the CPU does the work."""
        return not self.is_gpu

    @property
    def identity(self) -> tuple[str, ...]:
        """The device's part of the cache key of compiled programs."""
        return self.platform, self.name, self.vendor, self.version, self.driver_version

    @property
    def has_double(self) -> bool:
        """Whether kernels can compute in 64-bit floats."""
        return "cl_khr_fp64" in self.extensions


@dataclass(frozen=True)
class CLLimits:
    """Limits of an OpenCL device; sizes in bytes unless said."""

    max_work_group_size: int
    """Work items in one group."""
    max_work_item_sizes: tuple[int, ...]
    """Work items in one group along each axis."""
    local_memory: int
    max_allocation: int
    """Largest buffer."""


class PendingEvents(Protocol):
    """Protocol: holds events of pending commands."""

    def events(self) -> Iterable[Any]:
        """The events."""
        ...

    def collect(self) -> None:
        """Drop the completed ones. Raises `DeviceError` for one that failed."""
        ...


class CLDevice(Disposable):
    """An OpenCL context and in-order queue on one device.

    Attributes:
        context: the `pyopencl.Context`.
        queue: the `pyopencl.CommandQueue`; commands run in the order of their enqueueing.
        cl: the `pyopencl` module.
        info, limits, counters: what the device is, allows, and did.
        stores: what backends keep with the device, by keys of theirs.
        keeps_times: whether the queue times its commands.
        pending: who holds events of copies under way.
        calls: makes OpenCL calls in native code.
        name: "opencl".
        device: The `pyopencl.Device`.
    """

    name = "opencl"
    _owns_memory = False

    def __init__(
        self, device: int | str | None = None, *, platform: int | str | None = None, profiling: bool = True
    ) -> None:
        """Open a device.

        Args:
            device: None for a device on which kernels run, a GPU before a CPU, the faster one of several;
                else an index in the order of `list_devices`, or part of a name.
            platform: restricts the choice to one platform, by index or part of its name.
            profiling: have the queue time its commands, which `Worker.costs` and profilers ask for.

        Raises `DeviceError` where there is no OpenCL, no such device, or where a small kernel does not run
        on it.
        """
        super().__init__()
        self.cl: Any = import_pyopencl()
        chosen = _choose(self.cl, list_cl_devices(self.cl, platform), device)
        self.device: Any = chosen
        try:
            self.context: Any = self.cl.Context([chosen])
            properties = self.cl.command_queue_properties.PROFILING_ENABLE if profiling else 0
            self._queue: Any = self.cl.CommandQueue(self.context, chosen, properties=properties)
        except self.cl.Error as error:
            raise DeviceError(
                f"the OpenCL device {chosen.name.strip()!r} cannot be opened: {error}"
            ) from error
        self.keeps_times = profiling
        self.info = _describe(self.cl, chosen)
        self.limits = _limits_of(chosen)
        self.counters = DeviceCounters()
        self.stores: dict[Any, Any] = {}
        self.pending: weakref.WeakSet[PendingEvents] = weakref.WeakSet()
        self.calls = NativeCalls()
        self._forked = False
        _devices.add(self)

    @property
    def queue(self) -> Any:
        """The `pyopencl.CommandQueue`. Raises `DisposedError` after `dispose`, `DeviceError` after a fork."""
        if self._queue is None:
            self.check()
        return self._queue

    @staticmethod
    def list_devices() -> list[CLInfo]:
        """Every OpenCL device of this machine, in the order of the indices that the constructor takes.

        Kernels may not run on all of them, see `SystemInfo.cl_devices`.

        Raises `DeviceError` where there is no OpenCL.
        """
        cl = import_pyopencl()
        return [_describe(cl, device) for device in list_cl_devices(cl)]

    def allocate(self, nbytes: int, data: np.ndarray | None = None, flags: int = 0) -> Any:
        """A `pyopencl.Buffer`, which another thread frees. Raises `pyopencl.Error`.

        Args:
            nbytes: Its size, if there is no data.
            data: What it holds, and so its size.
            flags: Of OpenCL, besides that kernels read and write it.
        """
        kinds, made = self.cl.mem_flags, device_memory_class(self.cl)
        given = (nbytes,) if data is None else (0, data)
        flags |= kinds.READ_WRITE | (kinds.COPY_HOST_PTR if data is not None else 0)
        try:
            return made(self.context, flags, *given)
        except self.cl.Error:
            # What was dropped may still hold the memory.
            background_release.finish()
            return made(self.context, flags, *given)

    def set_arguments(self, rows: np.ndarray) -> None:
        """Set arguments of kernels: rows of calls of `SET_ARGUMENT`. Raises `pyopencl.Error`."""
        done = -1
        while (done := self.calls.run(rows, done + 1)) < len(rows):
            _, kernel, position, size = rows[done, :4].tolist()
            value = rows[done, DATA:].view(np.uint8)[:size]
            self.cl.Kernel.from_int_ptr(kernel, True)._set_arg_buf(position, value)

    def finish(self) -> None:
        """Block until the queue is empty; counted."""
        self.check()
        self.counters.blocking["clFinish"] += 1
        instrumentation.count("blocking calls", 1)
        with self.guarded("to finish"):
            self.queue.finish()

    def wait(self, event: Any) -> None:
        """Block until an event has completed; counted."""
        self.check()
        self.counters.blocking["clWaitForEvents"] += 1
        instrumentation.count("blocking calls", 1)
        with self.guarded("to finish a command"):
            event.wait()

    @contextmanager
    def guarded(self, doing: str) -> Iterator[None]:
        """Context manager: errors of OpenCL become a `DeviceError`."""
        try:
            yield
        except self.cl.Error as error:
            raise self.failed(doing, error) from error

    def failed(self, doing: str, error: Exception) -> DeviceError:
        """The `DeviceError` for an error of OpenCL."""
        return DeviceError(
            f"{self.info.name} fails {doing}: {error}; if the device was removed or reset, make its workers"
            " again, or use BackendType.CPU"
        )

    def is_complete(self, event: Any) -> bool:
        """Whether an event has completed; never waits. Raises `DeviceError` if its command failed."""
        if self._forked:
            self.check()
        try:
            status = event.command_execution_status
        except self.cl.Error as error:
            raise self.failed("to tell whether a command is done", error) from error
        if status < 0:
            raise DeviceError(f"an OpenCL command failed on {self.info.name} with status {status}")
        return bool(status == self.cl.command_execution_status.COMPLETE)

    def collect(self) -> None:
        """Release completed copies; never waits. Raises `DeviceError` for one that failed."""
        for pending in list(self.pending):
            pending.collect()

    def check(self) -> None:
        """Raise `DisposedError` after `dispose`, `DeviceError` in a child process that inherited it."""
        if self._disposed:
            raise DisposedError("this OpenCL device was disposed; create another one")
        if self._forked:
            raise DeviceError(
                "an OpenCL device does not survive a fork: make devices and workers in the child process"
                " itself"
            )

    def _dispose(self) -> None:
        """Finish the queue and let go of the context."""
        if not self._forked:
            # A device that was removed has nothing left to finish.
            with suppress(self.cl.Error):
                self._queue.finish()
        self.stores.clear()
        self._queue = self.context = None

    def __repr__(self) -> str:
        return f"<CLDevice {self.info.name}{', disposed' if self._disposed else ''}>"


_devices: weakref.WeakSet[CLDevice] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for device in list(_devices):
        # For good: to release them would wait for threads that only the parent has.
        events = (event for pending in device.pending for event in pending.events())
        for kept in (device._queue, device.context, *events):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
        device._forked, device._queue = True, None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def import_pyopencl() -> ModuleType:
    """Import `pyopencl`; raises `DeviceError` if that fails."""
    # Imported on use: it takes 0.2 s, and its native part fails to load on some machines without OpenCL.
    try:
        import pyopencl

        from engine.device.cl.kernel_invokers import memoise_invokers
    except ImportError as error:
        raise DeviceError(
            f"OpenCL needs the package pyopencl ({error}); install it with: pip install pyopencl"
        ) from error
    memoise_invokers()
    return pyopencl


def list_cl_devices(cl: Any, platform: int | str | None = None) -> list[Any]:
    """The `pyopencl.Device` objects of every platform, or of one.

    Raises `DeviceError` where there is none.
    """
    try:
        with runtimes_registered():
            platforms = cl.get_platforms()
    except cl.Error as error:
        raise DeviceError(f"this machine has no OpenCL platform ({error}); {OPENCL_HINT}") from error
    devices = []
    for found in _matching("platform", platforms, platform):
        try:
            devices.extend(found.get_devices())
        except cl.Error:
            # A platform without devices reports an error rather than an empty list.
            continue
    if not devices:
        raise DeviceError(f"OpenCL offers no device on this machine; {OPENCL_HINT}")
    return devices


def try_cl_devices() -> list[tuple[CLInfo, Probe]]:
    """Every OpenCL device of this machine, and whether kernels run on it.

    Raises `DeviceError` where there is no OpenCL.
    """
    cl = import_pyopencl()
    return [(_describe(cl, device), probe_cl(cl, device)) for device in list_cl_devices(cl)]


def _matching(kind: str, found: list[Any], wanted: int | str | None) -> list[Any]:
    """Platforms or devices: the one with an index, those with a part of a name, or all."""
    if wanted is None:
        return found
    names = ", ".join(each.name.strip() for each in found)
    if isinstance(wanted, int):
        if not 0 <= wanted < len(found):
            raise DeviceError(f"there is no OpenCL {kind} {wanted}; found: {names}")
        return [found[wanted]]
    matching = [each for each in found if wanted.lower() in each.name.lower()]
    if not matching:
        raise DeviceError(f"no OpenCL {kind} is called {wanted!r}; found: {names}")
    return matching


def _choose(cl: Any, devices: list[Any], wanted: int | str | None) -> Any:
    problems = []
    ranked = sorted(_matching("device", devices, wanted), key=_preference)
    for _, equals in itertools.groupby(ranked, key=_preference):
        probes = [(probe_cl(cl, device), device) for device in equals]
        running = [(probe.seconds, device) for probe, device in probes if probe.runs]
        if running:
            return min(running, key=lambda pair: pair[0])[1]
        problems += [
            f"{device.name.strip()} ({device.platform.name.strip()}): {probe.problem}"
            for probe, device in probes
        ]
    raise DeviceError(f"no kernel runs on OpenCL here: {'; '.join(problems)}; {OPENCL_HINT}")


def _preference(device: Any) -> int:
    gpu, accelerator = 1 << 2, 1 << 3
    return 0 if device.type & gpu else 2 if device.type & accelerator else 1


def _describe(cl: Any, device: Any) -> CLInfo:
    return CLInfo(
        name=device.name.strip(),
        platform=device.platform.name.strip(),
        vendor=device.vendor.strip(),
        version=device.version.strip(),
        driver_version=device.driver_version.strip(),
        is_gpu=bool(device.type & cl.device_type.GPU),
        extensions=frozenset(device.extensions.split()),
    )


def _limits_of(device: Any) -> CLLimits:
    return CLLimits(
        max_work_group_size=device.max_work_group_size,
        max_work_item_sizes=tuple(device.max_work_item_sizes),
        local_memory=device.local_mem_size,
        max_allocation=device.max_mem_alloc_size,
    )
