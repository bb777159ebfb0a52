"""Buffers of the compute backend: elements in GL buffers, and views of them as buffer textures."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import moderngl
import numpy as np

from engine.backends.base import Readback
from engine.backends.gl.memory import GLBuffer, GLObjects
from engine.backends.gl.storage import FORMS, from_memory, memory_dtype
from engine.backends.growing import GrowingBlock
from engine.base.errors import DisposedError
from engine.device.gl.device import GLDevice
from engine.device.gl.functions import FUNCTION_TYPE, GL
from engine.device.gl.shared_context import SharedContext
from engine.device.gl.staging_readback import StagingReadback
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
    ("uint32", 1): 0x8236,
    ("uint16", 1): 0x8234,
    ("uint8", 1): 0x8232,
    ("uint8", 4): 0x8D7C,
}
"""Of buffer textures, by the NumPy type of an element in memory and how many a texel has."""


def buffer_size(elements: int, dtype: np.dtype) -> int:
    """Bytes that a tensor takes; empty ones take a little, as OpenGL has no empty bindings."""
    return largest(1, -(-elements * memory_dtype(dtype).itemsize // _SIZE_STEP)) * _SIZE_STEP


def buffer_sizes(elements: np.ndarray, itemsizes: np.ndarray) -> np.ndarray:
    """`buffer_size` of several tensors."""
    return np.maximum(1, -(-elements * itemsizes // _SIZE_STEP)) * _SIZE_STEP


class GLMemory(GLObjects):
    """One GL buffer and the buffer textures that look at ranges of it, deleted together.

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
        self._allocate(data, context or device)

    @property
    def whole(self) -> GLMemory:
        """The memory that the GL buffer belongs to."""
        return self

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
                tex_buffer_range = FUNCTION_TYPE(None, *_RANGE_TYPES)(context.address("glTexBufferRange"))
                tex_buffer_range(TEXTURE_BUFFER, kind, self.name, offset, nbytes)
                gl.glBindTexture(TEXTURE_BUFFER, 0)
            self._textures[key] = name
        return self._textures[key]


class SharedMemory(GLMemory):
    """A part, from the start, of another memory, which lives as long; the buffer textures are its own."""

    def __init__(self, whole: GLMemory, nbytes: int) -> None:
        self._whole = whole
        assert isinstance(whole.device, GLDevice)
        super().__init__(whole.device, nbytes)

    @property
    def whole(self) -> GLMemory:
        """The memory that the GL buffer belongs to."""
        return self._whole

    def _allocate(self, data: np.ndarray | None, context: GLDevice | SharedContext) -> None:
        self.name = self._whole.name

    def new_textures(self, count: int) -> np.ndarray:
        """The GL names of new textures, which are deleted with this memory."""
        names = np.empty(count, np.uint32)
        self.device.gl.glGenTextures(count, names.ctypes.data)
        self._names.setdefault("Textures", []).extend(names.tolist())
        return names


def texture_format(memory: str, width: int) -> int:
    """The format of a buffer texture. memory: NumPy type of an element. width: 1 or 4 elements a texel."""
    return _FORMATS[memory, width]


class Arena(GrowingBlock[GLMemory]):
    """Memory for the temporaries of all programs of templates, as they run in turn.

    context: returns that of the thread, to allocate in.
    """

    def __init__(self, device: GLDevice, context: Callable[[], GLDevice | SharedContext]) -> None:
        super().__init__(1, device.limits.max_storage_block_size)
        self._device = device
        self._context = context

    def make(self, size: int) -> GLMemory:
        """A new buffer; on any thread with a context."""
        return GLMemory(self._device, size, context=self._context())


_RANGE_TYPES = (ctypes.c_uint, ctypes.c_uint, ctypes.c_uint, ctypes.c_ssize_t, ctypes.c_ssize_t)


class GLComputeBuffer(GLBuffer):
    """A tensor in a GL buffer of its own. context: as of `GLMemory`."""

    def __init__(
        self,
        device: GLDevice,
        elements: int,
        dtype: np.dtype,
        data: np.ndarray | None = None,
        context: GLDevice | SharedContext | None = None,
    ) -> None:
        self.elements = elements
        self.dtype = np.dtype(dtype)
        self.memory = GLMemory(device, buffer_size(elements, self.dtype), data, context)
        self._is_lent = self._is_released = False

    def part(self, elements: int) -> GLComputeBuffer | None:
        """A buffer over the first elements; None if these are too few. The memory lives as long as either."""
        if elements > self.elements:
            return None
        self._is_lent = True
        part = object.__new__(GLComputeBuffer)
        part.elements, part.dtype = elements, self.dtype
        part._is_lent = part._is_released = False
        part.memory = SharedMemory(self.memory, buffer_size(elements, self.dtype))
        return part

    @property
    def name(self) -> int:
        """The GL name. Raises `DisposedError` after `release`."""
        if self.is_released:
            raise DisposedError("this buffer was released; its tensor or worker was disposed")
        return self.memory.name

    @property
    def is_released(self) -> bool:
        """Whether `release` was called."""
        return self._is_released or self.memory.is_released

    @property
    def written(self) -> int:
        """The buffer itself."""
        return self.name

    @property
    def readable(self) -> tuple[int, int]:
        """A buffer texture."""
        assert self.name
        element = FORMS[self.dtype.name].memory
        return TEXTURE_BUFFER, self.memory.texture(element, 1, 0, self.memory.nbytes)

    def shared(self, ctx: moderngl.Context) -> moderngl.Buffer:
        """The buffer as an object of another context."""
        found: moderngl.Buffer = ctx.external_buffer(self.name, self.memory.nbytes)
        return found

    def memory_bytes(self) -> int:
        """Size in bytes on the GPU."""
        return self.memory.nbytes

    def release(self) -> None:
        """Give the memory back; what was lent goes with the last part."""
        self._is_released = True
        if not self._is_lent:
            self.memory.release()


class GLReadback(Readback):
    """An asynchronous readback, converted to the tensor's type."""

    def __init__(self, staging: StagingReadback | None, elements: int, dtype: np.dtype) -> None:
        self._staging = staging
        self._elements = elements
        self._dtype = dtype
        self._value: np.ndarray | None = None

    @classmethod
    def start(cls, device: GLDevice, buffer: GLComputeBuffer) -> GLReadback:
        """Copy a buffer, as it is at this point of the stream."""
        if not buffer.elements:
            return cls(None, 0, buffer.dtype)
        memory = memory_dtype(buffer.dtype)
        staging = device.staging.read_buffer(buffer.name, buffer.elements * memory.itemsize, memory)
        return cls(staging, buffer.elements, buffer.dtype)

    def done(self) -> bool:
        """Whether they have arrived."""
        return self._staging is None or self._value is not None or self._staging.done()

    def wait(self) -> None:
        """Block until they have."""
        if self._staging is not None and self._value is None:
            self._staging.wait()

    def array(self) -> np.ndarray:
        """The value, 1-D. Raises `ValuePending` before `done`."""
        if self._value is None:
            if self._staging is None:
                self._value = np.empty(0, self._dtype)
            else:
                self._value = from_memory(self._staging.array(), self._dtype)
        return self._value

    def into(self, out: np.ndarray) -> None:
        """Write the value's first elements into an array, without a copy in between if types agree."""
        if self._staging is None or self._value is not None or memory_dtype(self._dtype) != out.dtype:
            super().into(out)
        else:
            np.copyto(out, self._staging.view()[: out.size].reshape(out.shape))
