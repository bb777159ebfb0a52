"""Where things are in the window, at every size of it."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from gameglue import Rect

_REFERENCE = (960, 640)  # the window for which the lengths below are written


@dataclass(frozen=True)
class Layout:
    """The boxes of the demo's window. `unit` is a pixel of a 960 x 640 window, in pixels of this one."""

    unit: float
    header: Rect
    sheet: Rect
    answer: Rect
    seen: Rect
    bars: Rect
    times: Rect
    footer: Rect

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
        sheet = Rect(round(margin), top, side, side)
        left = sheet.right + gap
        column = max(width - margin - left, 60.0)
        upper, middle = round(0.35 * side), round(0.34 * side)
        half = (column - gap) / 2
        answer = Rect(left, top, half, upper)
        seen = Rect(left + half + gap, top, half, upper)
        bars = Rect(left, answer.bottom + gap, column, middle)
        times = Rect(left, bars.bottom + gap, column, sheet.bottom - bars.bottom - gap)
        header = Rect(margin, top - head, width - 2 * margin, head)
        footer = Rect(margin, sheet.bottom, width - 2 * margin, foot)
        return Layout(unit, header, sheet, answer, seen, bars, times, footer)
