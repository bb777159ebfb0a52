"""SVG plots: curves, histograms and stacked areas. Colours come from the page's style sheet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

WIDTH, HEIGHT = 960, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 12, 12, 26


@dataclass(frozen=True)
class Axis:
    """Maps numbers to pixels."""

    low: float
    high: float
    start: float
    end: float

    def at(self, values: np.ndarray) -> np.ndarray:
        """Positions of numbers."""
        span = self.high - self.low or 1.0
        return self.start + (np.asarray(values, np.float64) - self.low) / span * (self.end - self.start)

    def place(self, value: float) -> float:
        """The position of a number."""
        return float(self.at(np.array([value]))[0])


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers between two, about `count` of them: steps of 1, 2 or 5 times a power of ten."""
    span = max(high - low, 1e-9)
    raw = span / count
    power = 10.0 ** np.floor(np.log10(raw))
    step = next((m * power for m in (1, 2, 5, 10) if m * power >= raw), 10 * power)
    first = np.ceil(low / step - 1e-9) * step
    return [float(v) + 0.0 for v in np.arange(first, high + step * 1e-6, step)]  # 0.0 and not -0.0


def curve(
    times_ms: np.ndarray, budget_ms: float | None, bands: Sequence[tuple[int, int]], tips: Sequence[str] = ()
) -> str:
    """Times frame by frame, the budget as a line, and `bands` of frames shaded. (n,) milliseconds."""
    if not len(times_ms):
        return _NO_FRAMES
    high = _top(times_ms, budget_ms)
    x = Axis(0.0, max(len(times_ms) - 1.0, 1.0), _LEFT, WIDTH - _RIGHT)
    y = Axis(0.0, high, HEIGHT - _BOTTOM, _TOP)
    parts = [_band(x, y, first, last) for first, last in bands]
    parts += _grid_y(y)
    parts += _labels_x(x, nice_ticks(0, len(times_ms) - 1, 8), y, "frame {}")
    points = _points(x.at(np.arange(len(times_ms))), y.at(np.minimum(times_ms, high)))
    base = y.place(0.0)
    parts.append(f'<polygon class="area" points="{x.place(0):.1f},{base} {points} {x.end},{base}"/>')
    parts.append(f'<polyline class="line" points="{points}"/>')
    if budget_ms is not None and budget_ms <= high:
        at = y.place(budget_ms)
        parts.append(f'<line class="budget" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(
            f'<text class="budget-label" x="{_LEFT + 5}" y="{at - 5:.1f}">budget {budget_ms:.1f} ms</text>'
        )
    return _svg("".join(parts), "frame times", "curve", tips)


def histogram(sides: Sequence[tuple[str, str, np.ndarray]], budget_ms: float | None) -> str:
    """Plot distributions of times: (name, class, (n,) milliseconds) per side, as shares of its frames."""
    sides = [side for side in sides if len(side[2])]
    if not sides:
        return _NO_FRAMES
    everything = np.concatenate([values for _, _, values in sides])
    high = max(float(np.percentile(everything, 99.5)) * 1.15, 1e-3)
    low = max(0.0, float(everything.min()) * 0.9)
    edges = np.linspace(low, high, 61)
    shares = [
        (name, style, np.histogram(np.minimum(values, high - 1e-9), edges)[0] / len(values))
        for name, style, values in sides
    ]
    x = Axis(low, high, _LEFT, WIDTH - _RIGHT)
    y = Axis(0.0, max(float(share.max()) for _, _, share in shares) * 1.08, HEIGHT - _BOTTOM, _TOP)
    parts = _grid_y(y, percent=True)
    parts += _labels_x(x, nice_ticks(low, high, 8), y, "{} ms")
    base = y.place(0.0)
    for name, style, share in shares:
        along = np.repeat(x.at(edges), 2)[1:-1]
        points = _points(along, np.repeat(y.at(share), 2))
        outline = f"{along[0]:.1f},{base} {points} {along[-1]:.1f},{base}"
        parts.append(
            f'<polygon class="hist {style}" points="{outline}"><title>{escape(name)}</title></polygon>'
        )
    if budget_ms is not None and low <= budget_ms <= high:
        at = x.place(budget_ms)
        parts.append(f'<line class="budget" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{base}"/>')
    return _svg("".join(parts), "histogram of frame times")


