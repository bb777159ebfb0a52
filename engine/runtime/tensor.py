"""Tensors: arrays on the CPU or on a device, possibly still being computed.

A `Tensor` has a shape, a dtype and a `TensorData`, the storage of its elements. Reading elements back is a
request that is polled; only `download_to_array` and `readback_and_clone` block.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from engine.backends.readback import PendingRead, ShapedRead, delivered
from engine.backends.tensor_data import CPUTensorData, JobMemory, TensorData, changes
from engine.base import instrumentation
from engine.base.errors import EngineError, InputError, ShapePending, ValuePending
from engine.base.event_loops import suspend
from engine.base.lifetime import Disposable
from engine.base.memory.aligned import aligned
from engine.base.shapes import DynamicTensorShape as DynamicTensorShape
from engine.base.shapes import TensorShape
from engine.base.spelling import answers_spelling

POLL_SECONDS = 0.0005
"""How long an awaited readback sleeps between polls in an asyncio loop."""


@answers_spelling
class Tensor(Disposable):
    """A tensor of any backend.

    `Tensor(array)` copies the array; `Tensor.wrap(array)` uses it in place, so changing the array before the
    work that reads it is done is the caller's error. Writing a tensor itself (`upload`, indexing) is right at
    any time. Tensors that `Worker.peek_output` returns belong to the
    worker: they are stale after its next `schedule`, except for a readback that was requested before.
    """

    _part_types: ClassVar[dict[str, type]] = {"download_to_array()": np.ndarray}

    def __init__(self, data: ArrayLike, dtype: DTypeLike | None = None) -> None:
        super().__init__()
        if isinstance(data, TensorShape):
            # As in Unity: a shape stands for zeros of it.
            data = np.zeros(data, np.float32 if dtype is None else dtype)
        array = np.asarray(data, dtype=dtype)
        if dtype is None and array.dtype == np.float64 and not isinstance(data, np.ndarray | np.generic):
            # Networks compute in float32, so Python floats become that.
            array = array.astype(np.float32)
        if array.dtype.kind in "UST":
            array = array.astype(object)
        elif array.dtype == object:
            for element in array.reshape(-1):
                if not isinstance(element, str | bytes | Mapping):
                    found = type(element).__name__
                    raise InputError(
                        f"a Tensor takes an array, numbers, text or a TensorShape, not {found}"
                        if array.ndim == 0
                        else f"the elements of a Tensor are numbers or text, not {found}; rows of different "
                        "lengths make no tensor"
                    )
            array = np.array(array, order="C")
        if array.dtype != object:
            # Where kernels can read it in place, and nobody else writes.
            array, given = aligned(array.shape, array.dtype), array
            array[...] = given
        self._data: TensorData = CPUTensorData(array, is_shared=False)
        self.elements_on_cpu = self._data

    # Class attributes are the defaults, so that creating a tensor costs little.
    _view: tuple[int, ...] | None = None
    _pending: PendingRead | None = None
    _arrived: np.ndarray | None = None
    _callbacks: Sequence[Callable[[bool], None]] = ()

    elements_on_cpu: CPUTensorData | None = None
    """The storage if it is a CPU array in the tensor's shape and the tensor is not disposed, else None."""

    @classmethod
    def of(cls, data: TensorData) -> Tensor:
        """A tensor over existing storage, which it frees if that `needs_disposal`."""
        tensor = cls.__new__(cls)
        if data.needs_disposal:
            Disposable.__init__(tensor)
        tensor._data = data
        if type(data) is CPUTensorData:
            tensor.elements_on_cpu = data
        return tensor

    @classmethod
    def wrap(cls, array: np.ndarray) -> Tensor:
        """A tensor over the array itself. Raises `InputError` if its elements are not in row-major order."""
        if not isinstance(array, np.ndarray) or not array.flags.c_contiguous:
            raise InputError("Tensor.wrap needs a C-contiguous numpy array; use Tensor(array), which copies")
        return cls.of(CPUTensorData(array))

    # Properties

    @property
    def dtype(self) -> np.dtype:
        """Element type."""
        return self._data.dtype

    @property
    def shape_or_none(self) -> TensorShape | None:
        """Shape, or None while its plan is being made or it depends on data that is still being computed."""
        shape = self.sizes_or_none
        return None if shape is None else TensorShape(shape)

    @property
    def sizes_or_none(self) -> tuple[int, ...] | None:
        """`shape_or_none` as a plain tuple."""
        self._check_alive()
        if self._arrived is not None:
            return self._arrived.shape
        return self._view if self._view is not None else self._data.shape_or_none

    @property
    def shape(self) -> TensorShape:
        """Shape; raises `ShapePending` while it depends on data that is still being computed.

        Waits for a plan that is still made in the background; `shape_or_none` does not.
        """
        shape = self.shape_or_none
        if shape is None:
            planned = self._data.shape_when_planned()
            if planned is None:
                raise ShapePending(
                    "this output's shape depends on data still being computed; poll shape_or_none"
                )
            shape = TensorShape(planned)
        return shape

    @property
    def sizes(self) -> tuple[int, ...]:
        """The shape as a plain tuple. Raises as `shape` does."""
        found = self.sizes_or_none
        return tuple(self.shape) if found is None else found

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.shape.size

    @property
    def data_on_backend(self) -> TensorData:
        """The storage: `CPUTensorData`, `ComputeTensorData` or `TextureTensorData`."""
        self._check_alive()
        return self._data.concrete()

    @property
    def available_data(self) -> TensorData:
        """The storage, or a placeholder while the work that computes it is not enqueued yet. Never waits."""
        self._check_alive()
        return self._data.available_data()

    def mark_changed(self) -> None:
        """Drop the readback: the elements were written in place."""
        self._pending = self._arrived = None

    def for_job(self, writes: bool) -> JobMemory | None:
        """The elements for a user's job; None if jobs cannot access them. Never waits."""
        memory = self.available_data.for_job(writes)
        if memory is not None:
            if self._view is not None:
                memory.array = memory.array.reshape(self._view)
            if writes:
                self.mark_changed()
        return memory

    def __repr__(self) -> str:
        if self._disposed:
            return "Tensor(disposed)"
        try:
            shape = str(tuple(self.shape))
        except EngineError as error:
            shape = type(error).__name__
        return f"Tensor(shape={shape}, dtype={self.dtype.name}, data={type(self._data).__name__})"

    # Elements

    def reshape(self, *shape: int | Sequence[int]) -> Self:
        """Give this tensor another shape of the same size; one entry may be -1. Returns the tensor."""
        wanted = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
        sizes = [int(n) for n in wanted]  # type: ignore[arg-type]
        known = int(np.prod([n for n in sizes if n != -1]))
        if sizes.count(-1) == 1 and known:
            sizes[sizes.index(-1)] = self.size // known
        if int(np.prod(sizes)) != self.size or min(sizes, default=0) < 0:
            raise InputError(f"cannot reshape a tensor of shape {tuple(self.shape)} to {tuple(wanted)}")
        self._view = tuple(sizes)
        self.elements_on_cpu = None
        changes.add()
        if self._arrived is not None:
            self._arrived = self._arrived.reshape(self._view)
        return self

    def upload(self, array: ArrayLike) -> None:
        """Replace all elements. The array is converted to the tensor's dtype; its size must fit."""
        self._check_alive()
        source = np.ascontiguousarray(array, dtype=self.dtype)
        if source.size != self.size:
            raise InputError(f"upload of {source.size} elements into a tensor of shape {tuple(self.shape)}")
        self._pending = self._arrived = None
        self._data.upload(source)

    def __getitem__(self, key: Any) -> Any:
        return self._on_cpu("index it")[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        data = self.data_on_backend
        if type(data) is not CPUTensorData:
            raise ValuePending(
                "this tensor is on a backend; call CPUTensorData.pin(tensor) before writing elements"
            )
        self._pending = self._arrived = None
        data.to_write().reshape(self.shape)[key] = value

    def __float__(self) -> NoReturn:
        raise InputError(
            "the values of a tensor are read with download_to_array(), as in "
            "float(tensor.download_to_array().item())"
        )

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        array = self._shared("convert it")
        if copy is False and dtype is not None and np.dtype(dtype) != array.dtype:
            raise ValueError(f"a conversion from {array.dtype} to {np.dtype(dtype)} needs a copy")
        return np.array(array, dtype=dtype, copy=copy)

    def __dlpack__(self, **options: Any) -> Any:
        return self._shared("share it").__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._on_cpu("share it").__dlpack_device__()

    def _shared(self, purpose: str) -> np.ndarray:
        """The elements, if they are on the CPU already, shared with the caller."""
        array = self._on_cpu(purpose)
        if type(self._data) is CPUTensorData:
            self._data.keep_in_place()
        return array

    def _on_cpu(self, purpose: str) -> np.ndarray:
        """The elements, if they are on the CPU already."""
        self._check_alive()
        if self.is_readback_request_done():
            return self._arrive() if self._arrived is None else self._arrived
        if type(self._data) is CPUTensorData and self._data.fence is None:
            self._data.unshare()
            return self._data.elements.reshape(self.shape)
        raise ValuePending(
            f"the value is not on the CPU yet; await a readback or download it, then {purpose}"
        )

    # Readback

    def readback_request(self, callback: Callable[[bool], None] | None = None) -> None:
        """Start copying the current elements to the CPU; later schedules do not change the copy.

        `callback(True)` is called by the first `is_readback_request_done` that finds the copy arrived.
        """
        self._check_alive()
        if self._pending is None and self._arrived is None:
            self._pending = self._data.request()
            if instrumentation.installed and instrumentation.here():
                data = self._data
                worker, name = getattr(data, "worker", None), getattr(data, "name", "")
                self._pending = instrumentation.ObservedRead(self._pending, worker, name)
        if callback is not None:
            self._callbacks = (*self._callbacks, callback)

    def is_readback_request_done(self) -> bool:
        """Whether the requested elements have arrived. Never waits; False without a request."""
        self._check_alive()
        pending = self._pending
        if pending is not None:
            if not pending.done():
                return False
            if self._seen() is None:
                self._arrive()
        elif self._arrived is None:
            return False
        if self._callbacks:
            callbacks, self._callbacks = self._callbacks, ()
            for callback in callbacks:
                callback(True)
        return True

    def _seen(self) -> np.ndarray | None:
        """The elements of a finished request that were not copied yet, so that they are copied once."""
        return self._pending.seen() if type(self._pending) is ShapedRead else None

    def _arrive(self) -> np.ndarray:
        assert self._pending is not None
        self._arrived = self._in_shape(self._pending.array())
        self._pending = None
        return self._arrived

    def _in_shape(self, array: np.ndarray) -> np.ndarray:
        return array if self._view is None else array.reshape(self._view)

    def download_to_array(self, out: np.ndarray | None = None) -> np.ndarray:
        """The elements as an array of the tensor's shape and dtype, or in `out`. Blocks until they arrive."""
        if self._disposed:
            self._check_alive()
        pending = self._pending
        if pending is not None:
            pending.wait()
            seen = self._seen()
            if seen is not None:
                seen = self._in_shape(seen)
                return seen.copy() if out is None else delivered(seen, out)
            self._arrive()
        elif self._arrived is None:
            if self._view is None:
                return self._data.download(out)
            # This array is not shared, so it needs no copy.
            return delivered(self._in_shape(self._data.download()), out)
        array = self._arrived
        assert array is not None
        return array.copy() if out is None else delivered(array, out)

    def readback_and_clone(self) -> Tensor:
        """A CPU tensor with the elements. Blocks until they are there."""
        array = np.ascontiguousarray(self.download_to_array())
        return Tensor.of(CPUTensorData(array, is_shared=False))

    def readback_and_clone_async(self) -> ReadbackAwaitable:
        """An awaitable that yields a CPU tensor; from an asyncio loop or from the host's async hooks."""
        self.readback_request()
        return ReadbackAwaitable(self)

    def replace_data(self, data: TensorData) -> None:
        """Use other storage with the same elements; a requested readback continues."""
        self._data.dispose()
        self._data = data
        self._view = None
        self.elements_on_cpu = data if type(data) is CPUTensorData else None
        changes.add()

    def _dispose(self) -> None:
        if self.elements_on_cpu is not None:
            self.elements_on_cpu = None
            changes.add()
        self._pending = self._arrived = None
        self._data.dispose()

    @property
    def _owns_memory(self) -> bool:  # type: ignore[override]
        return self._data.needs_disposal


class ReadbackAwaitable:
    """Awaits a requested readback: polls it once a frame in an `App`, every 0.5 ms under asyncio."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    def done(self) -> bool:
        """Whether awaiting would not suspend."""
        return self._tensor.is_readback_request_done()

    def __await__(self) -> Generator[Any, None, Tensor]:
        while not self._tensor.is_readback_request_done():
            yield from suspend(POLL_SECONDS)
        return self._tensor.readback_and_clone()
