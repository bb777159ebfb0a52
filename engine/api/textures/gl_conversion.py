"""Converts textures to tensors and back on the GPU, with one recorded draw or dispatch each."""

from __future__ import annotations

from math import prod

from engine.api.textures.conversion_kernels import Conversion, to_image_kernel, to_tensor_kernel
from engine.api.textures.images import GLImage
from engine.backends.base import Backend, BackendType, DeviceBuffer
from engine.backends.gl.commands import CallList
from engine.backends.gl.memory import GLBuffer
from engine.backends.gl.textures import TextureCommands, TextureReader, TextureWriter
from engine.backends.select import shared_backend


def to_tensor(backend: Backend, image: GLImage, conversion: Conversion, buffer: DeviceBuffer) -> None:
    """Fill a tensor's buffer, or an image of it, in stream order."""
    assert isinstance(backend, TextureReader)
    assert isinstance(buffer, GLBuffer)
    grid, transform, shape, slot = conversion
    begin, end = 0, prod(shape)
    if slot is not None:
        part = end // shape[0]
        begin, end = slot * part, (slot + 1) * part
    with backend.device.current(after_game=True, before_game=True):
        key = ("in", conversion, image.name, buffer.written)

        def record() -> CallList:
            recipe = to_tensor_kernel(grid, transform, shape)
            return backend.record_from_texture(image.name, recipe.call, recipe.space, buffer, begin, end)

        TextureCommands.of(backend.device).run(backend, key, record)


def to_texture(buffer: DeviceBuffer, conversion: Conversion, target: GLImage) -> None:
    """Draw an image of a tensor into a texture, in stream order."""
    # Only fragment shaders write any texture, so this backend draws, whichever computed the tensor.
    backend = shared_backend(BackendType.GPU_PIXEL, target.device)
    assert isinstance(backend, TextureWriter)
    assert isinstance(buffer, GLBuffer)
    with backend.device.current(after_game=True, before_game=True):
        dtype = buffer.dtype.name
        key = ("out", conversion, dtype, buffer.readable, target.name)

        def record() -> CallList:
            recipe = to_image_kernel(conversion, dtype)
            size = (target.grid.width, target.grid.height)
            return backend.record_to_texture(buffer, recipe.call, recipe.space, target.name, size)

        TextureCommands.of(backend.device).run(backend, key, record)