def stacked(series: Sequence[tuple[str, str, np.ndarray]], columns: int = 240) -> str:
    """Times on top of each other, frame by frame: (name, class, (n,) milliseconds), the lowest first.

    With more frames than `columns`, each column is the mean of several.
    """
    if not series or not len(series[0][2]):
        return _NO_FRAMES
    count = len(series[0][2])
    groups = np.linspace(0, count, min(columns, count) + 1).astype(int)
    sizes = np.diff(groups)
    means = np.array([np.add.reduceat(values, groups[:-1]) / sizes for _, _, values in series])
    tops = np.cumsum(means, axis=0)
    x = Axis(0.0, float(count), _LEFT, WIDTH - _RIGHT)
    y = Axis(0.0, max(float(np.percentile(tops[-1], 99.5)) * 1.1, 1e-3), HEIGHT - _BOTTOM, _TOP)
    parts = _grid_y(y)
    parts += _labels_x(x, nice_ticks(0, count, 8), y, "frame {}")
    along = np.repeat(x.at(groups), 2)[1:-1]
    lower = np.zeros_like(tops[0])
    for (name, style, _), top in zip(series, tops, strict=True):
        up = _points(along, np.repeat(y.at(np.minimum(top, y.high)), 2))
        down = _points(along[::-1], np.repeat(y.at(np.minimum(lower, y.high)), 2)[::-1])
        mean = float((top - lower).mean())
        parts.append(
            f'<polygon class="stack {style}" points="{up} {down}">'
            f"<title>{escape(name)}: {mean:.3f} ms on average</title></polygon>"
        )
        lower = top
    return _svg("".join(parts), "phases of the frame")


def share_bar(shares: Sequence[tuple[str, str, float]]) -> str:
    """One bar of several parts: (name, class, size)."""
    total = sum(size for _, _, size in shares) or 1.0
    parts = [
        f'<span class="{style}" style="width:{size / total * 100:.2f}%" title="{escape(name)}"></span>'
        for name, style, size in shares
        if size
    ]
    return f'<span class="bar">{"".join(parts)}</span>'


def _top(times_ms: np.ndarray, budget_ms: float | None) -> float:
    """The upper edge: all but the rarest, and the budget where that is near."""
    high = float(np.percentile(times_ms, 99.8)) * 1.15
    if budget_ms is not None and high > budget_ms * 0.35:
        high = max(high, budget_ms * 1.15)
    return max(high, 1e-3)


def _band(x: Axis, y: Axis, first: int, last: int) -> str:
    left, right = x.place(first), x.place(last)
    return (
        f'<rect class="band" x="{left:.1f}" y="{y.end}" width="{max(right - left, 1):.1f}" '
        f'height="{y.start - y.end}"/>'
    )


def _grid_y(y: Axis, percent: bool = False) -> list[str]:
    parts = []
    for value in nice_ticks(y.low, y.high, 4):
        at = y.place(value)
        label = f"{value * 100:g} %" if percent else f"{value:g}"
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text class="tick" x="{_LEFT - 7}" y="{at + 4:.1f}" text-anchor="end">{label}</text>')
    return parts


def _labels_x(x: Axis, ticks: Sequence[float], y: Axis, first: str) -> list[str]:
    """`first`: the first number as text, with what the numbers are."""
    parts = []
    for value in ticks:
        text = first.format(f"{value:g}") if value == ticks[0] else f"{value:g}"
        at = f'x="{x.place(value):.1f}" y="{y.start + 18:.1f}" text-anchor="middle"'
        parts.append(f'<text class="tick" {at}>{text}</text>')
    return parts


def _points(x: np.ndarray, y: np.ndarray) -> str:
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True))


def _svg(content: str, label: str, kind: str = "", tips: Sequence[str] = ()) -> str:
    data = ""
    if tips:
        data = f' data-left="{_LEFT}" data-right="{WIDTH - _RIGHT}" data-tips="{escape("|".join(tips))}"'
    return (
        f'<svg class="plot {kind}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}"'
        f"{data}>{content}</svg>"
    )


_NO_FRAMES = '<p class="muted">no frames</p>'
