"""Readbacks and uploads that never wait: staging buffers, fences, and a pool that uses them again."""

from __future__ import annotations

import ctypes
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from engine.devices.gl_functions import GL
from engine.errors import DeviceError, DisposedError, ValuePending

if TYPE_CHECKING:
    from engine.devices.gl import GLDevice

_SMALLEST = 4096
# Idle staging memory kept for the next readback: about ten full-HD RGBA images.
_IDLE_LIMIT = 64 << 20


class _Staging:
    """One buffer; `pointer` is where it is mapped, 0 if it is not."""

    __slots__ = ("buffer", "fence", "persistent", "pointer", "size", "upload")

    def __init__(self, buffer: int, size: int, pointer: int, upload: bool) -> None:
        self.buffer = buffer
        self.size = size
        self.pointer = pointer
        self.persistent = pointer != 0
        self.upload = upload
        self.fence = 0


class StagingPool:
    """The staging buffers of one device, by size and direction.

    With buffer storage (OpenGL 4.4) a buffer stays mapped for its life, and reading a finished one is a
    memory copy without any OpenGL call; without, it is mapped after its fence was seen to have passed,
    which does not wait.
    """

    def __init__(self, device: GLDevice) -> None:
        # The device owns the pool: a strong reference back would keep both until the garbage collector
        # runs.
        self._device_ref = weakref.ref(device)
        self._persistent = device.info.has_buffer_storage
        self._idle: dict[tuple[int, bool], list[_Staging]] = {}
        self._idle_bytes = 0
        self._busy_uploads: list[_Staging] = []
        self._framebuffer = 0
        self._all: set[_Staging] = set()

    def read_buffer(
        self,
        buffer: int,
        nbytes: int,
        dtype: npt.DTypeLike,
        shape: tuple[int, ...] | None = None,
        *,
        offset: int = 0,
    ) -> StagingReadback:
        """Start copying a range of a buffer to the CPU, in order with what was issued before.

        Args:
            buffer: OpenGL name of the buffer.
            nbytes: how much, in bytes.
            dtype: of the array that is read.
            shape: of the array that is read, one-dimensional if None.
            offset: where in the buffer, in bytes.
        """
        device = self._device
        gl = device.gl
        with device.current():
            staging = self._acquire(nbytes, upload=False)
            if device.info.version_code >= 420:
                gl.glMemoryBarrier(GL.BUFFER_UPDATE_BARRIER_BIT)
            gl.glBindBuffer(GL.COPY_READ_BUFFER, buffer)
            gl.glBindBuffer(GL.COPY_WRITE_BUFFER, staging.buffer)
            gl.glCopyBufferSubData(GL.COPY_READ_BUFFER, GL.COPY_WRITE_BUFFER, offset, 0, nbytes)
            return self._finish_read(staging, nbytes, dtype, shape)

    def read_texture(
        self,
        texture: int,
        size: tuple[int, int],
        pixel_format: int,
        pixel_type: int,
        dtype: npt.DTypeLike,
        shape: tuple[int, ...],
        *,
        origin: tuple[int, int] = (0, 0),
    ) -> StagingReadback:
        """Start copying a rectangle of a two-dimensional texture to the CPU, bottom row first, rows tight.

        Args:
            texture: OpenGL name of the texture; it must be of a kind that can be drawn to.
            size: width and height, in texels.
            pixel_format: such as `GL.RGBA` or `GL.RGBA_INTEGER`.
            pixel_type: such as `GL.FLOAT` or `GL.INT`.
            dtype: of the array that is read.
            shape: of the array that is read; its bytes must be those of the rectangle.
            origin: left column and bottom row, in texels.
        """
        device = self._device
        gl = device.gl
        nbytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        with device.current():
            staging = self._acquire(nbytes, upload=False)
            if not self._framebuffer:
                self._framebuffer = _generate(gl.glGenFramebuffers)
            # Only the read binding: a framebuffer that is bound for drawing stays so.
            gl.glBindFramebuffer(GL.READ_FRAMEBUFFER, self._framebuffer)
            gl.glFramebufferTexture2D(GL.READ_FRAMEBUFFER, GL.COLOR_ATTACHMENT0, GL.TEXTURE_2D, texture, 0)
            gl.glReadBuffer(GL.COLOR_ATTACHMENT0)
            gl.glPixelStorei(GL.PACK_ALIGNMENT, 1)
            gl.glBindBuffer(GL.PIXEL_PACK_BUFFER, staging.buffer)
            gl.glReadPixels(*origin, *size, pixel_format, pixel_type, None)
            gl.glBindBuffer(GL.PIXEL_PACK_BUFFER, 0)
            # Left attached, the texture would live on after its deletion.
            gl.glFramebufferTexture2D(GL.READ_FRAMEBUFFER, GL.COLOR_ATTACHMENT0, GL.TEXTURE_2D, 0, 0)
            return self._finish_read(staging, nbytes, dtype, shape)

    def write_buffer(self, buffer: int, data: npt.NDArray[Any] | bytes, *, offset: int = 0) -> None:
        """Copy data into a buffer, in order with what was issued before and without waiting for its users."""
        device = self._device
        gl = device.gl
        source = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else _bytes_of(data)
        if not source.nbytes:
            return
        with device.current():
            staging = self._fill(source)
            gl.glBindBuffer(GL.COPY_READ_BUFFER, staging.buffer)
            gl.glBindBuffer(GL.COPY_WRITE_BUFFER, buffer)
            if device.info.version_code >= 420:
                gl.glMemoryBarrier(GL.BUFFER_UPDATE_BARRIER_BIT)
            gl.glCopyBufferSubData(GL.COPY_READ_BUFFER, GL.COPY_WRITE_BUFFER, 0, offset, source.nbytes)
            self._finish_write(staging, source.nbytes)

    def write_texture(
        self,
        texture: int,
        size: tuple[int, int],
        pixel_format: int,
        pixel_type: int,
        data: npt.NDArray[Any],
        *,
        origin: tuple[int, int] = (0, 0),
    ) -> None:
        """Copy data into a rectangle of a two-dimensional texture; like `write_buffer`, rows tight, bottom
        first.

        It leaves the texture unit that is active bound to nothing.
        """
        gl = self._device.gl
        source = _bytes_of(data)
        with self._device.current():
            staging = self._fill(source)
            gl.glPixelStorei(GL.UNPACK_ALIGNMENT, 1)
            gl.glBindBuffer(GL.PIXEL_UNPACK_BUFFER, staging.buffer)
            gl.glBindTexture(GL.TEXTURE_2D, texture)
            gl.glTexSubImage2D(GL.TEXTURE_2D, 0, *origin, *size, pixel_format, pixel_type, None)
            gl.glBindTexture(GL.TEXTURE_2D, 0)
            gl.glBindBuffer(GL.PIXEL_UNPACK_BUFFER, 0)
            self._finish_write(staging, source.nbytes)

    def dispose(self) -> None:
        """Delete every staging buffer; the device's context must be current."""
        gl = self._device.gl
        for staging in list(self._all):
            self._delete(staging)
        if self._framebuffer:
            gl.glDeleteFramebuffers(1, ctypes.byref(ctypes.c_uint(self._framebuffer)))
        self._idle.clear()
        self._busy_uploads.clear()
        self._framebuffer = self._idle_bytes = 0

    @property
    def _device(self) -> GLDevice:
        device = self._device_ref()
        if device is None:
            raise DisposedError("the OpenGL device behind this readback is gone")
        return device

    def _finish_read(
        self, staging: _Staging, nbytes: int, dtype: npt.DTypeLike, shape: tuple[int, ...] | None
    ) -> StagingReadback:
        device = self._device
        staging.fence = device.gl.glFenceSync(GL.SYNC_GPU_COMMANDS_COMPLETE, 0)
        # Without it a poll might ask for ever about a fence that never left for the GPU.
        device.gl.glFlush()
        device.counters.readbacks += 1
        device.counters.bytes_down += nbytes
        item = np.dtype(dtype)
        return StagingReadback(
            device, staging, nbytes, item, (nbytes // item.itemsize,) if shape is None else shape
        )

    def _finish_write(self, staging: _Staging, nbytes: int) -> None:
        device = self._device
        staging.fence = device.gl.glFenceSync(GL.SYNC_GPU_COMMANDS_COMPLETE, 0)
        self._busy_uploads.append(staging)
        device.counters.uploads += 1
        device.counters.bytes_up += nbytes

    def _fill(self, source: npt.NDArray[np.uint8]) -> _Staging:
        """An upload buffer with these bytes in it."""
        gl = self._device.gl
        # In order of issue: the first that is still in use ends the search.
        while self._busy_uploads and self._device.poll(self._busy_uploads[0].fence):
            self._recycle(self._busy_uploads.pop(0))
        staging = self._acquire(source.nbytes, upload=True)
        pointer = staging.pointer
        if not staging.persistent:
            gl.glBindBuffer(GL.COPY_READ_BUFFER, staging.buffer)
            # Its last use is behind a fence that has passed, so there is nothing to synchronise with.
            access = GL.MAP_WRITE_BIT | GL.MAP_INVALIDATE_RANGE_BIT | GL.MAP_UNSYNCHRONIZED_BIT
            pointer = gl.glMapBufferRange(GL.COPY_READ_BUFFER, 0, source.nbytes, access)
            if not pointer:
                raise DeviceError(
                    f"OpenGL cannot map {source.nbytes} bytes for an upload; is memory exhausted?"
                )
        ctypes.memmove(pointer, source.ctypes.data, source.nbytes)
        if not staging.persistent:
            gl.glUnmapBuffer(GL.COPY_READ_BUFFER)
        return staging

    def _acquire(self, nbytes: int, *, upload: bool) -> _Staging:
        size = max(_SMALLEST, 1 << max(0, nbytes - 1).bit_length())
        idle = self._idle.get((size, upload))
        if idle:
            self._idle_bytes -= size
            return idle.pop()
        return self._create(size, upload)

    def _create(self, size: int, upload: bool) -> _Staging:
        gl = self._device.gl
        buffer = _generate(gl.glGenBuffers)
        gl.glBindBuffer(GL.COPY_WRITE_BUFFER, buffer)
        pointer = 0
        if self._persistent:
            access = GL.MAP_WRITE_BIT if upload else GL.MAP_READ_BIT
            access |= GL.MAP_PERSISTENT_BIT | GL.MAP_COHERENT_BIT
            storage = access if upload else access | GL.CLIENT_STORAGE_BIT
            gl.glBufferStorage(GL.COPY_WRITE_BUFFER, size, None, storage)
            pointer = gl.glMapBufferRange(GL.COPY_WRITE_BUFFER, 0, size, access) or 0
            if not pointer:
                raise DeviceError(f"OpenGL cannot map a staging buffer of {size} bytes; is memory exhausted?")
        else:
            gl.glBufferData(GL.COPY_WRITE_BUFFER, size, None, GL.STREAM_DRAW if upload else GL.STREAM_READ)
        staging = _Staging(buffer, size, pointer, upload)
        self._all.add(staging)
        return staging

    def _recycle(self, staging: _Staging) -> None:
        """Keep a buffer for the next use; on the device's thread with its context current."""
        gl = self._device.gl
        if staging.fence:
            gl.glDeleteSync(staging.fence)
            staging.fence = 0
        if not staging.persistent and staging.pointer:
            gl.glBindBuffer(GL.COPY_READ_BUFFER, staging.buffer)
            gl.glUnmapBuffer(GL.COPY_READ_BUFFER)
            staging.pointer = 0
        if self._idle_bytes + staging.size > _IDLE_LIMIT:
            self._delete(staging)
            return
        self._idle_bytes += staging.size
        self._idle.setdefault((staging.size, staging.upload), []).append(staging)

    def _delete(self, staging: _Staging) -> None:
        gl = self._device.gl
        if staging.fence:
            gl.glDeleteSync(staging.fence)
            staging.fence = 0
        # Deleting a buffer unmaps it.
        gl.glDeleteBuffers(1, ctypes.byref(ctypes.c_uint(staging.buffer)))
        staging.pointer = 0
        self._all.discard(staging)


class StagingReadback:
    """Data on its way from the GPU. Made by `StagingPool.read_buffer` and `read_texture`."""

    def __init__(
        self, device: GLDevice, staging: _Staging, nbytes: int, dtype: np.dtype[Any], shape: tuple[int, ...]
    ) -> None:
        self._device = device
        self._staging = staging
        self._nbytes = nbytes
        self._dtype = dtype
        self._shape = shape
        self._is_done = False
        self._value: npt.NDArray[Any] | None = None
        # May run on any thread: it only leaves the buffer for the device to collect.
        self._finalizer = weakref.finalize(self, device.call_later, _Recycle(device.staging, staging))
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

    def array(self, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        """The data in an array of its own (or in `out`); the staging buffer goes back to the pool.

        Raises `ValuePending` before `done()` is true.
        """
        if self._value is None:
            view = self.view()
            if out is not None:
                np.copyto(out, view, casting="same_kind")
                return out
            self._value = view.copy()
            self.release()
        if out is None:
            return self._value
        np.copyto(out, self._value, casting="same_kind")
        return out

    def view(self) -> npt.NDArray[Any]:
        """The data where it lies, read-only, valid until `release`.

        Raises `ValuePending` before `done()` is true.
        """
        if not self._finalizer.alive:
            raise DisposedError("this readback was released; its data is in what array() returned")
        if not self.done():
            raise ValuePending("the readback is still on its way; poll done(), or wait()")
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
        """Give the staging buffer back; its data is gone unless `array()` copied it."""
        self._finalizer()


class _Recycle:
    """Gives a staging buffer back to its pool; holds no reference to the readback."""

    def __init__(self, pool: StagingPool, staging: _Staging) -> None:
        self._pool = pool
        self._staging = staging

    def __call__(self) -> None:
        self._pool._recycle(self._staging)


def _generate(generate: Any) -> int:
    name = ctypes.c_uint(0)
    generate(1, ctypes.byref(name))
    return name.value


def _bytes_of(data: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(data).reshape(-1).view(np.uint8)
