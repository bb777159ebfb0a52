"""Buffers of the compute backend: GL buffers, and buffer textures as views of them."""

from __future__ import annotations

from collections.abc import Callable

import moderngl
import numpy as np

from engine.backends.gl.memory import GLBuffer, GLObjects
from engine.backends.gl.storage import STORAGE_FORMATS, memory_dtype
from engine.backends.growable_memory import GrowableBlock
from engine.device.gl.device import GLDevice
from engine.device.gl.functions import GL
from engine.device.gl.shared_context import SharedContext
from engine.kernels.size import largest

TEXTURE_BUFFER = 0x8C2A
# A view as four-component texels covers whole texels only, and shaders store whole 32-bit words.
_SIZE_STEP = 16

_FORMATS = {
    ("float32", 1): GL.R32F,
    ("float32", 4): GL.RGBA32F,
    ("float16", 1): GL.R16F,
    ("int32", 1): GL.R32I,
    ("int32", 4): GL.RGBA32I,
    ("int16", 1): 0x8233,
    ("int8", 1): 0x8231,
    ("uint32", 1): GL.R32UI,
    ("uint16", 1): 0x8234,
    ("uint8", 1): 0x8232,
    ("uint8", 4): 0x8D7C,
}
"""Of buffer textures, by the NumPy type of an element in memory and how many a texel has."""


