"""`TextureTransform`: size, layout, channels and scaling of a conversion between image and tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from engine.base.errors import InputError


class TensorLayout(StrEnum):
    """The order of a tensor's axes: batch, channels, rows, columns; or with the channels last.

    Attributes:
        NCHW: Channels before rows and columns.
        NHWC: Channels last.
    """

    NCHW = "NCHW"
    NHWC = "NHWC"


class CoordOrigin(StrEnum):
    """Which row of an image is row 0.

    Attributes:
        TOP_LEFT: The uppermost.
        BOTTOM_LEFT: The lowest, as in OpenGL.
    """

    TOP_LEFT = "top_left"
    BOTTOM_LEFT = "bottom_left"


class ChannelSwizzle(StrEnum):
    """Named channel orders; `set_channel_swizzle` also accepts any string of channel letters.

    Attributes:
        RGBA: Red, green, blue, alpha.
        BGRA: Blue, green, red, alpha.
    """

    RGBA = "rgba"
    BGRA = "bgra"


Resampling = Literal["nearest", "bilinear", "area"]
RESAMPLINGS: tuple[Resampling, ...] = ("nearest", "bilinear", "area")
ColorSpace = Literal["srgb", "linear"]
LETTERS = "rgba"
"""The channels of an image. Swizzles may also hold l (luminance), 0 and 1."""
DTYPES = ("float32", "float16", "uint8", "int8", "int32")
"""Element types of tensors that images become."""
PerChannel = float | Sequence[float]
_Kind = TypeVar("_Kind", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class TextureTransform:
    """Settings of a conversion between image and tensor. Immutable; the `set_` methods return a copy.

    To a tensor, in this order: values from 0 to 1 (8-bit channels divided by 255); colours made linear if
    asked; the image turned so that its row 0 is `coord_origin`'s, then resampled to `width` x `height`; the
    channels picked by `swizzle` and `color_mask`; times `scale`, plus `offset`. To an image all is undone in
    the opposite order, with the sizes' roles exchanged.

    Attributes:
        width: columns of the tensor; None takes the tensor's, the model's, or the image's.
        height: rows, likewise.
        channels: channels (1 to 4), likewise.
        layout: order of the tensor's axes.
        swizzle: the image's channel for each of the tensor's; "" is l for one channel, else "rgba".
        color_mask: which channels of the image take part; others count as missing.
        default_color: r, g, b, a of missing channels, from 0 to 1.
        coord_origin: where the tensor's row 0 is in the image.
        texture_origin: where the image's row 0 is; None knows by kind: the bottom for moderngl textures,
            framebuffers and render targets, the top for arrays, surfaces and `Texture`.
        resampling: how sizes are matched.
        color_space: "linear" takes images as sRGB and gives tensors of linear light; "srgb" leaves values.
        scale: factor for each channel, or one for all.
        offset: what is added for each channel, or to all.
        broadcast_channels: whether a tensor of one channel becomes red, green and blue, or red only.
        first_channel: which of a tensor's channels the swizzle's first letter means, to look into large ones.
        dtype: type of the tensors that are made.
    """

    width: int | None = None
    height: int | None = None
    channels: int | None = None
    layout: TensorLayout | str = TensorLayout.NCHW
    swizzle: str = ""
    color_mask: str = LETTERS
    default_color: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 1.0)
    coord_origin: CoordOrigin | str = CoordOrigin.TOP_LEFT
    texture_origin: CoordOrigin | str | None = None
    resampling: Resampling = "bilinear"
    color_space: ColorSpace = "srgb"
    scale: tuple[float, ...] = (1.0,)
    offset: tuple[float, ...] = (0.0,)
    broadcast_channels: bool = True
    first_channel: int = 0
    dtype: str = "float32"

    def __post_init__(self) -> None:
        for name, low, high in (("width", 1, 16384), ("height", 1, 16384), ("channels", 1, 4)):
            size = getattr(self, name)
            if size is not None and not low <= size <= high:
                raise InputError(f"{name} is {size}; from {low} to {high}")
        if len(self.swizzle) > 4 or set(self.swizzle) - set("rgbal01"):
            raise InputError(f"swizzle is {self.swizzle!r}; up to four of the letters r, g, b, a, l, 0, 1")
        if self.swizzle and self.channels not in (None, len(self.swizzle)):
            raise InputError(
                f"swizzle {self.swizzle!r} is for {len(self.swizzle)} channels, not {self.channels}"
            )
        if set(self.color_mask) - set(LETTERS):
            raise InputError(f"color_mask is {self.color_mask!r}; letters of 'rgba'")
        if len(self.default_color) != 4:
            raise InputError(f"default_color is {self.default_color}; four numbers: red, green, blue, alpha")
        object.__setattr__(self, "layout", _enum(TensorLayout, self.layout))
        object.__setattr__(self, "coord_origin", _enum(CoordOrigin, self.coord_origin))
        if self.texture_origin is not None:
            object.__setattr__(self, "texture_origin", _enum(CoordOrigin, self.texture_origin))
        _one_of("resampling", self.resampling, RESAMPLINGS)
        _one_of("color_space", self.color_space, ("srgb", "linear"))
        _one_of("dtype", self.dtype, DTYPES)
        for name in ("scale", "offset"):
            object.__setattr__(self, name, _numbers(getattr(self, name)))
            if not 1 <= len(getattr(self, name)) <= 4:
                raise InputError(f"{name} is {getattr(self, name)}; one number, or one for each channel")
        if 0.0 in self.scale:
            raise InputError("a scale of 0 would leave nothing of the image")
        if self.first_channel < 0:
            raise InputError(f"first_channel is {self.first_channel}; 0 or more")

    def set_dimensions(
        self, width: int | None = None, height: int | None = None, channels: int | None = None
    ) -> TextureTransform:
        """Set the tensor's size; `None` takes that of the tensor, the model or the image.

        Args:
            width: Columns.
            height: Rows.
            channels: Channels.

        Returns:
            Another transform.
        """
        return replace(self, width=width, height=height, channels=channels)

    def set_tensor_layout(self, layout: TensorLayout | str) -> TextureTransform:
        """Order of the tensor's axes: "NCHW" or "NHWC"."""
        return replace(self, layout=_enum(TensorLayout, layout))

    def set_channel_swizzle(self, swizzle: ChannelSwizzle | str) -> TextureTransform:
        """Set the image channel for each tensor channel: "bgr" puts blue first.

        Letters: r, g, b, a; l is luminance (0.299, 0.587, 0.114 of the stored values, 0.2126, 0.7152, 0.0722
        of linear ones), to an image it is red, green and blue; 0 and 1 are these numbers.
        """
        return replace(self, swizzle=str(swizzle).lower(), channels=len(swizzle) or None)

    def set_coord_origin(self, origin: CoordOrigin | str) -> TextureTransform:
        """Set where the tensor's row 0 is in the image: "top_left" or "bottom_left"."""
        return replace(self, coord_origin=_enum(CoordOrigin, origin))

    def set_texture_origin(self, origin: CoordOrigin | str | None) -> TextureTransform:
        """Set where the image's row 0 is, if it differs from the default for its type.

        Such as a moderngl texture that was filled from an image file, top row first: "top_left".
        """
        return replace(self, texture_origin=None if origin is None else _enum(CoordOrigin, origin))

    def set_color_mask(
        self, mask: str, default: tuple[float, float, float, float] | None = None
    ) -> TextureTransform:
        """Set the image channels to convert, such as "rgb"; the others take `default`."""
        changed = self if default is None else self.set_default_color(*default)
        return replace(changed, color_mask=mask.lower())

    def set_default_color(
        self, red: float = 0.0, green: float = 0.0, blue: float = 0.0, alpha: float = 1.0
    ) -> TextureTransform:
        """Set the values of channels that an image, a tensor or the mask lacks.

        Args:
            red: 0 to 1.
            green: 0 to 1.
            blue: 0 to 1.
            alpha: 0 to 1.

        Returns:
            Another transform.
        """
        return replace(self, default_color=(float(red), float(green), float(blue), float(alpha)))

    def set_broadcast_channels(self, broadcast: bool) -> TextureTransform:
        """Whether a tensor of one channel becomes red, green and blue, or red only."""
        return replace(self, broadcast_channels=bool(broadcast))

    def set_resampling(self, resampling: Resampling) -> TextureTransform:
        """Set the filter: "nearest", "bilinear" (four texels) or "area" (mean of the covered texels).

        Pixels are squares: the middle of the first is at half a pixel. Use "area" to make images smaller.
        """
        return replace(self, resampling=resampling)

    def set_color_space(self, space: ColorSpace) -> TextureTransform:
        """Set the color space: "linear" converts sRGB images to linear tensors (alpha is unchanged)."""
        return replace(self, color_space=space)

    def set_scale_offset(self, scale: PerChannel = 1.0, offset: PerChannel = 0.0) -> TextureTransform:
        """Set tensor = image * scale + offset, with the image from 0 to 1: (2, -1) gives -1 to 1."""
        return replace(self, scale=_numbers(scale), offset=_numbers(offset))

    def set_normalization(self, mean: PerChannel, std: PerChannel) -> TextureTransform:
        """Set tensor = (image - mean) / std, per channel of the tensor."""
        means, stds = _numbers(mean), _numbers(std)
        count = max(len(means), len(stds))
        pairs = zip(_repeated(means, count), _repeated(stds, count), strict=True)
        offset = tuple(-m / s for m, s in pairs)
        return replace(self, scale=tuple(1.0 / s for s in stds), offset=offset)

    def set_first_channel(self, channel: int) -> TextureTransform:
        """Set the tensor channel that the first swizzle letter refers to when writing an image."""
        return replace(self, first_channel=int(channel))

    def set_dtype(self, dtype: DTypeLike) -> TextureTransform:
        """Type of the tensors that are made; integers are rounded, and limited to the type's range."""
        return replace(self, dtype=np.dtype(dtype).name)

    @property
    def is_channels_last(self) -> bool:
        """Whether the layout is NHWC."""
        return self.layout == TensorLayout.NHWC

    def shape(self, batch: int, channels: int, height: int, width: int) -> tuple[int, int, int, int]:
        """A tensor's shape in this layout.

        Args:
            batch: Images.
            channels: Channels.
            height: Rows.
            width: Columns.
        """
        if self.is_channels_last:
            return batch, height, width, channels
        return batch, channels, height, width

    def sizes(self, shape: Sequence[int | str | None]) -> tuple[int | str | None, ...]:
        """(batch, channels, height, width) of a tensor's shape; it may lack the batch, or that and channels.

        Raises:
            InputError: The shape has another number of axes.
        """
        full = tuple(shape)
        if len(full) == 2:
            full = (1, *full, 1) if self.is_channels_last else (1, 1, *full)
        elif len(full) == 3:
            full = (1, *full)
        if len(full) != 4:
            raise InputError(f"an image's tensor has 4 dimensions ({self.layout}), not {len(full)}: {shape}")
        n, *rest = full
        c, h, w = (rest[2], rest[0], rest[1]) if self.is_channels_last else rest
        return n, c, h, w

    def letters(self, channels: int) -> str:
        """The image channel for each of a tensor's `channels`."""
        return self.swizzle or ("l" if channels == 1 else LETTERS[:channels])

    def scales(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Scale and offset for four channels."""
        return _repeated(self.scale, 4), _repeated(self.offset, 4)

    def describe(self) -> str:
        """Describe the conversion, one line per step."""
        size = " x ".join(str(n or "?") for n in (self.width, self.height))
        scale = " ".join(f"{x:g}" for x in self.scale)
        offset = " ".join(f"{x:g}" for x in self.offset)
        mask = "all" if set(self.color_mask) == set(LETTERS) else self.color_mask or "none"
        return "\n".join(
            (
                f"size: {size}, {self.resampling}",
                f"channels: {self.swizzle or self.channels or '?'} (mask {mask}), {self.layout}",
                f"row 0 of the tensor: {self.coord_origin}",
                f"values: {'linear light' if self.color_space == 'linear' else 'as stored'}"
                f" * {scale} + {offset}, {self.dtype}",
            )
        )


def _one_of(name: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise InputError(f"{name} is {value!r}; one of {', '.join(known)}")


def _enum(kind: type[_Kind], value: str) -> _Kind:
    for member in kind:
        if value == member or str(value).upper() == member.name:
            return member
    raise InputError(f"{kind.__name__} is {value!r}; one of {', '.join(m.value for m in kind)}")


def _numbers(value: PerChannel) -> tuple[float, ...]:
    return tuple(float(x) for x in np.atleast_1d(np.asarray(value, np.float64)))


def _repeated(numbers: tuple[float, ...], count: int) -> tuple[float, ...]:
    """One for each channel; a single one is meant for all."""
    if len(numbers) == 1:
        return numbers * count
    return (numbers + (numbers[-1],) * count)[:count]
