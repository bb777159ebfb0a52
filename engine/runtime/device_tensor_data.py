"""Storage of tensors on a backend."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from math import prod
from typing import Any, ClassVar, Self

import moderngl
import numpy as np

from engine.backends.base import Backend, BackendType, DeviceBuffer, Storage
from engine.backends.gl.memory import GLBuffer
from engine.backends.gl.sharing import game_context, in_turn
from engine.backends.readback import PendingRead, Reader, Writer
from engine.backends.select import DeviceChoice, shared_backend
from engine.backends.tensor_data import CPUTensorData, JobMemory, TensorData
from engine.base.errors import DisposedError
from engine.device.cl.device import CLDevice
from engine.device.gl.device import GLDevice
from engine.runtime.tensor import Tensor


class BufferTensorData(TensorData):
    """Elements in a backend's buffer.

    Attributes:
        backend: The backend.
        storage: The backend's buffer or texture.
    """

    shape_or_none: tuple[int, ...]

    def __init__(
        self, backend: Backend, buffer: DeviceBuffer, shape: tuple[int, ...], owned: bool = True
    ) -> None:
        self.backend = backend
        self.storage = buffer
        self.dtype = buffer.dtype
        self.shape_or_none = shape
        self.needs_disposal = owned

    def request(self) -> PendingRead:
        return self.backend.requester(self.storage, self.shape_or_none)()

    def download(self, out: np.ndarray | None = None) -> np.ndarray:
        return self.backend.reader(self.storage, self.shape_or_none)(out)

    def upload(self, array: np.ndarray) -> None:
        self.backend.upload(self.storage, array)

    def copied(self) -> BufferTensorData | CPUTensorData:
        """A copy on the same backend, in stream order."""
        backend = self.backend
        with backend.entered():
            buffer = backend.copied(self.storage)
        return storage_of(backend)(backend, buffer, self.shape_or_none)

    def dispose(self) -> None:
        if self.needs_disposal:
            self.needs_disposal = False
            self.storage.release()


class _Pinned(BufferTensorData):
    """Base class of the GPU storages."""

    _backend_type: ClassVar[BackendType]
    _tensor: weakref.ref[Tensor] | None = None
    _object: Any = None

    @classmethod
    def pin(cls, tensor: Tensor, device: DeviceChoice = None) -> Self:
        """Move a tensor's elements to this type of storage and return it.

        Elements on the CPU are uploaded without waiting. Elements on another backend are downloaded first,
        and elements that a job is writing are waited for; both block.
        """
        data = tensor.data_on_backend
        if isinstance(data, cls):
            data._tensor = weakref.ref(tensor)
            return data
        backend = shared_backend(cls._backend_type, device)
        array = data.array if type(data) is CPUTensorData else tensor.download_to_array()
        shape = tuple(tensor.shape)
        with backend.entered():
            buffer = backend.create(max(prod(shape), 1), tensor.dtype, array if array.size else None)
        pinned = cls(backend, buffer, shape)
        tensor.replace_data(pinned)
        pinned._tensor = weakref.ref(tensor)
        return pinned

    @property
    def device(self) -> GLDevice | CLDevice:
        """The device with the elements."""
        found: GLDevice | CLDevice = self.backend.owner
        return found

    @property
    def element_dtype(self) -> np.dtype:
        """The type of an element on the device: int32 for int64, uint8 for bool, else the tensor's."""
        return self.backend.element_dtype(self.dtype)

    def shared(self, ctx: moderngl.Context | None = None) -> Any:
        """The elements as an object of a moderngl context of the game, by default the current one.

        The object does not own the elements and is valid as long as the tensor's storage.
        """
        storage: Any = self.storage
        if not isinstance(storage, GLBuffer):
            return storage.mem
        if storage.is_released:
            raise DisposedError("this tensor or its worker was disposed, and its memory with it")
        device = self.device
        assert isinstance(device, GLDevice)
        if self._object is None or (ctx is not None and self._object.ctx is not ctx):
            self._object = storage.shared(ctx if ctx is not None else game_context(device))
        return self._object

    @contextmanager
    def reading(self, ctx: moderngl.Context | None = None) -> Iterator[Any]:
        """A block whose own commands read the elements: `with data.reading() as shared: ...`.

        They run after what the engine has enqueued so far, and before what it enqueues later; only the GPU
        waits. With OpenCL, enqueue them to `data.device.queue`.
        """
        found, device = self.shared(ctx), self.device
        with in_turn(device, found.ctx) if isinstance(device, GLDevice) else nullcontext():
            yield found

    @contextmanager
    def writing(self, ctx: moderngl.Context | None = None) -> Iterator[Any]:
        """A block whose own commands write the elements, like `reading`."""
        with self.reading(ctx) as found:
            yield found
        tensor = self._tensor() if self._tensor is not None else None
        if tensor is not None:
            tensor.mark_changed()


