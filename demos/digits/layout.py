"""Where things are in the window, at every size of it."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from demos.digits.canvas import Point

_REFERENCE = (960, 640)  # the window for which the lengths below are written


@dataclass(frozen=True)
class Box:
    """A rectangle in pixels from the window's top left corner."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """x of the right edge."""
        return self.x + self.width

    @property
    def bottom(self) -> float:
        """y of the lower edge."""
        return self.y + self.height

    @property
    def center(self) -> Point:
        """The middle."""
        return self.x + self.width / 2, self.y + self.height / 2

    def holds(self, x: float, y: float) -> bool:
        """Whether a pixel lies inside."""
        return self.x <= x < self.right and self.y <= y < self.bottom

    def to_share(self, x: float, y: float) -> Point:
        """A pixel as fractions of width and height."""
        return (x - self.x) / self.width, (y - self.y) / self.height


@dataclass(frozen=True)
class Layout:
    """The boxes of the demo's window. `unit` is a pixel of a 960 x 640 window, in pixels of this one."""

    unit: float
    header: Box
    sheet: Box
    answer: Box
    seen: Box
    bars: Box
    times: Box
    footer: Box

    def text(self, size: float) -> float:
        """A letter size for a 960 x 640 window as one for this window; never too small to read."""
        return max(size * self.unit, min(size, 12.0))

    @staticmethod
    @functools.lru_cache(maxsize=8)
    def of(size: tuple[int, int]) -> Layout:
        """Place everything in a window of `size` pixels: the sheet on the left, the panels on the right."""
        width, height = size
        unit = min(width / _REFERENCE[0], height / _REFERENCE[1])
        margin, gap, head, foot = 22 * unit, 14 * unit, 54 * unit, 46 * unit
        side = round(max(min(height - head - foot, width - 2 * margin - gap - 350 * unit), 40.0))
        top = round(head + max(height - head - foot - side, 0.0) / 2)
        sheet = Box(round(margin), top, side, side)
        left = sheet.right + gap
        column = max(width - margin - left, 60.0)
        upper, middle = round(0.35 * side), round(0.34 * side)
        half = (column - gap) / 2
        answer = Box(left, top, half, upper)
        seen = Box(left + half + gap, top, half, upper)
        bars = Box(left, answer.bottom + gap, column, middle)
        times = Box(left, bars.bottom + gap, column, sheet.bottom - bars.bottom - gap)
        header = Box(margin, top - head, width - 2 * margin, head)
        footer = Box(margin, sheet.bottom, width - 2 * margin, foot)
        return Layout(unit, header, sheet, answer, seen, bars, times, footer)
