"""Tensor buffers on OpenGL, and groups of GL objects with a common lifetime."""

from __future__ import annotations

import ctypes
import weakref
from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

import moderngl
import numpy as np

from engine.backends.base import DeviceBuffer
from engine.backends.tensor_data import Changes
from engine.base.errors import DisposedError
from engine.device.gl.device import GLDevice
from engine.device.gl.functions import GLFunctions, generate
from engine.device.gl.shared_context import SharedContext

Memory = TypeVar("Memory", bound="GLObjects")
Own = TypeVar("Own", bound="GLBuffer[Any]")

releases = Changes()
"""Of all buffers and their memory: those that were there before are there while this is unchanged."""


class GLBuffer(DeviceBuffer, Generic[Memory]):
    """A tensor's memory on a `GLDevice`: its own, or the beginning of shared memory."""

    def __init__(self, elements: int, dtype: np.dtype, memory: Memory) -> None:
        self.elements = elements
        self.dtype = np.dtype(dtype)
        self._memory = memory
        self._is_lent = self._is_released = False

    def part(self: Own, elements: int) -> Own | None:
        """A buffer over the first elements; None if these are too few. The memory lives as long as either."""
        if elements > self.elements:
            return None
        self._is_lent = True
        # As `copy`, in a third of the time.
        part = self.__class__.__new__(self.__class__)
        part.__dict__.update(self.__dict__)
        part.elements = elements
        part._is_released = False
        return part

    def resize(self, elements: int) -> None:
        """Have another number of elements, in the same shared memory, which has room for them."""
        self.elements = elements

    @property
    def memory(self) -> Memory:
        """The memory. Raises `DisposedError` after `release`."""
        # Not by `is_released`: a property of a property takes as long as the rest.
        if self._is_released or self._memory.is_released:
            raise DisposedError("this buffer was released; its tensor or worker was disposed")
        return self._memory

    @property
    def is_released(self) -> bool:
        """Whether `release` was called."""
        return self._is_released or self._memory.is_released

    def release(self) -> None:
        """Release the memory; shared memory is freed with its last part."""
        self._is_released = True
        if not self._is_lent:
            self._memory.release()
        releases.add()

    @property
    @abstractmethod
    def written(self) -> int:
        """GL name of what commands bind to write it: a buffer, or a framebuffer over a texture.

        Raises `DisposedError` after `release`.
        """

    @property
    @abstractmethod
    def readable(self) -> tuple[int, int]:
        """Target and GL name of a texture over its elements. Raises `DisposedError` after `release`."""

    @abstractmethod
    def shared(self, ctx: moderngl.Context) -> moderngl.Buffer | moderngl.Texture:
        """The memory as an object of another context, which does not own it.

        Raises `DisposedError` after `release`.
        """


AnyBuffer: TypeAlias = GLBuffer[Any]


class GLObjects:
    """GL objects that are deleted together once `release` was called or this object was dropped."""

    def __init__(self, device: GLDevice | SharedContext) -> None:
        self.device = device
        self._names: dict[str, list[int]] = {}
        self._finalizer: weakref.finalize | None = None
        self.is_released = False
        """Whether `release` was called."""

    def generate(self, kind: str, context: GLDevice | SharedContext | None = None) -> int:
        """The name of a new object; `kind` as in glGen<kind>.

        context: the one that is current, if not the device's. Their objects are shared, apart from
        framebuffers.
        """
        name = generate(getattr((context or self.device).gl, f"glGen{kind}"))
        self.own(kind, [name])
        return name

    def own(self, kind: str, names: Sequence[int]) -> None:
        """Have objects deleted with this one."""
        if self._finalizer is None:
            # May run on any thread: the device calls it later.
            deletion = partial(_delete, self.device.gl, self._names)
            self._finalizer = weakref.finalize(self, self.device.call_later, deletion)
        self._names.setdefault(kind, []).extend(names)

    def release(self) -> None:
        """Delete the objects; OpenGL keeps them until issued commands are done. Idempotent."""
        self.is_released = True
        releases.add()
        if self._finalizer is not None:
            self._finalizer()


def _delete(gl: GLFunctions, names: dict[str, list[int]]) -> None:
    # Later objects may refer to earlier ones: framebuffers to textures, textures to buffers.
    for kind, those in reversed(names.items()):
        getattr(gl, f"glDelete{kind}")(len(those), (ctypes.c_uint * len(those))(*those))
