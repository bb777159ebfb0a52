"""OpenCL memory: device buffers, host memory for transfers, and non-blocking transfers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from engine.backends.base import DeviceBuffer, Readback
from engine.backends.growable_memory import GrowableBlock
from engine.backends.opencl.codegen.storage import device_dtype
from engine.base.dtypes import from_numbers
from engine.base.errors import DeviceError, DisposedError, ValuePending
from engine.device.cl.device import CLDevice

_SMALLEST = 4096
# Idle host memory kept for the next transfer: about ten full-HD RGBA images.
_IDLE_LIMIT = 64 << 20


# Copies under way before which their memory is asked for: a query of each takes microseconds.
_MOST_PENDING = 16


class CLBuffer(DeviceBuffer):
    """Device memory. `mem` is the `pyopencl.Buffer`; `nbytes` what its elements take there."""

    def __init__(self, mem: Any, elements: int, dtype: np.dtype) -> None:
        self.elements = elements
        self.dtype = np.dtype(dtype)
        self.nbytes = elements * device_dtype(self.dtype).itemsize
        self._mem = mem
        self._is_shared = False

    def part(self, elements: int) -> CLBuffer | None:
        """A buffer over the first elements, in the same memory; None if these are too few."""
        if elements > self.elements:
            return None
        made = CLBuffer(self.mem, elements, self.dtype)
        made._is_shared = self._is_shared = True
        return made

    def resize(self, elements: int) -> None:
        """Have another number of elements, in the same shared memory, which has room for them."""
        self.elements, self.nbytes = elements, elements * device_dtype(self.dtype).itemsize

    @property
    def mem(self) -> Any:
        """The OpenCL memory object."""
        if self._mem is None:
            raise DisposedError("this OpenCL buffer was released")
        return self._mem

    def memory_bytes(self) -> int:
        """Bytes of its elements on the device."""
        return self.nbytes

    def release(self) -> None:
        """Release the memory; OpenCL keeps it until the commands that use it have run."""
        if self._mem is not None:
            # Shared memory is freed with the last buffer that has it.
            if not self._is_shared:
                self._mem.release()
            self._mem = None


class TemporaryBuffer(GrowableBlock[Any]):
    """A buffer for temporaries of all template programs, which run in turn."""

    def __init__(self, limit: int, allocate: Callable[[int], Any]) -> None:
        super().__init__(1, limit)
        self._allocate = allocate

    def allocate(self, size: int) -> Any:
        """A new buffer; on any thread."""
        return self._allocate(size)


class HostBlock:
    """Host memory of one transfer: `array` is uint8. `mapping` keeps pinned memory's buffer alive."""

    __slots__ = ("array", "mapping")

    def __init__(self, array: np.ndarray, mapping: Any = None) -> None:
        self.array = array
        self.mapping = mapping


class HostPool:
    """A pool of host memory for transfers; pinned for devices with their own memory.

    From ordinary memory some drivers copy while the caller waits, even when asked not to.
    """

    def __init__(self, device: CLDevice, pinned: bool) -> None:
        self._device = device
        self._idle: dict[int, list[HostBlock]] = {}
        self._idle_bytes = 0
        # Mapping waits its turn in a queue: this one never has work, so the turn comes at once.
        self._map_queue = device.cl.CommandQueue(device.context, device.device) if pinned else None
        self._mapping: list[tuple[int, HostBlock, Any]] = []

    @property
    def is_pinned(self) -> bool:
        """Whether blocks are pinned."""
        return self._map_queue is not None

    def acquire(self, nbytes: int) -> HostBlock:
        """A block of at least `nbytes`."""
        size = _size_for(nbytes)
        self._collect_mapped()
        idle = self._idle.get(size)
        if idle:
            self._idle_bytes -= size
            return idle.pop()
        if self._map_queue is not None:
            self._start_mapping(size)
            self._collect_mapped()
            if self._idle.get(size):
                self._idle_bytes -= size
                return self._idle[size].pop()
        return HostBlock(np.empty(size, np.uint8))

    def has_idle(self, nbytes: int) -> bool:
        """Whether `acquire` finds a block that is there."""
        return bool(self._idle.get(_size_for(nbytes)))

    def give_back(self, block: HostBlock) -> None:
        """Keep a block for the next transfer. Nothing may still use it."""
        # Where there is pinned memory, ordinary blocks are stopgaps.
        is_stopgap = self._map_queue is not None and block.mapping is None
        if not is_stopgap and self._idle_bytes + block.array.nbytes <= _IDLE_LIMIT:
            self._idle_bytes += block.array.nbytes
            self._idle.setdefault(block.array.nbytes, []).append(block)

    def _start_mapping(self, size: int) -> None:
        cl = self._device.cl
        buffer = self._device.allocate(size, flags=cl.mem_flags.ALLOC_HOST_PTR)
        access = cl.map_flags.READ | cl.map_flags.WRITE
        array, event = cl.enqueue_map_buffer(
            self._map_queue, buffer, access, 0, (size,), np.uint8, is_blocking=False
        )
        assert self._map_queue is not None
        self._map_queue.flush()
        self._mapping.append((size, HostBlock(array, buffer), event))

    def _collect_mapped(self) -> None:
        waiting = []
        for size, block, event in self._mapping:
            if self._device.is_complete(event):
                self._idle.setdefault(size, []).append(block)
                self._idle_bytes += size
            else:
                waiting.append((size, block, event))
        self._mapping = waiting


def _size_for(nbytes: int) -> int:
    """Bytes of a block for a transfer."""
    return max(_SMALLEST, 1 << max(0, nbytes - 1).bit_length())


