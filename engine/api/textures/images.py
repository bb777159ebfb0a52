"""Accepted images: GPU textures, pygame surfaces, Pillow images and arrays, each as a `Grid`.

Nothing of pygame, Pillow or gameglue is imported: their objects are known by what they have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.api.textures.conversion_kernels import Grid
from engine.backends.gl.textures import TEXTURE_SHIFT
from engine.base.errors import InputError
from engine.device.gl.device import GLDevice

_SIDE = 1 << TEXTURE_SHIFT
_ORDERS = {1: "l", 2: "rg", 3: "rgb", 4: "rgba"}


@dataclass(frozen=True, slots=True)
class GLImage:
    """A texture by its OpenGL name, the device of its context, and its moderngl object."""

    grid: Grid
    name: int
    device: GLDevice
    texture: Any = field(compare=False)

    @property
    def is_released(self) -> bool:
        """Whether its owner has freed it."""
        return _is_released(self.texture)


@dataclass(frozen=True, slots=True)
class HostImage:
    """Pixels in the computer's memory. pixels: `grid`'s elements, contiguous and 1-D.

    write: puts pixels (rows, columns, channels in `grid.order`) where the image keeps them; None where it
    is not to be written.
    """

    grid: Grid
    pixels: Callable[[], np.ndarray]
    write: Callable[[np.ndarray], None] | None = None


AnyImage = GLImage | HostImage


def image_of(source: Any) -> AnyImage:
    """Convert an accepted image type to an image. Raises `InputError` for other types."""
    if hasattr(source, "bottom_up") and hasattr(source, "texture"):
        if source.texture is None:
            raise InputError("this texture has no OpenGL behind it (or was released); give an array instead")
        return _texture(source.texture, top_down=not source.bottom_up)
    if hasattr(source, "color_attachments") and hasattr(source, "glo"):
        attachments = source.color_attachments
        if not attachments:
            raise InputError(
                "this framebuffer has no texture (a window's has none): draw into one of your own"
            )
        return _texture(attachments[0], top_down=False)
    if hasattr(source, "glo") and hasattr(source, "components"):
        return _texture(source, top_down=False)
    if hasattr(source, "get_shifts") and hasattr(source, "get_view"):
        return _surface(source)
    if isinstance(source, np.ndarray):
        return _array(source)
    if hasattr(source, "mode") and hasattr(source, "convert") and hasattr(source, "tobytes"):
        mode = {"L": "L", "1": "L", "RGB": "RGB"}.get(source.mode, "RGBA")
        image = np.asarray(source if source.mode == mode else source.convert(mode))
        return HostImage(_array(image).grid, lambda: image.reshape(-1))
    raise InputError(
        f"a {type(source).__name__} is no image; give a texture, a render target, a framebuffer, a pygame"
        " Surface, a Pillow image, or an array (rows, columns[, channels])"
    )


def _texture(texture: Any, top_down: bool) -> GLImage:
    if not hasattr(texture, "components") or getattr(texture, "depth", False):
        raise InputError("a conversion takes textures of colours, no renderbuffers and no depth")
    if _is_released(texture):
        raise InputError("this texture was released")
    if texture.samples:
        raise InputError(
            "a multisampled texture cannot be converted; copy its framebuffer to one without samples"
        )
    if texture.dtype not in ("f1", "f2", "f4"):
        raise InputError(
            f"a texture of dtype {texture.dtype!r}; give 'f1' (8 bits, from 0 to 1), 'f2' or 'f4'"
        )
    width, height = texture.size
    _check_size(width, height)
    order = _ORDERS[texture.components]
    grid = Grid(width, height, order, "texture", texture.dtype == "f1", top_down)
    return GLImage(grid, texture.glo, GLDevice.for_context(texture.ctx), texture)


def _array(array: np.ndarray) -> HostImage:
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in _ORDERS) or not array.size:
        raise InputError(
            f"an array of shape {array.shape} is no image: (rows, columns) or (..., 1 to 4 channels)"
        )
    height, width = array.shape[:2]
    _check_size(width, height)
    if array.dtype != np.uint8 and array.dtype.kind not in "fub":
        raise InputError(f"an image of {array.dtype}; give uint8 (0 to 255), or floats (0 to 1)")
    dtype = "uint8" if array.dtype == np.uint8 else "float32"
    order = _ORDERS[1 if array.ndim == 2 else array.shape[2]]

    def write(pixels: np.ndarray) -> None:
        np.copyto(array, pixels.reshape(array.shape), casting="same_kind")

    writable = array.flags.writeable and (dtype == "uint8" or array.dtype.kind == "f")
    grid = Grid(width, height, order, dtype, dtype == "uint8", top_down=True)
    return HostImage(grid, lambda: _from_zero_to_one(array), write if writable else None)


def _from_zero_to_one(array: np.ndarray) -> np.ndarray:
    """Elements as `Grid` has them: bytes as they are, all else as float32."""
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        return (array.reshape(-1) * (1.0 / np.iinfo(array.dtype).max)).astype(np.float32)
    wanted = np.uint8 if array.dtype == np.uint8 else np.float32
    return np.ascontiguousarray(array, wanted).reshape(-1)


def _surface(surface: Any) -> HostImage:
    """A pygame Surface of 24 or 32 bits: its bytes, in the order in which they lie."""
    bits = surface.get_bitsize()
    if bits not in (24, 32):
        raise InputError(f"a surface of {bits} bits a pixel; call surface.convert() or convert_alpha() first")
    count = bits // 8
    width, height = surface.get_size()
    _check_size(width, height)
    # A mask's lowest bit says which byte of a pixel is meant (in memory, on little-endian machines).
    places = {shift // 8: name for name, shift in zip("rgb", surface.get_shifts()[:3], strict=True)}
    order = "".join(places.get(k, "a" if surface.get_masks()[3] else "0") for k in range(count))

    def rows() -> np.ndarray:
        """The bytes; as long as this array lives, the surface is locked."""
        view = np.frombuffer(surface.get_buffer(), np.uint8)
        return view.reshape(height, surface.get_pitch())[:, : width * count].reshape(height, width, count)

    def write(pixels: np.ndarray) -> None:
        np.copyto(rows(), pixels.reshape(height, width, count))

    grid = Grid(width, height, order, "uint8", True, top_down=True)
    return HostImage(grid, lambda: np.ascontiguousarray(rows()).reshape(-1), write)


def _check_size(width: int, height: int) -> None:
    if not (0 < width <= _SIDE and 0 < height <= _SIDE):
        raise InputError(f"an image of {width} x {height} pixels; from 1 to {_SIDE} in each direction")


def _is_released(texture: Any) -> bool:
    return type(texture.mglo).__name__ == "InvalidObject"
