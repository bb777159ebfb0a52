"""A pending readback from the GPU and its staging buffer."""

from __future__ import annotations

import ctypes
import weakref
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from engine.base.errors import DeviceError, DisposedError, ValuePending
from engine.device.gl.functions import GL

if TYPE_CHECKING:
    from engine.device.gl.device import GLDevice


@dataclass(slots=True, eq=False)
class StagingBuffer:
    """A staging buffer; `pointer` is its mapped address, 0 if it is not mapped; `persistent`: always."""

    buffer: int
    size: int
    pointer: int
    upload: bool
    persistent: bool
    fence: int = 0


class StagingReadback:
    """A pending readback, created by `StagingPool.read_buffer` and `read_texture`."""

    def __init__(
        self,
        device: GLDevice,
        staging: StagingBuffer,
        nbytes: int,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
    ) -> None:
        self._device = device
        self._staging = staging
        self._nbytes = nbytes
        self._dtype = dtype
        self._shape = shape
        self._is_done = False
        # May run on any thread: it only leaves the buffer for the device to collect.
        recycling = partial(device.staging.recycle, staging)
        self._finalizer = weakref.finalize(self, device.call_later, recycling)
        self._finalizer.atexit = False

    def done(self) -> bool:
        """Whether the data has arrived; never waits. Raises `DeviceError` if the context was lost."""
        if not self._is_done:
            self._is_done = self._device.poll(self._staging.fence)
        return self._is_done

    def wait(self) -> None:
        """Block until the data has arrived; for a script, not for a frame loop."""
        if not self.done():
            self._device.wait(self._staging.fence)
            self._is_done = True

    def array(self) -> npt.NDArray[Any]:
        """Copy the data to a new array and return the staging buffer to the pool.

        Raises `ValuePending` before `done()` is true.
        """
        value = self.view().copy()
        self.release()
        return value

    def view(self) -> npt.NDArray[Any]:
        """A read-only view of the data, valid until `release`.

        Raises `ValuePending` before `done()` is true.
        """
        if not self._finalizer.alive:
            raise DisposedError("this readback was released; its data is in what array() returned")
        if not self.done():
            raise ValuePending("the readback has not arrived yet; poll done(), or wait()")
        if not self._nbytes:
            return np.empty(self._shape, self._dtype)
        staging = self._staging
        if not staging.pointer:
            gl = self._device.gl
            with self._device.current(flush=False):
                gl.glBindBuffer(GL.COPY_READ_BUFFER, staging.buffer)
                staging.pointer = (
                    gl.glMapBufferRange(GL.COPY_READ_BUFFER, 0, self._nbytes, GL.MAP_READ_BIT) or 0
                )
            if not staging.pointer:
                raise DeviceError(
                    f"OpenGL cannot map a readback of {self._nbytes} bytes; was the context lost?"
                )
        memory = memoryview((ctypes.c_ubyte * self._nbytes).from_address(staging.pointer))
        view = np.frombuffer(memory, self._dtype).reshape(self._shape)
        view.flags.writeable = False
        return view

    def release(self) -> None:
        """Return the staging buffer to the pool; its data is lost unless `array()` copied it."""
        self._finalizer()
