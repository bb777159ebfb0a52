"""Storage of tensors that lie on a backend."""

from __future__ import annotations

from math import prod
from typing import ClassVar, Self

import numpy as np

from engine.backends.base import Backend, BackendType, DeviceBuffer
from engine.backends.select import DeviceChoice, shared_backend
from engine.tensor import CPUTensorData, JobMemory, PendingRead, Reader, Tensor, TensorData, Writer


class BufferTensorData(TensorData):
    """Elements in a backend's buffer."""

    shape_or_none: tuple[int, ...]

    def __init__(
        self, backend: Backend, buffer: DeviceBuffer, shape: tuple[int, ...], owned: bool = True
    ) -> None:
        self.backend = backend
        self.buffer = buffer
        self.dtype = buffer.dtype
        self.shape_or_none = shape
        self._owned = owned

    def request(self) -> PendingRead:
        return self.backend.requester(self.buffer, self.shape_or_none)()

    def download(self, out: np.ndarray | None = None) -> np.ndarray:
        return self.backend.reader(self.buffer, self.shape_or_none)(out)

    def upload(self, array: np.ndarray) -> None:
        self.backend.upload(self.buffer, array)

    def dispose(self) -> None:
        if self._owned:
            self._owned = False
            self.buffer.release()


class _Pinned(BufferTensorData):
    """What `pin` of the GPU storages has in common."""

    _backend_type: ClassVar[BackendType]

    @classmethod
    def pin(cls, tensor: Tensor, device: DeviceChoice = None) -> Self:
        """Move a tensor's elements to this kind of storage and return it.

        Elements on the CPU are uploaded without waiting; elements on another backend are downloaded first,
        which blocks.
        """
        data = tensor.data_on_backend
        if isinstance(data, cls):
            return data
        backend = shared_backend(cls._backend_type, device)
        array = data.array if type(data) is CPUTensorData else tensor.download_to_array()
        shape = tuple(tensor.shape)
        with backend.entered():
            buffer = backend.create(max(prod(shape), 1), tensor.dtype, array if array.size else None)
        pinned = cls(backend, buffer, shape)
        tensor._replace_data(pinned)
        return pinned


class ComputeTensorData(_Pinned):
    """Elements in a GPU buffer (GL shader storage, or OpenCL)."""

    _backend_type = BackendType.GPU_COMPUTE


class TextureTensorData(_Pinned):
    """Elements in a texture, four to a texel, in row-major order."""

    _backend_type = BackendType.GPU_PIXEL


class CPUBufferTensorData(BufferTensorData, CPUTensorData):
    """Elements in memory that the CPU backend's jobs write to."""

    @property
    def array(self) -> np.ndarray:
        """A copy of the elements; blocks until the jobs that write them are done."""
        return self.download()

    @property
    def fence(self) -> Writer | None:
        """The last job that was queued on the worker's stream, which writes or reads them; None once it is
        done.
        """
        found: Writer | None = self.backend.fence()
        return found

    @property
    def reuse(self) -> tuple[Reader, ...]:
        """The same: a stream runs its jobs in turn."""
        fence = self.fence
        return () if fence is None else (fence,)

    def for_job(self, writes: bool) -> JobMemory:
        # What is scheduled later writes the same memory: it waits for the job.
        shape = self.shape_or_none
        array = self.buffer.array[: prod(shape)].reshape(shape)  # type: ignore[attr-defined]
        return JobMemory(array, self.reuse, self.backend.owner, self.backend.after)


def storage_of(backend: Backend) -> type[BufferTensorData]:
    """The storage class of a backend's buffers."""
    return {
        "cpu": CPUBufferTensorData,
        "gl_compute": ComputeTensorData,
        "opencl": ComputeTensorData,
        "gl_pixel": TextureTensorData,
    }[backend.name]
