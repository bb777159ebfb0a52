"""Tensor watches: detect NaN in tensors on the CPU, and show tensors as heat maps.

Neither requests a readback: a tensor that is never read back is never shown.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class BadValues:
    """NaN or infinity in a tensor: number of elements, and the first frame."""

    worker: str
    tensor: str
    nan: int
    infinite: int
    elements: int
    frame: int

    def __str__(self) -> str:
        parts = [f"{self.nan} NaN"] if self.nan else []
        parts += [f"{self.infinite} infinite"] if self.infinite else []
        found = " and ".join(parts)
        return f"{self.worker}: {self.tensor} has {found} of {self.elements} (frame {self.frame})"


class NaNAlarm:
    """Notes the first time that each tensor held NaN or infinity.

    ignored: names of tensors in which infinity is meant, such as a mask; NaN never is.
    """

    def __init__(self) -> None:
        self.enabled = True
        self.ignored: set[str] = set()
        self.found: dict[tuple[str, str], BadValues] = {}

    def look(self, worker: str, tensor: str, array: np.ndarray, frame: int) -> None:
        """Check a floating point tensor's elements."""
        if not self.enabled or array.dtype.kind != "f" or (worker, tensor) in self.found:
            return
        # One pass without a temporary: any NaN or infinity makes the sum so, and few sums overflow.
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(array.sum(dtype=np.float64)):
                return
        nan, infinite = int(np.isnan(array).sum()), int(np.isinf(array).sum())
        if nan or (infinite and tensor not in self.ignored):
            bad = BadValues(worker, tensor, nan, infinite, array.size, frame)
            self.found[worker, tensor] = bad

    def clear(self) -> None:
        """Clear the findings, so that they are reported again."""
        self.found.clear()


class TensorWatch:
    """The names of the tensors that are read back, and the latest elements of the selected one."""

    def __init__(self) -> None:
        self.names: list[tuple[str, str]] = []
        self.chosen: tuple[str, str] | None = None
        self.shape: tuple[int, ...] = ()
        self.array: np.ndarray | None = None
        self.version = 0

    def look(self, worker: str, tensor: str, array: np.ndarray) -> None:
        """Record a tensor; copies its elements if it is selected."""
        key = (worker, tensor)
        if key not in self.names:
            self.names.append(key)
        if key == self.chosen:
            self.shape, self.array = array.shape, np.array(array)
            self.version += 1

    def choose_next(self) -> None:
        """Select the next tensor, in order of first appearance."""
        if not self.names:
            return
        place = -1 if self.chosen is None else self.names.index(self.chosen)
        self.chosen = self.names[(place + 1) % len(self.names)]
        self.shape, self.array = (), None


def as_image(array: np.ndarray, *, widest: int = 256) -> np.ndarray:
    """Convert a tensor to a (height, width) float32 image from 0 to 1 for a heat map.

    The last two axes longer than 1 are height and width; what comes before is tiled into a square of such
    images. A vector is one row, or several of them where it is long. Elements are scaled from the least to
    the greatest finite one; what is not finite is NaN. More than `widest` rows or columns are thinned out.
    """
    values = np.asarray(array, np.float32)
    if not values.size:
        return np.full((1, 1), np.nan, np.float32)
    trimmed = values.reshape([n for n in values.shape if n != 1] or [1])
    if trimmed.ndim == 1:
        columns = len(trimmed) if len(trimmed) <= 64 else int(np.ceil(np.sqrt(len(trimmed))))
        rows = -(-len(trimmed) // columns)
        flat = np.full(rows * columns, np.nan, np.float32)
        flat[: len(trimmed)] = trimmed
        grid = flat.reshape(rows, columns)
    else:
        grid = _tiled(trimmed.reshape(-1, *trimmed.shape[-2:]), widest)
    steps = [max(1, -(-n // widest)) for n in grid.shape]
    grid = grid[:: steps[0], :: steps[1]]
    finite = grid[np.isfinite(grid)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    with np.errstate(invalid="ignore"):
        scaled = (grid - low) / (high - low if high > low else 1.0)
    scaled[~np.isfinite(grid)] = np.nan
    return np.asarray(scaled, np.float32)


def _tiled(planes: np.ndarray, widest: int) -> np.ndarray:
    """(n, height, width) planes side by side, as many as have room, with a gap of one element between."""
    count, height, width = planes.shape
    across = max(1, min(int(np.ceil(np.sqrt(count))), widest // (width + 1)))
    down = min(-(-count // across), max(1, widest // (height + 1)))
    gap = int(count > 1)
    grid = np.full((down * (height + gap), across * (width + gap)), np.nan, np.float32)
    for place in range(min(count, across * down)):
        y, x = divmod(place, across)
        top, left = y * (height + gap), x * (width + gap)
        grid[top : top + height, left : left + width] = planes[place]
    return grid


_STOPS = np.array(
    [(13, 8, 40), (71, 16, 105), (138, 34, 106), (203, 70, 73), (245, 136, 31), (251, 225, 120)], np.float32
)
"""A scale from dark to light through violet, red and orange, which is read without a legend."""


def heat_map(picture: np.ndarray) -> np.ndarray:
    """(height, width) numbers from 0 to 1 as (height, width, 3) uint8; NaN is a grey of no scale."""
    known = np.nan_to_num(np.clip(picture, 0.0, 1.0))
    places = np.linspace(0.0, 1.0, len(_STOPS))
    colors = np.stack([np.interp(known, places, _STOPS[:, c]) for c in range(3)], axis=-1)
    colors[np.isnan(picture)] = (38, 45, 59)
    return np.asarray(np.rint(colors), np.uint8)
