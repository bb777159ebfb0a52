"""`gameglue inspect MODEL --texture IMAGE`: shows how an image is converted to a model's input.

The preview shows the image upright, then each channel of the tensor as it is in memory (row 0 on top),
then what the same transform makes of the tensor again.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from engine import BackendType, Input, Model, TextureConverter, TextureTransform
from engine.base.errors import InputError
from gameglue.cli.console import properties, table, title
from gameglue.host.pygame_ce import import_pygame
from gameglue.host.resources import Resources

_TILE = 192  # pixels: the longer side of each image in the preview
_GAP, _LINE = 12, 18
_INK, _PAPER, _MARK = (32, 34, 40), (244, 244, 240), (200, 60, 40)


def add_texture_options(parser: argparse.ArgumentParser) -> None:
    """Add `--texture`, `--transform` and `--preview`."""
    parser.add_argument(
        "--texture",
        metavar="[NAME=]IMAGE",
        help="show how an image is converted to an input (default: the first with four dimensions)",
    )
    parser.add_argument(
        "--transform",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=f"conversion setting; may be given several times. Names: {', '.join(_SETTINGS)}. Such as "
        "swizzle=bgr, origin=bottom_left, resampling=area, mean=0.485,0.456,0.406",
    )
    parser.add_argument(
        "--preview",
        metavar="FILE",
        default="out/texture.png",
        help="preview image to write. Default: %(default)s",
    )


def show_texture(console: Console, model: Model, arguments: argparse.Namespace) -> None:
    """Convert an image, print the transform and statistics of each channel, and write the preview."""
    name, _, file = arguments.texture.rpartition("=")
    item = _input_of(model, name)
    transform = _fitted(transform_of(arguments.transform), item)
    picture = Resources(Path.cwd()).read_image(Path(file).resolve())
    tensor = TextureConverter.to_tensor(picture, transform, on=BackendType.CPU)
    values = tensor.download_to_array()
    planes = values_of(values, transform)
    again = np.zeros((*planes.shape[1:], 3), np.uint8)
    TextureConverter.to_texture(tensor, _outward(transform), again)
    while TextureConverter.poll():
        pass  # the CPU's job threads write it
    rows = [
        (k, letter, f"{plane.min():.4g}", f"{plane.mean():.4g}", f"{plane.max():.4g}")
        for k, (plane, letter) in enumerate(zip(planes, transform.letters(len(planes)), strict=True))
    ]
    path = Path(arguments.preview)
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(path, picture, planes, transform, again)
    title(console, f"{file} in input '{item.name}'")
    properties(
        console,
        [
            ("picture", f"{picture.shape[1]} x {picture.shape[0]} pixels, row 0 on top"),
            ("tensor", f"{values.dtype} {list(values.shape)} ({transform.layout})"),
            ("transform", transform.describe()),
            ("preview", f"{path} (red lines mark row 0 of the tensor)"),
        ],
        indent=2,
    )
    console.print(table(("", "channel of the picture", "least", "mean", "most"), rows))


def transform_of(texts: list[str]) -> TextureTransform:
    """`--transform` as a transform. Raises `InputError`."""
    transform, pairs = TextureTransform(), {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or name not in _SETTINGS:
            raise InputError(
                f"--transform is written as NAME=VALUE, not {text!r}; names: {', '.join(_SETTINGS)}"
            )
        pairs[name] = value
    for name, value in pairs.items():
        if name in ("mean", "std", "scale", "offset"):
            continue
        try:
            transform = _SETTINGS[name](transform, value)
        except (ValueError, TypeError) as error:
            raise InputError(f"--transform {name}={value}: {error}") from error
    numbers = {
        name: _numbers(name, pairs[name]) for name in ("mean", "std", "scale", "offset") if name in pairs
    }
    if {"mean", "std"} & numbers.keys():
        return transform.set_normalization(numbers.get("mean", (0.0,)), numbers.get("std", (1.0,)))
    return transform.set_scale_offset(numbers.get("scale", (1.0,)), numbers.get("offset", (0.0,)))


def values_of(tensor: np.ndarray, transform: TextureTransform) -> np.ndarray:
    """The first image of a tensor as (channels, rows, columns)."""
    return tensor[0].transpose(2, 0, 1) if transform.is_channels_last else tensor[0]


def _numbers(name: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(x) for x in text.split(","))
    except ValueError as error:
        raise InputError(
            f"--transform {name}={text}: numbers with commas between them, such as 0.5,0.5,0.5"
        ) from error


def _size(transform: TextureTransform, text: str) -> TextureTransform:
    width, _, height = text.lower().partition("x")
    return transform.set_dimensions(int(width), int(height), transform.channels)


_SETTINGS: dict[str, Callable[[TextureTransform, str], TextureTransform]] = {
    "size": _size,
    "channels": lambda t, text: t.set_dimensions(t.width, t.height, int(text)),
    "layout": lambda t, text: t.set_tensor_layout(text),
    "swizzle": lambda t, text: t.set_channel_swizzle(text),
    "mask": lambda t, text: t.set_color_mask(text),
    "origin": lambda t, text: t.set_coord_origin(text),
    "texture_origin": lambda t, text: t.set_texture_origin(text),
    "resampling": lambda t, text: t.set_resampling(text),  # type: ignore[arg-type]
    "color": lambda t, text: t.set_color_space(text),  # type: ignore[arg-type]
    "dtype": lambda t, text: t.set_dtype(text),
    "mean": lambda t, text: t,
    "std": lambda t, text: t,
    "scale": lambda t, text: t,
    "offset": lambda t, text: t,
}


def _input_of(model: Model, name: str) -> Input:
    candidates = [item for item in model.inputs if item.shape is not None and len(item.shape) == 4]
    found = [item for item in model.inputs if item.name == name] if name else candidates[:1]
    if not found:
        known = ", ".join(f"{item.name}: {item.dtype} {item.shape}" for item in model.inputs)
        wanted = repr(name) if name else "with four dimensions"
        raise InputError(f"no input {wanted} for an image; the model's inputs: {known}")
    if found[0].shape is None or len(found[0].shape) != 4:
        raise InputError(f"input '{name}' has the shape {found[0].shape}; images need four dimensions")
    return found[0]


def _fitted(transform: TextureTransform, item: Input) -> TextureTransform:
    """The transform with what it leaves open taken from the model's input."""
    assert item.shape is not None
    _, channels, height, width = transform.sizes(tuple(item.shape))

    def known(own: int | None, there: object) -> int | None:
        return own if own is not None or not isinstance(there, int) else there

    fitted = transform.set_dtype(item.dtype) if transform.dtype == "float32" else transform
    count = None if transform.swizzle else known(transform.channels, channels)
    count = len(transform.swizzle) or count
    return fitted.set_dimensions(known(transform.width, width), known(transform.height, height), count)


