"""Textures of the pixel backend, the framebuffers that draw into them, and a tensor's buffer."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import moderngl
import numpy as np

from engine.backends.gl.memory import GLBuffer, GLObjects
from engine.backends.gl.pixel.layout import TexelLayout, texels_of
from engine.backends.gl.storage import memory_dtype
from engine.device.gl.device import GLDevice
from engine.device.gl.functions import GL
from engine.device.gl.shared_context import SharedContext


@dataclass(frozen=True, slots=True)
class Format:
    """An OpenGL format of four elements per texel: internal format, and format and type of transfers."""

    internal: int
    pixels: int
    component: int


FORMATS: dict[str, Format] = {
    "float32": Format(GL.RGBA32F, GL.RGBA, GL.FLOAT),
    "float16": Format(GL.RGBA16F, GL.RGBA, GL.HALF_FLOAT),
    "int32": Format(GL.RGBA32I, GL.RGBA_INTEGER, GL.INT),
    "int16": Format(GL.RGBA16I, GL.RGBA_INTEGER, GL.SHORT),
    "int8": Format(GL.RGBA8I, GL.RGBA_INTEGER, GL.BYTE),
    "uint32": Format(GL.RGBA32UI, GL.RGBA_INTEGER, GL.UNSIGNED_INT),
    "uint16": Format(GL.RGBA16UI, GL.RGBA_INTEGER, GL.UNSIGNED_SHORT),
    "uint8": Format(GL.RGBA8UI, GL.RGBA_INTEGER, GL.UNSIGNED_BYTE),
}
"""By the NumPy type of an element in memory. OpenGL 3.3 guarantees that each can be drawn to."""


def texture_bytes(texels: int, element: str, layers: int) -> int:
    """Memory of a texture. element: the NumPy type of an element."""
    return 4 * np.dtype(element).itemsize * texels * max(layers, 1)


def target_of(layers: int) -> int:
    """The GL target of a texture with a number of layers."""
    return GL.TEXTURE_2D_ARRAY if layers else GL.TEXTURE_2D


class TensorTexture(GLObjects):
    """A texture of tensor elements, four a texel; with `layers` an array of them that is drawn to at once.

    element: their NumPy type in memory. context: where to allocate it, if not in the device's.
    """

    def __init__(
        self,
        device: GLDevice | SharedContext,
        layout: TexelLayout,
        element: str,
        layers: int = 0,
        context: GLDevice | SharedContext | None = None,
    ) -> None:
        super().__init__(device)
        self.layout = layout
        self.element = element
        self.layers = layers
        self._texel_bytes = texture_bytes(1, element, layers)
        self._framebuffer = 0
        self._has_parameters = False
        with (context or device).current(flush=False):
            self.name = self.generate("Textures", context)
            self.allocate(None, context)

    @property
    def target(self) -> int:
        """The GL target."""
        return target_of(self.layers)

    @property
    def nbytes(self) -> int:
        """Memory of its elements."""
        return self._texel_bytes * self.layout.texels

    def allocate(self, data: np.ndarray | None, context: GLDevice | SharedContext | None = None) -> None:
        """Allocate storage, filled if given; work in flight keeps the old one."""
        context = context or self.device
        gl, layout, form = context.gl, self.layout, FORMATS[self.element]
        gl.glBindTexture(self.target, self.name)
        pointer = None if data is None else data.ctypes.data
        if self.layers:
            size = (layout.width, layout.height, self.layers)
            gl.glTexImage3D(self.target, 0, form.internal, *size, 0, form.pixels, form.component, pointer)
        else:
            gl.glBindBuffer(GL.PIXEL_UNPACK_BUFFER, 0)
            size_2d = (layout.width, layout.height)
            gl.glTexImage2D(self.target, 0, form.internal, *size_2d, 0, form.pixels, form.component, pointer)
        if not self._has_parameters:
            for name, value in (
                (GL.TEXTURE_MIN_FILTER, GL.NEAREST),
                (GL.TEXTURE_MAG_FILTER, GL.NEAREST),
                (GL.TEXTURE_MAX_LEVEL, 0),
            ):
                gl.glTexParameteri(self.target, name, value)
            self._has_parameters = True
        gl.glBindTexture(self.target, 0)

    def clear(self) -> None:
        """Fill it with zeros. Needs OpenGL 4.4."""
        form = FORMATS[self.element]
        self.device.gl.glClearTexImage(self.name, 0, form.pixels, form.component, None)

    @property
    def framebuffer(self) -> int:
        """The GL name of a framebuffer that draws into it; the device's context must be current."""
        if not self._framebuffer:
            gl = self.device.gl
            self._framebuffer = self.generate("Framebuffers")
            gl.glBindFramebuffer(GL.FRAMEBUFFER, self._framebuffer)
            points = [GL.COLOR_ATTACHMENT0 + k for k in range(max(self.layers, 1))]
            for k, point in enumerate(points):
                if self.layers:
                    gl.glFramebufferTextureLayer(GL.FRAMEBUFFER, point, self.name, 0, k)
                else:
                    gl.glFramebufferTexture2D(GL.FRAMEBUFFER, point, GL.TEXTURE_2D, self.name, 0)
            gl.glDrawBuffers(len(points), (ctypes.c_uint * len(points))(*points))
        return self._framebuffer


@dataclass(frozen=True, slots=True)
class TextureRange:
    """The location of a tensor: the left columns of a texture that may be larger."""

    texture: TensorTexture
    layout: TexelLayout


class GLPixelBuffer(GLBuffer[TensorTexture]):
    """A tensor in a texture of its own, or in the first texels of one that others share.

    context: as of `TensorTexture`.
    """

    def __init__(
        self,
        device: GLDevice,
        elements: int,
        dtype: np.dtype,
        context: GLDevice | SharedContext | None = None,
    ) -> None:
        layout = TexelLayout.of(texels_of(elements), device.limits.max_texture_size)
        texture = TensorTexture(device, layout, memory_dtype(dtype).name, context=context)
        super().__init__(elements, dtype, texture)

    @property
    def place(self) -> TextureRange:
        """The location of its elements."""
        return TextureRange(self.memory, self.memory.layout)

    @property
    def written(self) -> int:
        """The framebuffer."""
        return self.memory.framebuffer

    @property
    def readable(self) -> tuple[int, int]:
        """The texture itself."""
        return GL.TEXTURE_2D, self.memory.name

    def shared(self, ctx: moderngl.Context) -> moderngl.Texture:
        """The texture as an object of another context."""
        layout, element = self.memory.layout, memory_dtype(self.dtype)
        size, kind = (layout.width, layout.height), f"{element.kind}{element.itemsize}"
        found: moderngl.Texture = ctx.external_texture(self.memory.name, size, 4, 0, kind)
        return found

    def memory_bytes(self) -> int:
        """Size in bytes on the GPU."""
        return self._memory.nbytes

    def block(self) -> tuple[int, int]:
        """The texture."""
        return id(self._memory), self._memory.nbytes
