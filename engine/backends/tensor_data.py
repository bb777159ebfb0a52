"""Storage of a tensor's elements: the interface, and storage in host memory."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from engine.backends.readback import ArrivedRead, CopiedRead, PendingRead, Reader, Writer, delivered
from engine.base.memory.aligned import address_in_place, aligned


class TensorData(ABC):
    """Base class of tensor storage.

    Attributes:
        dtype: Element type.
        shape_or_none: Sizes of the axes; None until they are known.
        needs_disposal: Whether `dispose` frees anything.
    """

    dtype: np.dtype
    shape_or_none: tuple[int, ...] | None
    needs_disposal = True

    @abstractmethod
    def request(self) -> PendingRead:
        """Start a copy of the current elements; later schedules do not change it."""

    def shape_when_planned(self) -> tuple[int, ...] | None:
        """The shape, for which this waits while it is being planned; None if it depends on data."""
        return self.shape_or_none

    def concrete(self) -> TensorData:
        """The actual storage, for a placeholder. Blocks until it exists."""
        return self

    def available_data(self) -> TensorData:
        """The actual storage if it exists, else this placeholder. Never waits."""
        return self

    def download(self, out: np.ndarray | None = None) -> np.ndarray:
        """The elements in their shape, as a new array or in `out`. Blocks until they are available."""
        read = self.request()
        read.wait()
        return delivered(read.array(), out)

    @abstractmethod
    def upload(self, array: np.ndarray) -> None:
        """Replace the elements."""

    def for_job(self, writes: bool) -> JobMemory | None:
        """The elements for a job that reads, or may write them too; None where jobs cannot reach them."""
        return None

    def dispose(self) -> None:
        """Free the storage, if it is this object's."""


class Changes:
    """Counts moves, writes, replacements and frees of tensors' storage, so that fast paths notice them.

    `latest` is another object after every such change: compare it with `is`.
    """

    __slots__ = ("latest",)

    def __init__(self) -> None:
        self.latest = object()

    def add(self) -> None:
        """Count a change; on any thread."""
        self.latest = object()


changes = Changes()
"""Of all tensors. Tensors that were checked need not be checked again while this is unchanged."""


def _unnoticed(job: Any) -> None:
    """Does nothing: memory that is not shared does not track jobs."""


@dataclass(slots=True)
class JobMemory:
    """Memory as a job uses it: address, dependencies, and the storage to notify of the job.

    `jobs` is the `JobSystem` that the memory belongs to, if it does to one.
    """

    array: np.ndarray
    before: Sequence[Reader] = ()
    jobs: Any = None
    after: Callable[[Any], None] = _unnoticed


class Pinnable(Protocol):
    """A tensor as `CPUTensorData.pin` sees it."""

    @property
    def data_on_backend(self) -> TensorData:
        """The storage."""

    def download_to_array(self) -> np.ndarray:
        """Its elements; blocks until they have arrived."""

    def replace_data(self, data: TensorData) -> None:
        """Replace the storage by one with the same elements."""


class Sharer(Protocol):
    """Protocol of an object that reads a tensor's elements in place while they are unchanged."""

    def part(self) -> None:
        """Copy the elements now, as they may change once this returns."""
        ...