def _outward(transform: TextureTransform) -> TextureTransform:
    """The transform back to an image array, whose row 0 is at the top."""
    return transform.set_texture_origin(None)


def _write(
    path: Path, picture: np.ndarray, planes: np.ndarray, transform: TextureTransform, again: np.ndarray
) -> None:
    """Pictures side by side, each with a caption; row 0 of each channel is marked."""
    pygame = import_pygame()
    pygame.font.init()
    font = pygame.font.Font(None, _LINE)
    tiles: list[tuple[str, np.ndarray, bool]] = [("picture", picture[..., :3], False)]
    for k, (plane, letter) in enumerate(zip(planes, transform.letters(len(planes)), strict=True)):
        low, high = float(plane.min()), float(plane.max())
        grey = np.clip((plane - low) / max(high - low, 1e-9) * 255, 0, 255).astype(np.uint8)
        caption = f"channel {k}: {letter}, {low:.3g} to {high:.3g}"
        tiles.append((caption, np.repeat(grey[..., None], 3, axis=2), True))
    tiles.append(("back from the tensor", again, False))
    images = [_scaled(pygame, pixels) for _, pixels, _ in tiles]
    widths = [max(i.get_width(), font.size(tile[0])[0]) for i, tile in zip(images, tiles, strict=True)]
    height = max(i.get_height() for i in images) + _LINE + 3 * _GAP
    canvas = pygame.Surface((sum(widths) + _GAP * (len(tiles) + 1), height), depth=24)
    canvas.fill(_PAPER)
    x = _GAP
    for (caption, _, marked), image, width in zip(tiles, images, widths, strict=True):
        canvas.blit(font.render(caption, True, _INK), (x, _GAP))
        top = _GAP + _LINE + _GAP // 2
        canvas.blit(image, (x, top))
        if marked:
            pygame.draw.line(canvas, _MARK, (x, top - 2), (x + image.get_width() - 1, top - 2), 2)
        x += width + _GAP
    pygame.image.save(canvas, str(path))


def _scaled(pygame: Any, pixels: np.ndarray) -> Any:
    """An image of (rows, columns, 3), as large as a tile; small ones in whole steps, so that pixels show."""
    rows, columns = pixels.shape[:2]
    surface = pygame.image.frombytes(np.ascontiguousarray(pixels).tobytes(), (columns, rows), "RGB")
    scale = _TILE / max(rows, columns)
    if scale >= 1:
        return pygame.transform.scale_by(surface, max(int(scale), 1))
    return pygame.transform.smoothscale(
        surface, (max(1, round(columns * scale)), max(1, round(rows * scale)))
    )
