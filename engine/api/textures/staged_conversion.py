"""Conversions staged through host memory: between a texture and a tensor on another device.

Copies never wait. Pending ones are completed by `pump`, which a host calls every frame.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from engine.api.textures.conversion_kernels import Conversion, Grid
from engine.api.textures.host_conversion import HostConversions
from engine.api.textures.images import AnyImage, GLImage
from engine.api.textures.transform import TextureTransform
from engine.backends.base import Backend, BackendType, Readback
from engine.backends.readback import DerivedRead, PendingRead
from engine.backends.select import create_backend
from engine.backends.tensor_data import CPUTensorData, TensorData
from engine.base.errors import InputError
from engine.device.gl.device import GLDevice
from engine.device.gl.functions import GL
from engine.runtime.device_tensor_data import BufferTensorData
from engine.runtime.pending_work import thread_state
from engine.runtime.tensor import Tensor

_RGB = 0x1907
_FORMATS = {1: GL.RED, 2: GL.RG, 3: _RGB, 4: GL.RGBA}


@dataclass
class ConversionCounters:
    """Counters of image conversions since the start or the last `reset`; can be printed."""

    on_device: int = 0
    """Conversions between a texture and a tensor on the same GPU: nothing was copied to the host."""
    on_host: int = 0
    """Conversions of pixels in the computer's memory (their upload to a GPU included)."""
    staged_down: int = 0
    """Readbacks that conversions needed, as texture and tensor lie on different devices."""
    staged_up: int = 0
    bytes_down: int = 0
    bytes_up: int = 0

    def reset(self) -> None:
        """Reset all counters."""
        for item in fields(self):
            setattr(self, item.name, 0)

    def __str__(self) -> str:
        return (
            f"images: {self.on_device} converted on the GPU, {self.on_host} from or to the host's memory;"
            f" staged copies: {self.staged_down} down ({self.bytes_down:,} bytes),"
            f" {self.staged_up} up ({self.bytes_up:,} bytes)"
        )


counters = ConversionCounters()


class StagedTensorData(TensorData):
    """A tensor of one device whose elements are being read back for another device."""

    def __init__(self, source: Tensor) -> None:
        self.dtype = source.dtype
        self.shape_or_none = tuple(source.shape)
        self.source = source
        self._is_handed_on = False
        data = source.data_on_backend
        self._read: PendingRead = data.request()
        self._arrived: CPUTensorData | None = None
        counters.staged_down += 1
        counters.bytes_down += source.size * source.dtype.itemsize

    def fits(self, how: TextureTransform, shape: tuple[int, ...], device: GLDevice) -> bool:
        """Whether the source could hold another tensor of a shape, made by the same device."""
        data = self.source.data_on_backend
        is_there = isinstance(data, BufferTensorData) and data.backend.owner is device
        return is_there and tuple(self.source.shape) == shape and self.dtype == np.dtype(how.dtype)

    def available_data(self) -> TensorData:
        if self._arrived is None and self._read.done():
            self._arrived = CPUTensorData(self._read.array())
        return self if self._arrived is None else self._arrived

    def concrete(self) -> TensorData:
        self._read.wait()
        return self.available_data()

    def request(self) -> PendingRead:
        data = self.available_data()
        return DerivedRead(np.copy, self) if data is self else data.request()

    def done(self) -> bool:
        """Whether the elements have arrived."""
        return self.available_data() is not self

    def wait(self) -> None:
        """Block until they have."""
        self.concrete()

    def array(self) -> np.ndarray:
        """The elements, which others may have, too."""
        data = self.concrete()
        assert isinstance(data, CPUTensorData)
        return data.elements

    def upload(self, array: np.ndarray) -> None:
        self.concrete().upload(array)

    def dispose(self) -> None:
        if not self._is_handed_on:
            self.source.dispose()

    def hand_on(self) -> Tensor:
        """Give up ownership of the source and return it for reuse."""
        self._is_handed_on = True
        return self.source