class PendingCopy:
    """A copy between host and device under way.

    pyopencl waits when the event of an unfinished host copy is dropped, so `Transfers` holds it until done.
    """

    __slots__ = ("block", "event", "is_under_way", "kept")

    def __init__(self, event: Any, block: HostBlock, kept: bool) -> None:
        self.event = event
        self.block = block
        self.is_under_way = True
        self.kept = kept
        """Whether somebody still wants to read the block."""


class Transfers:
    """The copies of a device's workers under way, and their host memory.

    Both stay with the device: to free pinned memory takes milliseconds.
    """

    def __init__(self, device: CLDevice, pinned: bool) -> None:
        self._device = device
        self._pool = HostPool(device, pinned)
        self._pending: list[PendingCopy] = []
        # Workers may be on several threads. Reentrant: a readback may be dropped anywhere.
        self._lock = threading.RLock()
        device.pending.add(self)

    @classmethod
    def of(cls, device: CLDevice, pinned: bool) -> Transfers:
        """Those of a device."""
        if (cls, pinned) not in device.stores:
            device.stores[cls, pinned] = cls(device, pinned)
        found: Transfers = device.stores[cls, pinned]
        return found

    def events(self) -> list[Any]:
        """Events of the pending copies."""
        return [transfer.event for transfer in self._pending]

    @property
    def is_pinned(self) -> bool:
        """Whether copies use pinned memory, as for devices with their own memory."""
        return self._pool.is_pinned

    def write(self, mem: Any, data: np.ndarray) -> None:
        """Start copying an array into device memory; the array may be changed afterwards."""
        if not data.nbytes:
            return
        if len(self._pending) >= _MOST_PENDING or not self._pool.has_idle(data.nbytes):
            self.collect()
        with self._lock:
            block = self._pool.acquire(data.nbytes)
            staged = block.array[: data.nbytes]
            staged[:] = data.reshape(-1).view(np.uint8)
            self._pending.append(PendingCopy(self._copy(mem, staged), block, kept=False))
        self._device.counters.uploads += 1
        self._device.counters.bytes_up += data.nbytes

    def read(self, mem: Any, nbytes: int) -> PendingCopy:
        """Start copying device memory to the host."""
        self.collect()
        with self._lock:
            block = self._pool.acquire(nbytes)
            transfer = PendingCopy(self._copy(block.array[:nbytes], mem, flush=True), block, kept=True)
            self._pending.append(transfer)
        self._device.counters.readbacks += 1
        self._device.counters.bytes_down += nbytes
        return transfer

    def _copy(self, target: Any, source: Any, flush: bool = False) -> Any:
        """Enqueue a copy and return its event."""
        device = self._device
        try:
            event = device.cl.enqueue_copy(device.queue, target, source, is_blocking=False)
            if flush:
                # Without it a poll might wait forever for a copy that was never submitted to the device.
                device.queue.flush()
        except device.cl.Error as error:
            raise device.failed("to take a copy", error) from error
        return event

    def is_done(self, transfer: PendingCopy) -> bool:
        """Whether a copy has arrived; never waits. Raises `DeviceError` if it failed."""
        return self._device.is_complete(transfer.event)

    def wait(self, transfer: PendingCopy) -> None:
        """Block until a copy has arrived."""
        self._device.wait(transfer.event)

    def release(self, transfer: PendingCopy) -> None:
        """Release the block, which is not read any more."""
        with self._lock:
            transfer.kept = False
            if not transfer.is_under_way:
                self._pool.give_back(transfer.block)

    def collect(self) -> None:
        """Reclaim the memory of finished copies; never waits.

        Raises `DeviceError`, once, for an upload that failed.
        """
        failed = None
        with self._lock:
            # In order: the first unfinished one ends the search.
            while self._pending:
                transfer = self._pending[0]
                try:
                    if not self._device.is_complete(transfer.event):
                        break
                except DeviceError as error:
                    # Who waits for a readback learns of it there.
                    failed = failed if transfer.kept else error
                transfer.is_under_way = False
                del self._pending[0]
                if not transfer.kept:
                    self._pool.give_back(transfer.block)
        if failed is not None:
            raise failed


class CLReadback(Readback):
    """A pending readback of a value to the CPU."""

    def __init__(
        self, transfers: Transfers, transfer: PendingCopy | None, elements: int, dtype: np.dtype
    ) -> None:
        self._transfers = transfers
        self._transfer = transfer
        self._elements = elements
        self._dtype = dtype
        self._value = np.empty(0, dtype) if transfer is None else None

    def done(self) -> bool:
        """Whether `array` is available. Never waits."""
        return self._transfer is None or self._transfers.is_done(self._transfer)

    def array(self) -> np.ndarray:
        """The value, 1-D, in the buffer's dtype. Raises `ValuePending` before `done`."""
        if self._transfer is not None:
            if not self.done():
                raise ValuePending("the readback has not arrived yet; poll done(), or wait()")
            item = device_dtype(self._dtype)
            data = self._transfer.block.array[: self._elements * item.itemsize].view(item)
            self._value = from_numbers(data, self._dtype)
            self._release()
        assert self._value is not None
        return self._value

    def into(self, out: np.ndarray) -> None:
        """Write the first elements into an array, without an intermediate copy if the types agree."""
        if self._transfer is None or not self.done() or device_dtype(self._dtype) != out.dtype:
            super().into(out)
        else:
            data = self._transfer.block.array[: out.nbytes].view(out.dtype)
            np.copyto(out, data.reshape(out.shape))

    def wait(self) -> None:
        """Block until done."""
        if not self.done() and self._transfer is not None:
            self._transfers.wait(self._transfer)

    def _release(self) -> None:
        if self._transfer is not None:
            self._transfers.release(self._transfer)
            self._transfer = None

    def __del__(self) -> None:
        self._release()
