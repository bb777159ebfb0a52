"""`GrowableTexture`: a texture for temporaries, shared by the programs of all sizes."""

from __future__ import annotations

from collections.abc import Callable

from engine.backends.gl.pixel.layout import TexelLayout
from engine.backends.gl.pixel.memory import TensorTexture, texture_bytes
from engine.backends.growable_memory import GrowableMemory
from engine.device.gl.device import GLDevice
from engine.device.gl.shared_context import SharedContext

TextureKey = tuple[str, int, int]
"""Of a texture for temporaries: the NumPy type of an element, how many layers, and a number."""

Extent = tuple[int, int]
"""A texture's shift and height."""


class GrowableTexture(GrowableMemory[Extent, TensorTexture]):
    """A texture for temporaries of all template programs, which run in turn.

    context: returns that of the thread, to allocate in.
    """

    def __init__(
        self, device: GLDevice, key: TextureKey, context: Callable[[], GLDevice | SharedContext]
    ) -> None:
        self._device = device
        self._element, self._layers, _ = key
        self._limit = device.limits.max_texture_size
        self._context = context

    def allocate(self, size: Extent) -> TensorTexture:
        """A new texture; on any thread with a context."""
        layout = TexelLayout(*size, self._layers > 0)
        return TensorTexture(self._device, layout, self._element, self._layers, self._context())

    def adopt(self, size: Extent, memory: TensorTexture) -> None:
        """Use a texture, and create its framebuffer: contexts share no framebuffers."""
        super().adopt(size, memory)
        if self.memory is memory:
            _ = memory.framebuffer

    def nbytes(self, size: Extent) -> int:
        """Bytes of a texture."""
        return texture_bytes(size[1] << size[0], self._element, self._layers)

    def covers(self, larger: Extent, size: Extent) -> bool:
        """Whether it is as wide and as high."""
        return larger[0] >= size[0] and larger[1] >= size[1]

    def union(self, a: Extent, b: Extent) -> Extent:
        """The smallest extent that covers both."""
        return max(a[0], b[0]), max(a[1], b[1])

    def grown_size(self, size: Extent) -> Extent:
        """Half as many rows again; twice the width where widths still grow with sizes."""
        layout = TexelLayout(*size, self._layers > 0).larger(self._limit)
        return layout.shift, layout.height

    def shrunk_size(self, size: Extent) -> Extent:
        """Half a step less."""
        layout = TexelLayout(*size, self._layers > 0).smaller()
        return layout.shift, layout.height
