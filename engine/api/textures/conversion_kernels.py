"""The conversion between a grid of texels and a tensor, written once, for every backend and both directions.

A `Grid` says how an image's elements lie: number (batch * plane + row * pitch + column) * step + channel,
with all sizes as run-time arguments, so a kernel's text depends on the kind of conversion alone. A texture of
OpenGL is a grid with a pitch of 2**14, from which a shader finds column and row again.

Sizes are matched in whole numbers (a pixel of n that become m is m parts wide), so all backends choose the
same texels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from engine.api.textures.resample import AxisMap, sampled
from engine.api.textures.srgb import linear_from_srgb, linear_number, srgb_from_linear
from engine.api.textures.transform import LETTERS, CoordOrigin, TextureTransform
from engine.backends.gl.textures import TEXTURE_SHIFT
from engine.base.dtypes import FLOAT32, UINT8, ArithmeticType, integer_range
from engine.base.errors import InputError
from engine.kernels.expr import Expr, arg, cast, clamp, compare, eq, index, lit, load, select, unary
from engine.kernels.kernel import KernelCall, kernel_call
from engine.kernels.value import Value

_LUMINANCE = {"srgb": (0.299, 0.587, 0.114), "linear": (0.2126, 0.7152, 0.0722)}
"""Of stored values (ITU-R BT.601) and of linear light (BT.709)."""


@dataclass(frozen=True, slots=True)
class Grid:
    """An image layout: size, channel order ("bgra"; "l" for grey) and the position of row 0.

    dtype: "uint8", "float32", or "texture": what a shader reads of a texture and writes to one, four numbers
    from 0 to 1 for each texel. rounds: whether it keeps 8 bits of each. batch: images behind each other.
    """

    width: int
    height: int
    order: str
    dtype: str
    rounds: bool
    top_down: bool
    batch: int = 1

    @property
    def letters(self) -> str:
        """The channel of each component of a pixel; a texture always has four."""
        return (self.order + LETTERS[len(self.order) :])[:4] if self.dtype == "texture" else self.order

    @property
    def pitch(self) -> int:
        """Row pitch in pixels."""
        return 1 << TEXTURE_SHIFT if self.dtype == "texture" else self.width

    @property
    def storage(self) -> np.dtype:
        """Type of the elements in a buffer."""
        return UINT8 if self.dtype == "uint8" else FLOAT32

    @property
    def size(self) -> int:
        """Elements in a buffer."""
        return self.batch * self.height * self.width * len(self.order)

    def is_flipped(self, transform: TextureTransform) -> bool:
        """Whether the tensor's row 0 is this image's last."""
        origin = transform.texture_origin
        top_down = self.top_down if origin is None else origin == CoordOrigin.TOP_LEFT
        return top_down != (transform.coord_origin == CoordOrigin.TOP_LEFT)


class Conversion(NamedTuple):
    """A conversion between pixels and a tensor.

    Attributes:
        grid: The pixels, of one image or of a batch.
        transform: How it is done.
        shape: The tensor's shape.
        slot: The tensor's image; None for all of them.
    """

    grid: Grid
    transform: TextureTransform
    shape: tuple[int, ...]
    slot: int | None


@dataclass(frozen=True, slots=True)
class ConversionKernel:
    """A conversion as a kernel over one buffer (stitching: two), and its index space."""

    call: KernelCall
    space: tuple[int, ...]


@lru_cache(maxsize=512)
def to_tensor_kernel(grid: Grid, transform: TextureTransform, shape: tuple[int, ...]) -> ConversionKernel:
    """The conversion from an image grid to a 4-D tensor in the transform's layout.

    With one image for a larger batch, every entry becomes that image.
    """
    _, c, h, w = (int(n or 0) for n in transform.sizes(shape))
    batch, channel, y, x = (index(a) for a in ((0, 3, 1, 2) if transform.is_channels_last else range(4)))
    texels = Value("texels", (1,), grid.storage)
    step, pitch = arg(len(grid.letters)), arg(grid.pitch)
    first = batch * arg(grid.pitch * grid.height if grid.batch > 1 else 0)
    is_linear = transform.color_space == "linear"
    rows, columns = AxisMap(grid.height, h, grid.is_flipped(transform)), AxisMap(grid.width, w)
    sources = [_source(letter, grid, transform) for letter in _letters(transform, c)]

    def element(row: Expr, column: Expr, at: Expr, colored: Expr | None) -> Expr:
        value = cast(load(texels, (first + row * pitch + column) * step + at), "float32")
        value = value * arg(1.0 / 255.0, "float32") if grid.dtype == "uint8" else value
        if not is_linear:
            return value
        light = linear_from_srgb(value)
        return light if colored is None else select(colored, light, value)

    def picked(row: Expr, column: Expr) -> Expr:
        return element(row, column, _pick(channel, [max(s.at, 0) for s in sources]), colored)

    def luminance(row: Expr, column: Expr) -> Expr:
        weights = zip("rgb", _LUMINANCE[transform.color_space], strict=True)
        r, g, b = (
            element(row, column, arg(grid.order.index(name)), None) * arg(weight, "float32")
            for name, weight in weights
        )
        return r + g + b

    colored = _is(channel, [s.letter != "a" for s in sources])
    value = sampled(transform.resampling, rows, columns, y, x, picked)
    if any(s.is_mixed for s in sources):
        grey = sampled(transform.resampling, rows, columns, y, x, luminance)
        value = select(_is(channel, [s.is_mixed for s in sources]), grey, value)
    missing = [_default(s.letter, transform) for s in sources]
    lights = [
        m if s.letter == "a" or not is_linear else linear_number(m)
        for m, s in zip(missing, sources, strict=True)
    ]
    value = select(_is(channel, [s.at >= 0 for s in sources]), value, _pick(channel, lights))
    scales, offsets = transform.scales()
    value = value * _pick(channel, scales) + _pick(channel, offsets)
    dtype = np.dtype(transform.dtype)
    if dtype.kind in "iu":
        low, high = integer_range(dtype.name)
        value = cast(unary("floor", clamp(value, float(low), float(high)) + 0.5), "int32")
    return ConversionKernel(kernel_call(value, 4, dtype), tuple(shape))


@lru_cache(maxsize=512)
def to_image_kernel(conversion: Conversion, dtype: str) -> ConversionKernel:
    """From an image of a tensor of a type to a grid; the space is (rows, pitch, channels)."""
    grid, transform, shape, slot = conversion
    assert slot is not None
    n, c, h, w = (int(n or 0) for n in transform.sizes(shape))
    if not 0 <= slot < n:
        raise InputError(f"there is no image {slot} in a batch of {n}")
    y, x, channel = (index(k) for k in range(3))
    if grid.is_flipped(transform):
        y = arg(grid.height - 1) - y
    tensor = Value("tensor", (1,), np.dtype(dtype))
    row_step, column_step, channel_step = (w * c, c, 1) if transform.is_channels_last else (w, 1, h * w)
    found = [_tensor_channel(letter, c, transform) for letter in grid.letters]
    at = arg(slot * c * h * w) + _pick(channel, [max(k, 0) * channel_step for k in found])

    def element(row: Expr, column: Expr) -> Expr:
        return cast(load(tensor, at + row * arg(row_step) + column * arg(column_step)), "float32")

    value = sampled(transform.resampling, AxisMap(h, grid.height), AxisMap(w, grid.width), y, x, element)
    scales, offsets = transform.scales()
    own = [min(max(k - transform.first_channel, 0), 3) for k in found]
    value = (value - _pick(channel, [offsets[k] for k in own])) * _pick(
        channel, [1.0 / scales[k] for k in own]
    )
    if transform.color_space == "linear":
        value = select(_is(channel, [name != "a" for name in grid.letters]), srgb_from_linear(value), value)
    defaults = [_default(name, transform) for name in grid.letters]
    value = select(_is(channel, [k >= 0 for k in found]), value, _pick(channel, defaults))
    if grid.rounds:
        value = unary("floor", clamp(value, 0.0, 1.0) * arg(255.0, "float32") + 0.5)
        # The byte of a texture is computed exactly: drivers round halves either way.
        value = cast(value, "int32") if grid.dtype == "uint8" else value * arg(1.0 / 255.0, "float32")
    return ConversionKernel(kernel_call(value, 3, grid.storage), (grid.height, grid.pitch, len(grid.letters)))


@lru_cache(maxsize=128)
def stitch_recipe(size: int, begin: int, end: int, dtype: str) -> ConversionKernel:
    """A kernel that replaces elements begin..end-1 of a tensor by those of a second buffer."""
    old, new = Value("tensor", (size,), np.dtype(dtype)), Value("new", (end - begin,), np.dtype(dtype))
    i = index(0)
    inside = (i >= arg(begin)) & (i < arg(end))
    value = select(inside, load(new, select(inside, i - arg(begin), lit(0))), load(old, i))
    return ConversionKernel(kernel_call(value, 1, np.dtype(dtype)), (size,))


@dataclass(frozen=True, slots=True)
class _Source:
    """Where a tensor's channel comes from: number `at` of a pixel (-1: nowhere), or a mix of the colours."""

    letter: str
    at: int
    is_mixed: bool = False


