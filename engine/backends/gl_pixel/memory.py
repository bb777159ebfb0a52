"""Textures of the pixel backend, the framebuffers that draw into them, and a tensor's buffer."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np

from engine.backends.base import DeviceBuffer
from engine.backends.gl.glsl import word_dtype
from engine.backends.gl.memory import GLObjects
from engine.backends.gl_pixel.layout import Layout, texels_of
from engine.devices import GL, GLDevice
from engine.devices.gl_functions import FUNCTION_TYPE
from engine.errors import DisposedError

TEXTURE_2D_ARRAY = 0x8C1A


@dataclass(frozen=True, slots=True)
class Format:
    """How OpenGL names a texture of 32-bit words: inside, and the pixels given to it."""

    internal: int
    pixels: int
    word: int


FORMATS: dict[str, Format] = {
    "float32": Format(GL.RGBA32F, GL.RGBA, GL.FLOAT),
    "int32": Format(GL.RGBA32I, GL.RGBA_INTEGER, GL.INT),
    "uint32": Format(0x8D70, GL.RGBA_INTEGER, GL.UNSIGNED_INT),
}
"""By the NumPy name of the word, see `engine.backends.gl.glsl.WORDS`."""


class Texture(GLObjects):
    """A texture of four-component words, or with `layers` an array of them that is drawn to at once."""

    def __init__(self, device: GLDevice, layout: Layout, word: str, layers: int = 0) -> None:
        super().__init__(device)
        self.layout = layout
        self.word = word
        self.layers = layers
        self._framebuffer = 0
        with device.current(flush=False):
            self.name = self.generate("Textures")
            self.allocate(None)

    @property
    def target(self) -> int:
        """What it is bound as."""
        return TEXTURE_2D_ARRAY if self.layers else GL.TEXTURE_2D

    def allocate(self, words: np.ndarray | None) -> None:
        """New storage, filled with words if given (as many as it holds); what is in flight keeps the old."""
        gl, layout, form = self.device.gl, self.layout, FORMATS[self.word]
        gl.glBindTexture(self.target, self.name)
        pointer = None if words is None else words.ctypes.data
        if self.layers:
            tex_image_3d = FUNCTION_TYPE(None, *_TEX_IMAGE_3D)(self.device.address("glTexImage3D"))
            size = (layout.width, layout.height, self.layers)
            tex_image_3d(self.target, 0, form.internal, *size, 0, form.pixels, form.word, pointer)
        else:
            gl.glBindBuffer(GL.PIXEL_UNPACK_BUFFER, 0)
            size_2d = (layout.width, layout.height)
            gl.glTexImage2D(self.target, 0, form.internal, *size_2d, 0, form.pixels, form.word, pointer)
        for name, value in (
            (GL.TEXTURE_MIN_FILTER, GL.NEAREST),
            (GL.TEXTURE_MAG_FILTER, GL.NEAREST),
            (GL.TEXTURE_MAX_LEVEL, 0),
        ):
            gl.glTexParameteri(self.target, name, value)
        gl.glBindTexture(self.target, 0)

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
class Place:
    """Where a tensor lies: in the left columns of a texture that may be larger."""

    texture: Texture
    layout: Layout


_TEX_IMAGE_3D = (ctypes.c_uint, *[ctypes.c_int] * 6, ctypes.c_uint, ctypes.c_uint, ctypes.c_void_p)


class GLPixelBuffer(DeviceBuffer):
    """A tensor in a texture of its own."""

    def __init__(self, device: GLDevice, elements: int, dtype: np.dtype) -> None:
        self.elements = elements
        self.dtype = np.dtype(dtype)
        layout = Layout.of(texels_of(elements), device.limits.max_texture_size)
        self._memory = Texture(device, layout, word_dtype(dtype).name)

    @property
    def memory(self) -> Texture:
        """Its texture. Raises `DisposedError` after `release`."""
        if self.is_released:
            raise DisposedError("this buffer was released; its tensor or worker was disposed")
        return self._memory

    @property
    def place(self) -> Place:
        """Where its elements are."""
        return Place(self.memory, self.memory.layout)

    @property
    def is_released(self) -> bool:
        """Whether `release` was called."""
        return self._memory.is_released

    def release(self) -> None:
        """Give the memory back."""
        self._memory.release()