def buffer_size(elements: int, dtype: np.dtype) -> int:
    """Bytes that a tensor takes; empty ones take a little, as OpenGL has no empty bindings."""
    return largest(1, -(-elements * memory_dtype(dtype).itemsize // _SIZE_STEP)) * _SIZE_STEP


class GLMemory(GLObjects):
    """One GL buffer and its buffer textures, deleted together.

    context: where to allocate it, if not in the device's.
    """

    name: int

    def __init__(
        self,
        device: GLDevice,
        nbytes: int,
        data: np.ndarray | None = None,
        context: GLDevice | SharedContext | None = None,
    ) -> None:
        super().__init__(device)
        self.nbytes = nbytes
        self._textures: dict[tuple[int, int, int], int] = {}
        self.spare_textures: dict[int, list[np.ndarray]] = {}
        """Names of textures to be lent, by how many: to make and delete those of a plan takes long."""
        self._allocate(data, context or device)

    @property
    def whole(self) -> GLMemory:
        """The memory that owns the GL buffer."""
        return self

    @property
    def has_textures(self) -> bool:
        """Whether there are buffer textures over it."""
        return bool(self._textures)

    def _allocate(self, data: np.ndarray | None, context: GLDevice | SharedContext) -> None:
        nbytes, gl = self.nbytes, context.gl
        with context.current(flush=False):
            self.name = self.generate("Buffers", context)
            gl.glBindBuffer(GL.COPY_WRITE_BUFFER, self.name)
            exact = data is not None and data.nbytes == nbytes
            pointer = data.ctypes.data if data is not None and exact else None
            gl.glBufferData(GL.COPY_WRITE_BUFFER, nbytes, pointer, GL.DYNAMIC_COPY)
            if data is not None and data.nbytes and not exact:
                # The storage is new, so no command can be using it.
                gl.glBufferSubData(GL.COPY_WRITE_BUFFER, 0, data.nbytes, data.ctypes.data)

    def clear(self) -> None:
        """Fill it with zeros."""
        gl = self.device.gl
        gl.glBindBuffer(GL.COPY_WRITE_BUFFER, self.name)
        word = GL.R32UI, GL.RED_INTEGER, GL.UNSIGNED_INT
        gl.glClearBufferData(GL.COPY_WRITE_BUFFER, *word, None)

    def texture(
        self,
        memory: str,
        width: int,
        offset: int,
        nbytes: int,
        context: GLDevice | SharedContext | None = None,
    ) -> int:
        """The GL name of a buffer texture over a range.

        memory: NumPy type of an element. width: 1 or 4. context: where to make it, if not in the device's.
        """
        context = context or self.device
        kind = texture_format(memory, width)
        key = (kind, offset, nbytes)
        if key not in self._textures:
            gl = context.gl
            with context.current(flush=False):
                name = self.generate("Textures", context)
                gl.glBindTexture(TEXTURE_BUFFER, name)
                gl.glTexBufferRange(TEXTURE_BUFFER, kind, self.name, offset, nbytes)
                gl.glBindTexture(TEXTURE_BUFFER, 0)
            self._textures[key] = name
        return self._textures[key]


class SharedMemory(GLMemory):
    """A part, from the start, of another memory, which lives as long; the buffer textures are its own."""

    def __init__(self, whole: GLMemory, nbytes: int) -> None:
        self._whole = whole
        self._lent: np.ndarray | None = None
        assert isinstance(whole.device, GLDevice)
        super().__init__(whole.device, nbytes)

    @property
    def whole(self) -> GLMemory:
        """The memory that owns the GL buffer."""
        return self._whole

    def _allocate(self, data: np.ndarray | None, context: GLDevice | SharedContext) -> None:
        self.name = self._whole.name

    def lend_textures(self, count: int) -> np.ndarray:
        """The GL names of textures that are this memory's until its release, and deleted with the whole."""
        if self._lent is not None:
            return self._lent
        spare = self._whole.spare_textures.get(count)
        if spare:
            names = spare.pop()
        else:
            names = np.empty(count, np.uint32)
            self.device.gl.glGenTextures(count, names.ctypes.data)
            self._whole.own("Textures", names.tolist())
        self._lent = names
        return names

    def release(self) -> None:
        """Delete its own buffer textures, and let others have those that were lent."""
        if self._lent is not None:
            self._whole.spare_textures.setdefault(len(self._lent), []).append(self._lent)
            self._lent = None
        super().release()


def texture_format(memory: str, width: int) -> int:
    """The format of a buffer texture. memory: NumPy type of an element. width: 1 or 4 elements a texel."""
    return _FORMATS[memory, width]


class Arena(GrowableBlock[GLMemory]):
    """Memory for the temporaries of all template programs, which run in turn.

    context: returns that of the thread, to allocate in.
    """

    def __init__(self, device: GLDevice, context: Callable[[], GLDevice | SharedContext]) -> None:
        super().__init__(1, device.limits.max_storage_block_size)
        self._device = device
        self._context = context

    def allocate(self, size: int) -> GLMemory:
        """A new buffer; on any thread with a context."""
        return GLMemory(self._device, size, context=self._context())


class GLComputeBuffer(GLBuffer[GLMemory]):
    """A tensor in a GL buffer of its own. context: as of `GLMemory`."""

    def __init__(
        self,
        device: GLDevice,
        elements: int,
        dtype: np.dtype,
        data: np.ndarray | None = None,
        context: GLDevice | SharedContext | None = None,
    ) -> None:
        memory = GLMemory(device, buffer_size(elements, dtype), data, context)
        super().__init__(elements, dtype, memory)

    def part(self, elements: int) -> GLComputeBuffer | None:
        """A buffer over the first elements, with memory that views them."""
        part = super().part(elements)
        if part is not None:
            part._memory = SharedMemory(self._memory, buffer_size(elements, self.dtype))
            part._is_lent = False
        return part

    def resize(self, elements: int) -> None:
        """Have another number of elements, in the same shared memory, which has room for them."""
        super().resize(elements)
        nbytes = buffer_size(elements, self.dtype)
        if self._memory.has_textures:
            self._memory.release()
            self._memory = SharedMemory(self._memory.whole, nbytes)
        self._memory.nbytes = nbytes

    @property
    def name(self) -> int:
        """The GL name. Raises `DisposedError` after `release`."""
        return self.memory.name

    @property
    def written(self) -> int:
        """The buffer itself."""
        return self.name

    @property
    def readable(self) -> tuple[int, int]:
        """A buffer texture."""
        element = STORAGE_FORMATS[self.dtype.name].memory
        return TEXTURE_BUFFER, self.memory.texture(element, 1, 0, self.memory.nbytes)

    def shared(self, ctx: moderngl.Context) -> moderngl.Buffer:
        """The buffer as an object of another context."""
        found: moderngl.Buffer = ctx.external_buffer(self.name, self.memory.nbytes)
        return found

    def memory_bytes(self) -> int:
        """Size in bytes on the GPU."""
        return self._memory.nbytes
