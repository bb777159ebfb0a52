"""Asynchronous readbacks and uploads: staging buffers, fences, and a pool that reuses them."""

from __future__ import annotations

import ctypes
import weakref
from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from engine.base.errors import OutOfMemoryError
from engine.base.memory.aligned import address_of
from engine.device.gl.functions import GL, generate
from engine.device.gl.staging_readback import StagingBuffer, StagingReadback

if TYPE_CHECKING:
    from engine.device.gl.device import GLDevice
    from engine.device.gl.shared_context import SharedContext

_SMALLEST = 4096
# A smaller one is created in a tenth of a millisecond.
_WORTH = 1 << 17
# Data of fewer bytes share one, in which each begins at a multiple of the step.
_SMALL, _STEP = 1 << 14, 16
# Idle staging memory kept for the next readback: about ten full-HD RGBA images.
_IDLE_LIMIT = 64 << 20


class StagingPool:
    """The staging buffers of one device, by size and direction.

    With buffer storage (OpenGL 4.4) a buffer stays mapped for its life, and reading a finished one is a
    memory copy without any OpenGL call; without, it is mapped after its fence was seen to have passed,
    which does not wait.
    """

    def __init__(self, device: GLDevice) -> None:
        # The device owns the pool: a strong reference back would keep both until the garbage collector
        # runs.
        self._device: GLDevice = weakref.proxy(device)
        self._persistent = device.info.has_buffer_storage
        self._idle: dict[tuple[int, bool], list[StagingBuffer]] = {}
        self._idle_bytes = 0
        # Uploads that no fence follows yet, and groups of earlier ones, each with its fence.
        self._unfenced: list[StagingBuffer] = []
        self._busy_uploads: list[tuple[int, list[StagingBuffer]]] = []
        # Those that other threads have created, and in which directions there were transfers at all.
        self._created: deque[StagingBuffer] = deque()
        self._directions: set[bool] = set()
        self._framebuffer = 0
        self._all: set[StagingBuffer] = set()

    def read_buffer(
        self,
        buffer: int,
        nbytes: int,
        dtype: npt.DTypeLike,
        *,
        written_by_shader: bool = True,
    ) -> StagingReadback:
        """Start copying the first bytes of a buffer to the CPU, in order with earlier commands.

        Args:
            buffer: OpenGL name of the buffer.
            nbytes: how much, in bytes.
            dtype: of the array that is read, which has one dimension.
            written_by_shader: whether a shader may have stored into it: the copy then needs a barrier
                (on which llvmpipe waits).
        """
        device = self._device
        gl = device.gl
        with device.current():
            staging = self._acquire(nbytes, upload=False)
            if written_by_shader and device.info.supports_compute:
                gl.glMemoryBarrier(GL.BUFFER_UPDATE_BARRIER_BIT)
            gl.glBindBuffer(GL.COPY_READ_BUFFER, buffer)
            gl.glBindBuffer(GL.COPY_WRITE_BUFFER, staging.buffer)
            gl.glCopyBufferSubData(GL.COPY_READ_BUFFER, GL.COPY_WRITE_BUFFER, 0, 0, nbytes)
            return self._finish_read(staging, nbytes, dtype, (nbytes // np.dtype(dtype).itemsize,))

    def read_texture(
        self,
        texture: int,
        size: tuple[int, int],
        pixel_format: int,
        pixel_type: int,
        dtype: npt.DTypeLike,
        shape: tuple[int, ...],
    ) -> StagingReadback:
        """Start copying the first rows of a two-dimensional texture to the CPU, bottom row first, rows tight.

        Args:
            texture: OpenGL name of the texture; it must be of a kind that can be drawn to.
            size: width and height, in texels.
            pixel_format: such as `GL.RGBA` or `GL.RGBA_INTEGER`.
            pixel_type: such as `GL.FLOAT` or `GL.INT`.
            dtype: of the array that is read.
            shape: of the array that is read; its bytes must be those of the rectangle.
        """
        device = self._device
        gl = device.gl
        nbytes = prod(shape) * np.dtype(dtype).itemsize
        with device.current():
            staging = self._acquire(nbytes, upload=False)
            if not self._framebuffer:
                self._framebuffer = generate(gl.glGenFramebuffers)
            # Only the read binding: a framebuffer that is bound for drawing stays so.
            gl.glBindFramebuffer(GL.READ_FRAMEBUFFER, self._framebuffer)
            gl.glFramebufferTexture2D(GL.READ_FRAMEBUFFER, GL.COLOR_ATTACHMENT0, GL.TEXTURE_2D, texture, 0)
            gl.glReadBuffer(GL.COLOR_ATTACHMENT0)
            gl.glPixelStorei(GL.PACK_ALIGNMENT, 1)
            gl.glBindBuffer(GL.PIXEL_PACK_BUFFER, staging.buffer)
            gl.glReadPixels(0, 0, *size, pixel_format, pixel_type, None)
            gl.glBindBuffer(GL.PIXEL_PACK_BUFFER, 0)
            # Left attached, the texture would live on after its deletion.
            gl.glFramebufferTexture2D(GL.READ_FRAMEBUFFER, GL.COLOR_ATTACHMENT0, GL.TEXTURE_2D, 0, 0)
            return self._finish_read(staging, nbytes, dtype, shape)

    def write_buffer(self, buffer: int, data: npt.NDArray[Any] | bytes) -> None:
        """Copy data to the start of a buffer, in order with earlier commands and without waiting for them.

        Args:
            buffer: OpenGL name of the buffer, which only uploads change.
            data: what to copy; it may be changed once this returns.
        """
        self.write_buffers([(buffer, np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data)])

    def write_buffers(self, writes: Sequence[tuple[int, npt.NDArray[Any]]]) -> None:
        """Copy data to several buffers, as `write_buffer` does; small ones share a staging buffer."""
        small: list[tuple[int, npt.NDArray[np.uint8]]] = []
        room = _WORTH
        for buffer, data in writes:
            source = _bytes_of(data)
            if 0 < source.nbytes < min(_SMALL, room):
                small.append((buffer, source))
                room -= _spaced(source)
            elif source.nbytes:
                self._write_together([(buffer, source)])
        if small:
            self._write_together(small)

    def _write_together(self, writes: Sequence[tuple[int, npt.NDArray[np.uint8]]]) -> None:
        gl, sources = self._device.gl, [source for _, source in writes]
        *begins, nbytes = accumulate(map(_spaced, sources), initial=0)
        with self._device.current():
            staging = self._fill(sources, begins, nbytes)
            gl.glBindBuffer(GL.COPY_READ_BUFFER, staging.buffer)
            for (buffer, source), begin in zip(writes, begins, strict=True):
                gl.glBindBuffer(GL.COPY_WRITE_BUFFER, buffer)
                gl.glCopyBufferSubData(GL.COPY_READ_BUFFER, GL.COPY_WRITE_BUFFER, begin, 0, source.nbytes)
            self._finish_write(staging, sources)

    def write_texture(
        self,
        texture: int,
        size: tuple[int, int],
        pixel_format: int,
        pixel_type: int,
        data: npt.NDArray[Any],
    ) -> None:
        """Copy tightly packed data to the first rows of a 2-D texture, bottom row first; see `write_buffer`.

        It leaves the texture unit that is active bound to nothing.
        """
        gl = self._device.gl
        source = _bytes_of(data)
        with self._device.current():
            staging = self._fill([source], [0], source.nbytes)
            gl.glPixelStorei(GL.UNPACK_ALIGNMENT, 1)
            gl.glBindBuffer(GL.PIXEL_UNPACK_BUFFER, staging.buffer)
            gl.glBindTexture(GL.TEXTURE_2D, texture)
            gl.glTexSubImage2D(GL.TEXTURE_2D, 0, 0, 0, *size, pixel_format, pixel_type, None)
            gl.glBindTexture(GL.TEXTURE_2D, 0)
            gl.glBindBuffer(GL.PIXEL_UNPACK_BUFFER, 0)
            self._finish_write(staging, [source])

    def create_ahead(self, nbytes: int, upload: bool, context: GLDevice | SharedContext) -> None:
        """Create buffers ahead for transfers of about this size, in the calling thread's context.

        Not for small ones, and not before there was a transfer in that direction.
        """
        if upload not in self._directions:
            return
        for size in {_size_for(nbytes), _size_for(nbytes * 2 // 3)}:
            if size >= _WORTH and not self._idle.get((size, upload)):
                with context.current():
                    staging = self._create(size, upload, context)
                self._created.append(staging)

    def dispose(self) -> None:
        """Delete every staging buffer; the device's context must be current."""
        gl = self._device.gl
        for staging in list(self._all):
            self._delete(staging)
        for fence, _ in self._busy_uploads:
            gl.glDeleteSync(fence)
        if self._framebuffer:
            gl.glDeleteFramebuffers(1, ctypes.byref(ctypes.c_uint(self._framebuffer)))
        self._idle.clear()
        self._created.clear()
        self._busy_uploads.clear()
        self._unfenced.clear()
        self._framebuffer = self._idle_bytes = 0

    def _finish_read(
        self, staging: StagingBuffer, nbytes: int, dtype: npt.DTypeLike, shape: tuple[int, ...]
    ) -> StagingReadback:
        device = self._device
        staging.fence = device.gl.glFenceSync(GL.SYNC_GPU_COMMANDS_COMPLETE, 0)
        # Without it a poll might wait forever for a fence that was never submitted to the GPU.
        device.gl.glFlush()
        device.counters.readbacks += 1
        device.counters.bytes_down += nbytes
        return StagingReadback(device, staging, nbytes, np.dtype(dtype), shape)

    def _finish_write(self, staging: StagingBuffer, sources: Sequence[npt.NDArray[np.uint8]]) -> None:
        counters = self._device.counters
        self._unfenced.append(staging)
        counters.uploads += len(sources)
        counters.bytes_up += sum([source.nbytes for source in sources])

    def fence_uploads(self) -> None:
        """Put one fence behind the uploads since the last call, whose buffers are free once it has passed.

        The device's context must be current. A schedule's uploads have one fence, which comes before its
        program; others have it when the context is left.
        """
        if self._unfenced:
            fence = self._device.gl.glFenceSync(GL.SYNC_GPU_COMMANDS_COMPLETE, 0)
            self._busy_uploads.append((fence, self._unfenced))
            self._unfenced = []

    def _fill(
        self, sources: Sequence[npt.NDArray[np.uint8]], begins: Sequence[int], nbytes: int
    ) -> StagingBuffer:
        """An upload buffer of so many bytes, with some of them from each place on."""
        gl = self._device.gl
        # In order of issue: the first that is still in use ends the search.
        while self._busy_uploads and self._device.poll(self._busy_uploads[0][0]):
            fence, free = self._busy_uploads.pop(0)
            gl.glDeleteSync(fence)
            for staging in free:
                self._keep(staging)
        staging = self._acquire(nbytes, upload=True)
        pointer = staging.pointer
        if not staging.persistent:
            gl.glBindBuffer(GL.COPY_READ_BUFFER, staging.buffer)
            # Its last use is behind a fence that has passed, so there is nothing to synchronise with.
            access = GL.MAP_WRITE_BIT | GL.MAP_INVALIDATE_RANGE_BIT | GL.MAP_UNSYNCHRONIZED_BIT
            pointer = gl.glMapBufferRange(GL.COPY_READ_BUFFER, 0, nbytes, access)
            if not pointer:
                raise OutOfMemoryError(
                    f"OpenGL cannot map {nbytes} bytes for an upload; is memory exhausted?"
                )
        for source, begin in zip(sources, begins, strict=True):
            ctypes.memmove(pointer + begin, address_of(source), source.nbytes)
        if not staging.persistent:
            gl.glUnmapBuffer(GL.COPY_READ_BUFFER)
        return staging

    def _acquire(self, nbytes: int, *, upload: bool) -> StagingBuffer:
        size = _size_for(nbytes)
        self._directions.add(upload)
        while self._created:
            self._keep(self._created.popleft())
        idle = self._idle.get((size, upload))
        if idle:
            self._idle_bytes -= size
            return idle.pop()
        if upload:
            self.fence_uploads()
        return self._create(size, upload, self._device)

    def _create(self, size: int, upload: bool, context: GLDevice | SharedContext) -> StagingBuffer:
        gl = context.gl
        buffer = generate(gl.glGenBuffers)
        gl.glBindBuffer(GL.COPY_WRITE_BUFFER, buffer)
        pointer = 0
        if self._persistent:
            access = GL.MAP_WRITE_BIT if upload else GL.MAP_READ_BIT
            access |= GL.MAP_PERSISTENT_BIT | GL.MAP_COHERENT_BIT
            storage = access if upload else access | GL.CLIENT_STORAGE_BIT
            gl.glBufferStorage(GL.COPY_WRITE_BUFFER, size, None, storage)
            pointer = gl.glMapBufferRange(GL.COPY_WRITE_BUFFER, 0, size, access) or 0
            if not pointer:
                gl.glDeleteBuffers(1, ctypes.byref(ctypes.c_uint(buffer)))
                gl.glGetError()  # known now, and not to be taken for another's
                raise OutOfMemoryError(f"OpenGL has no memory for a staging buffer of {size} bytes")
        else:
            gl.glBufferData(GL.COPY_WRITE_BUFFER, size, None, GL.STREAM_DRAW if upload else GL.STREAM_READ)
        staging = StagingBuffer(buffer, size, pointer, upload, self._persistent)
        self._all.add(staging)
        return staging

    def recycle(self, staging: StagingBuffer) -> None:
        """Return a buffer to the pool; on the device's thread with its context current."""
        gl = self._device.gl
        self._delete_fence(staging)
        if not staging.persistent and staging.pointer:
            gl.glBindBuffer(GL.COPY_READ_BUFFER, staging.buffer)
            gl.glUnmapBuffer(GL.COPY_READ_BUFFER)
            staging.pointer = 0
        self._keep(staging)

    def _keep(self, staging: StagingBuffer) -> None:
        """Keep a buffer for the next transfer, unless there are many."""
        if self._idle_bytes + staging.size > _IDLE_LIMIT:
            self._delete(staging)
            return
        self._idle_bytes += staging.size
        self._idle.setdefault((staging.size, staging.upload), []).append(staging)

    def _delete(self, staging: StagingBuffer) -> None:
        self._delete_fence(staging)
        # Deleting a buffer unmaps it.
        self._device.gl.glDeleteBuffers(1, ctypes.byref(ctypes.c_uint(staging.buffer)))
        staging.pointer = 0
        self._all.discard(staging)

    def _delete_fence(self, staging: StagingBuffer) -> None:
        if staging.fence:
            self._device.gl.glDeleteSync(staging.fence)
            staging.fence = 0


def _size_for(nbytes: int) -> int:
    """Bytes of a staging buffer for a transfer."""
    return max(_SMALLEST, 1 << max(0, nbytes - 1).bit_length())


def _spaced(source: npt.NDArray[np.uint8]) -> int:
    """The bytes that data take in a shared staging buffer."""
    return -(-source.nbytes // _STEP) * _STEP


def _bytes_of(data: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(data).reshape(-1).view(np.uint8)
