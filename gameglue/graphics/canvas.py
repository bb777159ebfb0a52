"""`Canvas`: shapes, lines, text and images, in pixels or in world units."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from gameglue.errors import GraphicsError
from gameglue.graphics.batch import ADDS, PICTURE, PLAIN, Picture, QuadList, QuadPipeline, View
from gameglue.graphics.colors import Color, Palette, parse_color, parse_colors
from gameglue.graphics.device import RenderTarget
from gameglue.graphics.text import Fonts, TextLayout

Align = Literal["left", "center", "right"]
VerticalAlign = Literal["top", "center", "bottom"]
_CORE = 0.4  # of its colour is left in a line that glows; the rest is white
_WIDE_FRAME = 20_000  # pixels
_SHIFT = {"left": 0.0, "center": 0.5, "right": 1.0, "top": 0.0, "bottom": 1.0}


class Canvas:
    """Collects 2D drawing and submits it to the GPU in few batches.

    `app.gui` is a canvas in pixels from the top left corner, y down. The canvas that a camera hands to
    `Renderer.draw` is in world units, y up; sizes, widths and radii are then in world units too. What is
    drawn later is on top.

    Attributes:
        view: How its coordinates become the image's.
        size: Width and height of the image in pixels.
    """

    def __init__(
        self,
        pipeline: QuadPipeline,
        fonts: Fonts,
        view: View,
        size: tuple[float, float],
        quads: QuadList | None = None,
    ) -> None:
        """`quads`: of another canvas, to draw on that one in other units."""
        self._pipeline = pipeline
        self._fonts = fonts
        self._quads = QuadList() if quads is None else quads
        self.view = view
        self.size = size

    @property
    def width(self) -> float:
        """Width of the image in pixels."""
        return self.size[0]

    @property
    def height(self) -> float:
        """Height of the image in pixels."""
        return self.size[1]

    @property
    def _list(self) -> QuadList:
        return self._quads.with_view(self.view)

    # -- shapes ---------------------------------------------------------------------------------

    def rect(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        color: Color,
        radius: float = 0.0,
        *,
        color2: Color | None = None,
        border: float = 0.0,
        shadow: float = 0.0,
    ) -> None:
        """A rectangle with its corner of lowest x and y at (`x`, `y`).

        `color2` makes a gradient towards the higher y; `radius` rounds the corners; `border` draws only the
        outline, that wide; `shadow` lays a soft shadow under it, that wide.
        """
        cx, cy, half_w, half_h = x + width / 2, y + height / 2, width / 2, height / 2
        radius = min(radius, half_w, half_h)
        if shadow > 0.0:
            drop = shadow * (-0.25 if self.view.y_up else 0.25)
            self._list.add(cx, cy + drop, half_w, half_h, (0, 0, 0, 110), radius=radius, soft=shadow)
        near, far = parse_color(color), None if color2 is None else parse_color(color2)
        # Of a wide frame nearly all is empty, and shaded all the same: 5 ms a frame on a software renderer.
        is_wide = border > 0.0 and far is None and width * height > _WIDE_FRAME * self.view.pixel**2
        if is_wide and radius == 0.0:
            inner = height - 2 * border
            self.rect(x, y, width, border, color)
            self.rect(x, y + height - border, width, border, color)
            self.rect(x, y + border, border, inner, color)
            self.rect(x + width - border, y + border, border, inner, color)
        elif is_wide and radius >= border / 2 and near[3] == 255:  # joints of others would be seen
            path = _outline(x, y, width, height, radius, border / 2)
            self.polyline(path, color, width=border, closed=True)
        else:
            self._list.add(cx, cy, half_w, half_h, near, color2=far, radius=radius, border=border)

    def circle(
        self, x: float, y: float, radius: float, color: Color, *, border: float = 0.0, glow: float = 0.0
    ) -> None:
        """A disc around (`x`, `y`), or a ring `border` wide; `glow` adds light around it, that wide."""
        rgba = parse_color(color)
        if glow > 0.0:
            light = (*rgba[:3], rgba[3] // 2)
            self._list.add(x, y, radius, radius, light, radius=radius, soft=glow)
        self._list.add(x, y, radius, radius, rgba, radius=radius, border=border)

    def circles(
        self,
        positions: np.ndarray | Sequence[tuple[float, float]],
        radii: float | np.ndarray,
        colors: Color | np.ndarray = "white",
        *,
        softness: float = 0.0,
        additive: bool = False,
    ) -> None:
        """Many discs in one call.

        positions: (n, 2) centres; radii: one number, or (n,); colors: one, or (n, 3 or 4) numbers from 0
        to 1. `softness` lets them fade towards the rim: 0 not at all, 1 from the centre. `additive` adds
        their light to what is there instead of covering it.
        """
        centers = np.asarray(positions, np.float32).reshape(-1, 2)
        radius = np.broadcast_to(np.asarray(radii, np.float32), (len(centers),))
        fade = radius * np.float32(min(max(softness, 0.0), 1.0) / 2)
        quads = self._list.reserve(len(centers))
        quads["center"] = centers
        quads["half"] = (radius - fade)[:, None]
        quads["axis"], quads["uv"] = (1.0, 0.0), (0.0, 0.0, 1.0, 1.0)
        quads["shape"][:, 0], quads["shape"][:, 1] = radius - fade, 0.0
        quads["shape"][:, 2], quads["shape"][:, 3] = PLAIN + ADDS * additive, fade
        quads["color"] = quads["color2"] = parse_colors(colors, len(centers))

    def line(self, x0: float, y0: float, x1: float, y1: float, color: Color, *, width: float = 2.0) -> None:
        """A line with round ends."""
        self.polyline(np.array([[x0, y0], [x1, y1]], np.float32), color, width=width)

    def polyline(
        self,
        points: np.ndarray | Sequence[tuple[float, float]],
        color: Color | np.ndarray,
        *,
        width: float = 2.0,
        closed: bool = False,
        glow: float = 0.0,
        strength: float | np.ndarray = 1.0,
    ) -> None:
        """Lines from point to point, with round joints.

        points: (n, 2); color: one, or (n - 1, 3 or 4) numbers from 0 to 1, one row a segment. `glow` lets
        them shine like neon: light of their colour around a paler core, that wide. `strength`, 0 to 1, is one
        number or (n - 1,), one a segment: trails fade with it.
        """
        path = np.asarray(points, np.float32).reshape(-1, 2)
        if closed and len(path) > 2:
            path = np.vstack((path, path[:1]))
        if len(path) < 2:
            return
        start, step = path[:-1], np.diff(path, axis=0)
        length = np.hypot(step[:, 0], step[:, 1])
        safe = np.where(length > 0.0, length, 1.0)
        half = max(width, self.view.pixel) / 2
        # Thinner than a pixel: a pixel wide and fainter, so that it does not break.
        opacity = np.asarray(strength) * min(width / self.view.pixel, 1.0)
        rgba = parse_colors(color, len(start))
        rgba[:, 3] = np.clip(rgba[:, 3] * opacity, 0.0, 255.0)
        layers = [(rgba, 0.0)]
        if glow > 0.0:
            # Segments whose light reaches the same place add up: together to nearly the line's strength.
            share = 1.0 / (1.0 + 2.0 * (half + glow) / np.maximum(length, self.view.pixel))
            light, core = rgba.copy(), rgba
            light[:, 3] = np.rint(255.0 - 255.0 * (1.0 - 0.9 * rgba[:, 3] / 255.0) ** share)
            core[:, :3] = 255 - (255 - core[:, :3]) * _CORE
            layers = [(light, glow), (core, 0.0)]
        for shade, softness in layers:
            quads = self._list.reserve(len(start))
            quads["center"] = start + step / 2
            quads["half"][:, 0] = length / 2 + half
            quads["half"][:, 1] = half
            quads["axis"] = np.where(length[:, None] > 0.0, step / safe[:, None], (1.0, 0.0))
            quads["uv"] = (0.0, 0.0, 1.0, 1.0)
            quads["shape"] = (half, 0.0, 0.0, softness)
            quads["color"] = quads["color2"] = shade

    # -- images -------------------------------------------------------------------------------

    def image(
        self,
        picture: Picture,
        x: float,
        y: float,
        width: float | None = None,
        height: float | None = None,
        *,
        color: Color = "white",
        radius: float = 0.0,
        region: tuple[float, float, float, float] = (0.0, 0.0, 1.0, 1.0),
    ) -> None:
        """Draw an image with its lowest corner at (`x`, `y`), by default in its own size.

        `color` multiplies the image; `radius` rounds its corners; `region` cuts a part out of it, as for
        `sprite`.
        """
        w, h = _fit(picture, width, height)
        self.sprite(picture, x + w / 2, y + h / 2, w, h, color=color, radius=radius, region=region)

    def sprite(
        self,
        picture: Picture,
        x: float,
        y: float,
        width: float,
        height: float,
        *,
        rotation: float = 0.0,
        color: Color = "white",
        radius: float = 0.0,
        region: tuple[float, float, float, float] = (0.0, 0.0, 1.0, 1.0),
    ) -> None:
        """An image centred on (`x`, `y`), rotated by `rotation` degrees.

        `region` cuts out left, top, right and bottom, as fractions of the picture: a frame of a sheet.
        """
        angle = math.radians(rotation)
        self._list.add(
            x,
            y,
            width / 2,
            height / 2,
            parse_color(color),
            axis=(math.cos(angle), math.sin(angle)),
            uv=self._region(picture, region),
            radius=radius,
            picture=picture,
        )

    def sprites(
        self,
        picture: Picture,
        positions: np.ndarray | Sequence[tuple[float, float]],
        size: float | np.ndarray,
        colors: Color | np.ndarray = "white",
        *,
        rotations: float | np.ndarray = 0.0,
        regions: np.ndarray | None = None,
        additive: bool = False,
    ) -> None:
        """Draw many copies of one image, or of its regions, in one call.

        positions: (n, 2) centres; size: one number, (n,) as wide as tall, or (n, 2) widths and heights;
        colors: one, or (n, 3 or 4) numbers from 0 to 1; rotations: one number of degrees, or (n,); regions:
        (n, 4) left, top, right and bottom of each part, as fractions. `additive` adds their light to what is
        there instead of covering it.
        """
        centers = np.asarray(positions, np.float32).reshape(-1, 2)
        quads = self._list.reserve(len(centers), picture)
        angles = np.radians(np.broadcast_to(np.asarray(rotations, np.float32), (len(centers),)))
        quads["center"] = centers
        half = np.asarray(size, np.float32) / 2
        quads["half"] = half[:, None] if half.ndim == 1 else half
        quads["axis"][:, 0] = np.cos(angles)
        quads["axis"][:, 1] = np.sin(angles)
        if regions is None:
            quads["uv"] = self._region(picture, (0.0, 0.0, 1.0, 1.0))
        else:
            parts = np.array(regions, np.float32)
            parts[:, 1::2] = 1.0 - parts[:, 1::2] if picture.bottom_up else parts[:, 1::2]
            quads["uv"] = parts[:, (0, 3, 2, 1)] if self.view.y_up else parts
        quads["shape"] = (0.0, 0.0, PICTURE + ADDS * additive, 0.0)
        quads["color"] = quads["color2"] = parse_colors(colors, len(centers))

    def _region(
        self, picture: Picture, region: tuple[float, float, float, float]
    ) -> tuple[float, float, float, float]:
        left, top, right, bottom = region
        if picture.bottom_up:
            top, bottom = 1.0 - top, 1.0 - bottom
        return (left, bottom, right, top) if self.view.y_up else (left, top, right, bottom)

    # -- text -----------------------------------------------------------------------------------

    def text(
        self,
        text: str,
        x: float,
        y: float,
        size: float = 16.0,
        color: Color = Palette.TEXT,
        align: Align = "left",
        valign: VerticalAlign = "top",
        *,
        font: Path | None = None,
    ) -> float:
        """Write `text`, which may have several lines, and return its width.

        (`x`, `y`) is the left, centre or right, and the top, centre or bottom of the block; `size` is that of
        the letters in the canvas's units.
        """
        if text == "":
            return 0.0
        layout, unit = self._layout(text, size, font)
        width, height = layout.width * unit, layout.height * unit
        left = x - width * _SHIFT[align]
        down = -1.0 if self.view.y_up else 1.0
        top = y - down * height * _SHIFT[valign]
        if not self.view.y_up:  # On whole pixels, so that letters keep the sharp edges they were drawn with.
            pixel = self.view.pixel
            left, top = round(left / pixel) * pixel, round(top / pixel) * pixel
        quads = self._list.reserve(len(layout.quads))
        quads[:] = layout.quads
        quads["center"] = layout.quads["center"] * np.array((unit, unit * down), np.float32) + (left, top)
        quads["half"] *= unit
        if self.view.y_up:
            quads["uv"] = layout.quads["uv"][:, (0, 3, 2, 1)]
        quads["color"] = quads["color2"] = parse_color(color)
        return width

    def measure(self, text: str, size: float = 16.0, *, font: Path | None = None) -> tuple[float, float]:
        """Return the width and height of `text`."""
        layout, unit = self._layout(text, size, font)
        return layout.width * unit, layout.height * unit

    def _layout(self, text: str, size: float, font: Path | None) -> tuple[TextLayout, float]:
        if not isinstance(text, str):
            raise GraphicsError(
                f"text must be str, got {type(text).__name__} {text!r}: write str(...) around it"
            )
        if not isinstance(size, int | float | np.number):
            raise GraphicsError(
                f"the size of a text must be a number, got {size!r}; a colour is given by name, as in "
                'text("hi", 10, 10, color="red")'
            )
        pixels = min(max(round(size / self.view.pixel), 6), 256)
        unit = size / pixels if self.view.y_up else self.view.pixel
        return self._fonts.layout(text, pixels, font), unit

    # -- for the host ---------------------------------------------------------------------------

    def flush(self, target: RenderTarget) -> None:
        """Draw everything collected into `target`, and clear the collection."""
        if len(self._quads):
            self._pipeline.draw(self._quads, target, self._fonts.upload())


def _outline(x: float, y: float, width: float, height: float, radius: float, inset: float) -> np.ndarray:
    """The way around a rectangle with round corners, `inset` within its edges: (n, 2)."""
    bend = radius - inset
    angles = np.radians(np.linspace(0.0, 90.0, 9) + 90.0 * np.arange(4)[:, None])
    corners = np.array([(1.0, 1.0), (-1.0, 1.0), (-1.0, -1.0), (1.0, -1.0)])
    middles = corners * (width / 2 - inset - bend, height / 2 - inset - bend)
    rounds = np.stack((np.cos(angles), np.sin(angles)), axis=2) * bend + middles[:, None]
    return np.asarray(rounds.reshape(-1, 2) + np.array((x + width / 2, y + height / 2)))


def _fit(picture: Picture, width: float | None, height: float | None) -> tuple[float, float]:
    """The given size; a side that is not given follows from the image's proportions."""
    own_w, own_h = picture.size
    if width is None and height is None:
        return own_w, own_h
    if width is None:
        assert height is not None
        return height * own_w / own_h, height
    return (width, width * own_h / own_w) if height is None else (width, height)
