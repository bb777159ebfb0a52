"""Fonts: glyphs are rasterised once by pygame into one atlas texture, and strings become quads.

Works without a display: pygame.font needs none.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gameglue.graphics.batch import GLYPH, QUAD
from gameglue.graphics.device import GraphicsDevice, Texture
from gameglue.host.pygame_ce import import_pygame

_WIDTH = 1024
_MAX_HEIGHT = 4096
# Glyphs are drawn with a border of one pixel, read with interpolation.
_GAP = 2
_CACHED_LAYOUTS = 1024
_SMOOTHED = 40


@dataclass(frozen=True)
class Glyph:
    """One character's place in the atlas, and how to place it, in pixels."""

    x: int
    y: int
    width: int
    height: int
    left: int
    top: int
    advance: float


@dataclass(frozen=True)
class TextLayout:
    """A string as quads: pixels from its top left corner, y down. `quads` is (n,) of dtype QUAD."""

    quads: np.ndarray
    width: float
    height: float


class GlyphAtlas:
    """Packs glyphs in rows into one single-channel texture, which grows downwards."""

    def __init__(self, device: GraphicsDevice) -> None:
        self._device = device
        self._pixels = np.zeros((256, _WIDTH), np.uint8)
        self._x = self._y = _GAP
        self._row = 0
        self._changed = True
        self.texture: Texture | None = None

    def place(self, alpha: np.ndarray) -> tuple[int, int] | None:
        """Find room for (height, width) uint8 coverage; returns x and y, or `None` if the atlas is full."""
        height, width = alpha.shape
        if self._x + width + _GAP > _WIDTH:
            self._x, self._y, self._row = _GAP, self._y + self._row + _GAP, 0
        while self._y + height + _GAP > len(self._pixels):
            if len(self._pixels) * 2 > _MAX_HEIGHT:
                return None
            self._pixels = np.vstack((self._pixels, np.zeros_like(self._pixels)))
        x, y = self._x, self._y
        self._pixels[y : y + height, x : x + width] = alpha
        self._x += width + _GAP
        self._row = max(self._row, height)
        self._changed = True
        return x, y

    def clear(self) -> None:
        """Remove all glyphs."""
        self._pixels[:] = 0
        self._x = self._y = _GAP
        self._row = 0
        self._changed = True

    def upload(self) -> Texture:
        """Upload new glyphs and return the texture."""
        if self.texture is None or self.texture.height != len(self._pixels):
            if self.texture is not None:
                self.texture.release()
            self.texture = self._device.texture(self._pixels)
        elif self._changed:
            self.texture.write(self._pixels)
        self._changed = False
        return self.texture