class ComputeTensorData(_Pinned):
    """Elements in a GPU buffer (OpenGL shader storage or OpenCL), contiguous and in row-major order."""

    _backend_type = BackendType.GPU_COMPUTE

    @property
    def buffer(self) -> Any:
        """The `moderngl.Buffer` for the game's context, or with OpenCL the `pyopencl.Buffer`.

        Use it in a block of `reading` or `writing`. Raises `DeviceError` if the game's context is not the
        current one.
        """
        return self.shared()


class TextureTensorData(_Pinned):
    """Elements in a texture, four per texel, in row-major order.

    Element e is component e % 4 of texel t = e // 4, which is at column t % width and row t // width.
    """

    _backend_type = BackendType.GPU_PIXEL

    @property
    def texture(self) -> moderngl.Texture:
        """The `moderngl.Texture` for the game's context; wider and higher than the elements need.

        Use it in a block of `reading` or `writing`. Raises `DeviceError` if the game's context is not the
        current one.
        """
        found: moderngl.Texture = self.shared()
        return found


class CPUBufferTensorData(BufferTensorData, CPUTensorData):
    """Elements in memory that the CPU backend's jobs write."""

    @property
    def array(self) -> np.ndarray:
        """A copy of the elements; blocks until the jobs that write them are done."""
        return self.download()

    @property
    def fence(self) -> Writer | None:
        """The last job of the worker's stream, which writes or reads the elements; None once it is done."""
        last = self.backend.fence()
        return None if last is None else last.pin_run()

    def copied(self) -> CPUTensorData:
        """A copy of the elements, which a job may still write."""
        data = CPUTensorData(self._seen(self.backend.copied(self.storage)), is_shared=False)
        fence = self.fence
        if fence is not None:
            data.set_writer(fence)
        return data

    def _seen(self, buffer: DeviceBuffer) -> np.ndarray:
        """A buffer's elements in the tensor's shape."""
        shape = self.shape_or_none
        array: np.ndarray = buffer.array[: prod(shape)].reshape(shape)  # type: ignore[attr-defined]
        return array

    @property
    def reuse(self) -> tuple[Reader, ...]:
        """The job after which the memory can be written: the last one of the stream."""
        fence = self.fence
        return () if fence is None else (fence,)

    def for_job(self, writes: bool) -> JobMemory:
        # Later schedules write the same memory, so they wait for the job.
        last = self.backend.fence()
        before = () if last is None else (last,)
        return JobMemory(self._seen(self.storage), before, self.backend.owner, self.backend.after)


def storage_of(backend: Backend) -> type[BufferTensorData]:
    """The storage class of a backend's buffers."""
    return _STORAGES[backend.storage]


_STORAGES: Mapping[Storage, type[BufferTensorData]] = {
    "memory": CPUBufferTensorData,
    "buffer": ComputeTensorData,
    "texture": TextureTensorData,
    "other": BufferTensorData,
}
