"""Colours: how a game may write them, and the palette of gameglue's own drawing."""

from __future__ import annotations

import functools
from typing import Annotated

import numpy as np

from engine.base.spelling import suggestion
from gameglue.scripting.fields import Named


def check_color(color: Color) -> None:
    """Raise `ValueError` for an invalid colour; numbers above 1 are rejected."""
    parse_color(color)
    if not isinstance(color, str) and max(color) > 1.0:
        raise ValueError(_above_one(color))


Color = Annotated[
    str | tuple[float, float, float] | tuple[float, float, float, float], Named("Color", check_color)
]
"""A name such as `"orange"`, `"#rgb"`, `"#rrggbb"`, `"#rrggbbaa"`, or three or four numbers from 0 to 1."""

_NAMED = {
    "black": "#000000",
    "white": "#ffffff",
    "gray": "#8b95a7",
    "grey": "#8b95a7",
    "red": "#f2555a",
    "orange": "#ffa24c",
    "yellow": "#ffd866",
    "green": "#5bd69a",
    "teal": "#3ec6c0",
    "blue": "#4c8dff",
    "purple": "#a078ff",
    "pink": "#ff7eb6",
    "transparent": "#00000000",
}


class Palette:
    """The colours of overlays and of the demos: quiet surfaces, one accent, readable text.

    Attributes:
        BACKGROUND: Behind everything.
        PANEL: Panels and cards.
        RAISED: Buttons and bars on a panel.
        LINE: Lines and frames.
        TEXT: Text.
        MUTED: Secondary text.
        ACCENT: What matters.
        GOOD: Success.
        WARN: Warning.
        BAD: Failure.
        PANEL_RGB: `PANEL` as red, green and blue, 0 to 1.
        WARN_RGB: `WARN` as red, green and blue, 0 to 1.
    """

    BACKGROUND = "#12151c"
    PANEL = "#1b202b"
    RAISED = "#262d3b"
    LINE = "#343d4f"
    TEXT = "#e8ecf3"
    MUTED = "#8f9ab0"
    ACCENT = "#4cc2ff"
    GOOD = "#5bd69a"
    WARN = "#ffb454"
    BAD = "#ff6b6b"
    PANEL_RGB = (0x1B / 255, 0x20 / 255, 0x2B / 255)
    WARN_RGB = (1.0, 0xB4 / 255, 0x54 / 255)


@functools.lru_cache(maxsize=4096)
def parse_color(color: Color) -> tuple[int, int, int, int]:
    """Red, green, blue and alpha, 0 to 255.

    Takes a name, "#rgb", "#rrggbb", "#rrggbbaa", or 3 or 4 numbers from 0 to 1. Raises `ValueError`.

    >>> parse_color("#ff8000"), parse_color((0.0, 0.5, 1.0, 0.5))
    ((255, 128, 0, 255), (0, 128, 255, 128))
    """
    if isinstance(color, str):
        digits = _NAMED.get(color.lower(), color).removeprefix("#")
        if len(digits) == 3:
            digits = "".join(d * 2 for d in digits)
        try:
            values = tuple(bytes.fromhex(digits))
        except ValueError:
            values = ()
        if len(values) == 3:
            values = (*values, 255)
        if len(values) != 4:
            near = suggestion(color, _NAMED).removesuffix("?")
            raise ValueError(
                f"unknown colour {color!r}{near}; write '#rrggbb', '#rrggbbaa' or one of: {', '.join(_NAMED)}"
            )
        return values[0], values[1], values[2], values[3]
    if max(color, default=0.0) >= 2.0:  # an animated one may be a little above 1
        raise ValueError(_above_one(color))
    numbers = [min(255, max(0, round(float(v) * 255))) for v in color]
    if len(numbers) == 3:
        numbers.append(255)
    if len(numbers) != 4:
        raise ValueError(f"a colour has 3 or 4 numbers from 0 to 1, got {color!r}")
    return numbers[0], numbers[1], numbers[2], numbers[3]


def _above_one(color: object) -> str:
    return f"a colour's numbers go from 0 to 1, not 0 to 255, got {color!r}"


def with_alpha(color: Color, opacity: float) -> tuple[float, float, float, float]:
    """Multiply a colour's alpha by `opacity`, 0 to 1, for fading.

    Raises:
        ValueError: There is no such colour.

    >>> with_alpha("#ff000080", 0.5)[0], round(with_alpha("#ff0000", 0.5)[3], 2)
    (1.0, 0.5)
    """
    red, green, blue, alpha = parse_color(color)
    return red / 255.0, green / 255.0, blue / 255.0, alpha / 255.0 * opacity


def parse_colors(colors: Color | np.ndarray, count: int) -> np.ndarray:
    """(count, 4) uint8 from one colour, or from an array (count, 3 or 4) of numbers from 0 to 1."""
    if isinstance(colors, np.ndarray) and colors.ndim == 2:
        rgba = np.full((count, 4), 255, np.uint8)
        rgba[:, : colors.shape[1]] = np.clip(np.rint(colors * 255.0), 0, 255)
        return rgba
    one = parse_color(colors) if isinstance(colors, str) else parse_color(tuple(colors))
    return np.tile(np.array(one, np.uint8), (count, 1))