class Font:
    """One typeface at one size in pixels.

    Small letters are rasterised four times larger and averaged. The font's own hinting bends small letters to
    whole pixels, each by itself, which makes them uneven; this keeps their shapes and their spacing, to a
    quarter of a pixel (`phase`).
    """

    def __init__(self, atlas: GlyphAtlas, path: Path, size: int) -> None:
        pygame = import_pygame()
        if not pygame.font.get_init():
            pygame.font.init()
        self.scale = 4 if size <= _SMOOTHED else 1
        self._surfarray = pygame.surfarray
        self._font = pygame.font.Font(str(path), size * self.scale)
        self._atlas = atlas
        self._glyphs: dict[tuple[str, int], Glyph] = {}
        self._ascent = round(self._font.get_ascent() / self.scale)
        self.line_height = round(self._font.get_linesize() / self.scale)

    def glyph(self, character: str, pen: float) -> Glyph | None:
        """The glyph for a character at `pen` pixels, rasterised on first use; `None` if the atlas is full."""
        phase = int(pen % 1.0 * self.scale)
        found = self._glyphs.get((character, phase))
        if found is not None:
            return found
        metrics = self._font.metrics(character)[0] or self._font.metrics("?")[0]
        advance = metrics[4] / self.scale
        # pygame starts the surface at the pen, or at the ink where that reaches left of the pen.
        alpha, left, top = self._coverage(character, min(int(metrics[0]), 0) + phase)
        rows, columns = np.flatnonzero(alpha.any(axis=1)), np.flatnonzero(alpha.any(axis=0))
        if len(rows) == 0:
            glyph = Glyph(0, 0, 0, 0, 0, 0, advance)
        else:
            ink = alpha[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
            place = self._atlas.place(ink)
            if place is None:
                return None
            height, width = ink.shape
            glyph = Glyph(*place, width, height, left + int(columns[0]), top + int(rows[0]), advance)
        self._glyphs[character, phase] = glyph
        return glyph

    def _coverage(self, character: str, shift: int) -> tuple[np.ndarray, int, int]:
        """Coverage (h, w) uint8 in pixels, with its left and top edge relative to pen and line."""
        surface = self._font.render(character, True, (255, 255, 255))
        if surface.get_width() == 0:
            return np.zeros((1, 1), np.uint8), 0, 0
        large: np.ndarray = self._surfarray.array_alpha(surface).T
        scale = self.scale
        drop = self._ascent * scale - self._font.get_ascent()  # The baseline comes to lie between two pixels.
        left, top = shift // scale, drop // scale
        before = (drop - top * scale, shift - left * scale)
        after = [-(length + pad) % scale for length, pad in zip(large.shape, before, strict=True)]
        padded = np.pad(large, list(zip(before, after, strict=True)))
        blocks = padded.reshape(padded.shape[0] // scale, scale, padded.shape[1] // scale, scale)
        return np.rint(blocks.mean(axis=(1, 3))).astype(np.uint8), left, top


class Fonts:
    """The fonts of one device, their shared atlas, and a cache of text layouts."""

    def __init__(self, device: GraphicsDevice) -> None:
        self._atlas = GlyphAtlas(device)
        self._fonts: dict[tuple[Path, int], Font] = {}
        self._layouts: dict[tuple[str, int, Path], TextLayout] = {}
        self._default: Path | None = None
        self._full = False

    @property
    def default(self) -> Path:
        """The default font file: pygame's."""
        if self._default is None:
            pygame = import_pygame()
            self._default = Path(pygame.__file__ or "").parent / pygame.font.get_default_font()
        return self._default

    @default.setter
    def default(self, path: Path) -> None:
        self._default = Path(path)

    def line_height(self, size: int, path: Path | None = None) -> int:
        """Distance between lines, in pixels."""
        return self._font(path or self.default, size).line_height

    def layout(self, text: str, size: int, path: Path | None = None) -> TextLayout:
        """Lay out `text`, which may have several lines; `size` in pixels."""
        key = (text, size, path or self.default)
        found = self._layouts.pop(key, None)
        if found is None:
            if len(self._layouts) >= _CACHED_LAYOUTS:
                self._layouts.pop(next(iter(self._layouts)))
            found = self._place(*key)
        self._layouts[key] = found
        return found

    def begin_frame(self) -> None:
        """Clear the atlas if it was full in the previous frame, whose quads are drawn by now."""
        if self._full:
            self._atlas.clear()
            self._fonts.clear()
            self._layouts.clear()
            self._full = False

    def upload(self) -> Texture:
        """Upload new glyphs and return the atlas texture."""
        return self._atlas.upload()

    def _font(self, path: Path, size: int) -> Font:
        key = (path, size)
        if key not in self._fonts:
            self._fonts[key] = Font(self._atlas, path, size)
        return self._fonts[key]

    def _place(self, text: str, size: int, path: Path) -> TextLayout:
        font = self._font(path, size)
        boxes: list[tuple[float, float, float, float, float, float]] = []
        width = 0.0
        lines = text.split("\n")
        for i, line in enumerate(lines):
            pen = 0.0
            for character in line.replace("\t", "    "):
                if not character.isprintable():
                    continue  # Control characters have no shape, and pygame refuses some of them.
                glyph = font.glyph(character, pen)
                if glyph is None:
                    self._full = True
                    continue
                if glyph.width:
                    x, y = int(pen) + glyph.left, i * font.line_height + glyph.top
                    boxes.append((x, y, glyph.width, glyph.height, glyph.x, glyph.y))
                pen += glyph.advance
            width = max(width, pen)
        return TextLayout(_as_quads(boxes), width, float(len(lines) * font.line_height))


def _as_quads(boxes: list[tuple[float, float, float, float, float, float]]) -> np.ndarray:
    """Quads from left, top, width and height in pixels, and the place in the atlas."""
    table = np.array(boxes, np.float32).reshape(-1, 6)
    corner, size, place = table[:, 0:2], table[:, 2:4], table[:, 4:6]
    quads = np.zeros(len(table), QUAD)
    quads["axis"][:, 0] = 1.0
    quads["shape"][:, 2] = GLYPH
    # A pixel of empty border each way: enlarged or between pixels, edges fade instead of being cut.
    quads["half"] = size / 2 + 1
    quads["center"] = corner + size / 2
    quads["uv"][:, 0:2] = place - 1
    quads["uv"][:, 2:4] = place + size + 1
    return quads