def _letters(transform: TextureTransform, channels: int) -> str:
    letters = transform.letters(channels)
    if len(letters) != channels:
        raise InputError(
            f"the tensor has {channels} channels, the swizzle {len(letters)} (an image gives up to 4)"
        )
    return letters


def _source(letter: str, grid: Grid, transform: TextureTransform) -> _Source:
    if letter in "01" or (letter in LETTERS and letter not in transform.color_mask):
        return _Source(letter, -1)
    if grid.order == "l":
        return _Source(letter, -1 if letter == "a" else 0)
    if letter == "l":
        if not set("rgb") <= set(grid.order):
            raise InputError(f"luminance is made of red, green and blue; this image has '{grid.order}'")
        return _Source(letter, 0, is_mixed=True)
    return _Source(letter, grid.letters.find(letter) if letter in grid.order else -1)


def _tensor_channel(letter: str, channels: int, transform: TextureTransform) -> int:
    """Which channel of a tensor an image's channel comes from, -1 for none."""
    first = transform.first_channel
    if not transform.swizzle and channels - first > 4:
        raise InputError(
            f"a tensor of {channels} channels; say which of them are meant: set_channel_swizzle('l') and"
            " set_first_channel(k) show one, a swizzle of more letters as many from there on"
        )
    letters = transform.letters(channels - first)
    if first + len(letters) > channels or not letters:
        raise InputError(
            f"channels {first} to {first + max(len(letters), 1) - 1} of a tensor that has {channels}"
        )
    if ("r" if letter == "l" else letter) not in transform.color_mask:
        return -1
    if letter in letters:
        return first + letters.index(letter)
    if letter == "l" and "r" in letters:
        return first + letters.index("r")
    grey = "l" if "l" in letters else "r" if letters == "r" else ""
    if grey and letter in "rgb" and (transform.broadcast_channels or letter == "r"):
        return first + letters.index(grey)
    return -1


def _default(letter: str, transform: TextureTransform) -> float:
    """The value of a missing channel, as stored in an image."""
    if letter in "01":
        return float(letter)
    return transform.default_color[LETTERS.index("r" if letter == "l" else letter)]


def _pick(which: Expr, choices: Sequence[float | int]) -> Expr:
    """The choice (a run-time argument) with number `which`; four in all, as the text is the same for any."""
    dtype: ArithmeticType = "float32" if isinstance(choices[0], float) else "index"
    full = [*choices, *[choices[-1]] * 3][:4]
    value = arg(full[3], dtype)
    for k in (2, 1, 0):
        value = select(eq(which, lit(k)), arg(full[k], dtype), value)
    return value


def _is(which: Expr, choices: Sequence[bool]) -> Expr:
    """`_pick` among truths."""
    return compare("ne", _pick(which, [int(c) for c in choices]), lit(0))