@dataclass
class _Delivery:
    """A pending write of a tensor into an image."""

    tensor: Tensor
    conversion: Conversion
    target: AnyImage
    key: object
    owner: Any
    """The user's object, so that it lives until it is written."""
    arriving: PendingRead | None = None
    """The tensor, if it is an output: requested at once, as a later schedule may replace it."""
    read: Readback | None = None
    """The pixels."""

    def begin(self) -> None:
        """Convert on the tensor's device, or request a readback."""
        data = self.tensor.available_data
        is_written = isinstance(data, CPUTensorData) and data.fence is not None
        if isinstance(data, BufferTensorData | CPUTensorData) and not is_written:
            self.read = self._start(data)
        else:
            self.arriving = data.request()

    def advance(self) -> bool:
        """Write the image if its elements have arrived; returns whether they have."""
        if self.read is None:
            if self.arriving is None or not self.arriving.done():
                return False
            self.read = self._start(CPUTensorData(self.arriving.array()))
        if not self.read.done():
            return False
        pixels = self.read.array()
        if isinstance(self.target, GLImage):
            _write_texture(self.target, pixels)
        elif self.target.write is not None:
            self.target.write(pixels)
        return True

    def _start(self, data: BufferTensorData | CPUTensorData) -> Readback:
        grid = self.conversion.grid
        if isinstance(data, BufferTensorData):
            backend, buffer = data.backend, data.storage
        else:
            assert isinstance(data, CPUTensorData)
            backend = cpu_backend()
            buffer = backend.create(data.elements.size, data.dtype, data.elements)
        conversions = HostConversions.of(backend)
        pixels = conversions.to_pixels(backend, buffer, self.conversion)
        with backend.entered():
            read = backend.readback(pixels)
            backend.flush()
        if not backend.is_host:
            counters.staged_down += 1
            counters.bytes_down += grid.size * grid.storage.itemsize
        return read


class PendingTextureWrites:
    """A thread's pending writes of tensors into images; the latest one into an image wins."""

    def __init__(self) -> None:
        self._pending: list[_Delivery] = []

    def __len__(self) -> int:
        return len(self._pending)

    def count(self, owner: Any) -> int:
        """How many writes into one user's object are pending."""
        return sum(delivery.owner is owner for delivery in self._pending)

    def send(
        self, tensor: Tensor, transform: TextureTransform, slot: int, target: AnyImage, owner: Any
    ) -> None:
        """Copy a tensor into an image now if it is available, else in a later `pump`."""
        if not isinstance(target, GLImage) and target.write is None:
            raise InputError(f"a {type(owner).__name__} of this kind cannot be written")
        key = (target.device, target.name) if isinstance(target, GLImage) else id(owner)
        conversion = Conversion(host_grid(target), transform, tuple(tensor.shape), slot)
        delivery = _Delivery(tensor, conversion, target, key, owner)
        delivery.begin()
        self._pending.append(delivery)
        counters.on_host += 1
        self.pump()

    def pump(self, budget_ms: float | None = None) -> bool:
        """Write what has arrived; True when nothing is pending. Raises the first error; others continue."""
        waiting: list[_Delivery] = []
        failed: Exception | None = None
        for delivery in self._pending:
            if isinstance(delivery.target, GLImage) and delivery.target.is_released:
                continue  # nobody will see it
            try:
                arrived = delivery.advance()
            except Exception as error:  # noqa: BLE001 - raised below
                failed = failed or error
                continue
            if arrived:
                waiting = [older for older in waiting if older.key != delivery.key]
            else:
                waiting.append(delivery)
        self._pending = waiting
        (thread_state.pending.add if waiting else thread_state.pending.discard)(self)
        if failed is not None:
            raise failed
        return not waiting


def host_grid(image: AnyImage) -> Grid:
    """The layout of an image's pixels on the host."""
    grid = image.grid
    if isinstance(image, GLImage):
        dtype = "uint8" if grid.rounds else "float32"
        return Grid(grid.width, grid.height, grid.order, dtype, grid.rounds, grid.top_down)
    return grid


def _write_texture(target: GLImage, pixels: np.ndarray) -> None:
    """Upload through a buffer that nothing waits for."""
    grid, device = target.grid, target.device
    component = GL.UNSIGNED_BYTE if pixels.dtype == np.uint8 else GL.FLOAT
    size = (grid.width, grid.height)
    with device.current(after_game=True, before_game=True):
        device.staging.write_texture(target.name, size, _FORMATS[len(grid.order)], component, pixels)
    counters.staged_up += 1
    counters.bytes_up += pixels.nbytes


_here = threading.local()
"""Each thread's own: `deliveries`, and `cpu_backend`, a stream for tensors that belong to no worker."""


def deliveries() -> PendingTextureWrites:
    """The calling thread's pending writes."""
    found: PendingTextureWrites | None = getattr(_here, "deliveries", None)
    if found is None:
        found = _here.deliveries = PendingTextureWrites()
    return found


def cpu_backend() -> Backend:
    """The CPU backend that image conversions on this thread use."""
    backend: Backend | None = getattr(_here, "cpu_backend", None)
    if backend is None or backend.owner.is_closed:
        backend = _here.cpu_backend = create_backend(BackendType.CPU)
    return backend