class CPUTensorData(TensorData):
    """Elements in a NumPy array. `array` returns it without a copy.

    Memory that is not shared belongs to this object alone: if pending work still reads it, a write goes to
    new memory. A worker's output may be in it, too, of which the worker takes a copy before it changes.

    Attributes:
        elements: The array, to be read only.
        readers: Jobs that read the elements.
        writer: The job that writes the elements, if any.
    """

    needs_disposal = False

    def __init__(self, array: np.ndarray, *, is_shared: bool = True) -> None:
        self.elements: np.ndarray = array
        self._is_shared = is_shared
        self.dtype = array.dtype
        self.shape_or_none = array.shape

    # Class attributes are the defaults, so that creating one costs little.
    readers: Sequence[Reader] = ()
    writer: Writer | None = None
    _address: int | None = None
    _sharer: weakref.ref[Sharer] | None = None

    @property
    def array(self) -> np.ndarray:
        """The elements themselves, not a copy, to be read or written until the next `schedule`.

        Blocks while scheduled work reads them; to write after a later `schedule`, call it again.
        """
        self.keep_in_place()
        return self.to_write()

    @property
    def fence(self) -> Writer | None:
        """The job that still writes the elements, for others to depend on; None once they are there."""
        if self.writer is not None and self.writer.is_completed:
            self.writer = None
        return self.writer

    @property
    def reuse(self) -> tuple[Reader, ...]:
        """The pending jobs that read the elements, as dependencies for a job that writes them."""
        return tuple(reader for reader in self.readers if not reader.is_completed)

    def for_job(self, writes: bool) -> JobMemory | None:
        if writes:
            self.unshare()
        fence = self.fence
        before = [*(() if fence is None else (fence,)), *(self.reuse if writes else ())]
        return JobMemory(self.elements, before, None, self.set_writer if writes else self.add_reader)

    def set_writer(self, writer: Writer) -> None:
        """Set `writer` as the job that writes the elements; it must wait for the current readers."""
        self.writer, self.readers = writer, []
        changes.add()

    @property
    def address(self) -> int:
        """The address at which native kernels can read the elements in place; 0 if they cannot."""
        if self._address is None:
            self._address = address_in_place(self.elements)
        return self._address

    def keep_in_place(self) -> None:
        """Keep the elements in place: another object shares them."""
        self.unshare()
        self._is_shared = True

    def share_with(self, other: Sharer | None, address: int | None = None) -> None:
        """Let `other` share the elements; it copies them before they change. `address` is theirs."""
        self._sharer = None if other is None else weakref.ref(other)
        self._address = address

    def release(self) -> np.ndarray:
        """The elements, once they are there, for a caller that owns them from now on."""
        if self.writer is not None:
            self.writer.complete()
        self._sharer = None
        return self.elements

    def unshare(self) -> None:
        """Make the sharing object copy the elements, since the caller may change them."""
        if self._sharer is not None:
            other, self._sharer = self._sharer(), None
            if other is not None:
                other.part()

    def add_reader(self, reader: Reader) -> None:
        """Keep the elements unchanged until `reader` is done."""
        before = self.readers
        others = [r for r in before if r is not reader and not r.is_completed] if before else ()
        self.readers = [*others, reader]

    def to_write(self, keep: bool = True) -> np.ndarray:
        """The elements for writing; `keep` preserves the current ones."""
        self.unshare()
        if self.writer is not None:
            if keep or self._is_shared:
                self.writer.complete()
            else:
                # What it writes is not needed any more: it keeps its memory.
                self.readers = [*self.readers, self.writer]
            self.writer = None
        if self.readers:
            readers, self.readers = [r for r in self.readers if not r.is_completed], []
            if readers and not self._is_shared:
                before, self.elements = self.elements, aligned(self.elements.shape, self.elements.dtype)
                self._address = None
                changes.add()
                if keep:
                    self.elements[...] = before
            else:
                for reader in readers:
                    reader.complete()
        return self.elements

    def request(self) -> PendingRead:
        fence = self.fence
        if fence is None:
            return ArrivedRead(self.elements.copy())
        target = np.empty_like(self.elements)
        copying = fence.then_copy(self.elements, target)
        self.add_reader(copying)
        return CopiedRead(copying, target)

    def download(self, out: np.ndarray | None = None) -> np.ndarray:
        if self.writer is not None:
            self.writer.complete()
        return self.elements.copy() if out is None else delivered(self.elements, out)

    def upload(self, array: np.ndarray) -> None:
        self.to_write(keep=False)[...] = array.reshape(self.elements.shape)

    @staticmethod
    def pin(tensor: Pinnable) -> CPUTensorData:
        """Move a tensor to the CPU and return its storage. Blocks if the elements are elsewhere."""
        data = tensor.data_on_backend
        if type(data) is not CPUTensorData:
            data = CPUTensorData(tensor.download_to_array(), is_shared=False)
            tensor.replace_data(data)
        return data
