"""Register tile sizes of matrix products for this processor."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import llvmlite.binding as llvm

from engine.kernels.size import deferrable

MAX_TAPS = 1024
"""Elements of a window whose places kernels have room to note."""


@deferrable
@dataclass(frozen=True)
class Tile:
    """`lanes` float32s a vector, `vectors` of them side by side, and the row counts to choose from."""

    lanes: int
    vectors: int
    row_choices: tuple[int, ...]

    @property
    def width(self) -> int:
        """Width in columns."""
        return self.lanes * self.vectors

    @property
    def heights(self) -> list[int]:
        """The heights of a kernel's tiles, tallest first; any number of rows is a sum of them."""
        tallest = self.row_choices[0]
        return [tallest, *(rows for rows in (8, 4, 2, 1) if rows < tallest)]

    def rows_for(self, m: int) -> int:
        """The tile height of least cost for `m` rows; the taller one of equals."""
        # A tile costs its rows' products, and the loading of its columns once.
        return min(self.row_choices, key=lambda rows: (-(-m // rows) * (rows + 0.5), -rows))


def by_height(heights: Sequence[int], remaining: str, tile: Callable[[int], Sequence[str]]) -> list[str]:
    """Statements for the tallest tile that does not exceed the remaining rows, and `rows`, its height."""
    lines = []
    for place, rows in enumerate(heights):
        head = f"{'elif' if place else 'if'} {remaining} >= {rows}:"
        if place == len(heights) - 1:
            head = "else:" if place else "if True:"
        lines += [head, *(f"    {line}" for line in tile(rows)), f"    rows = {rows}"]
    return lines


AVX512 = Tile(16, 2, (14, 12, 8))
AVX2 = Tile(8, 2, (6, 4))
NEON = Tile(4, 2, (8, 4))
PORTABLE = Tile(4, 2, (4,))


@cache
def host_tile() -> Tile:
    """The tile for the processor that this runs on."""
    features = llvm.get_host_cpu_features()
    if features.get("avx512f"):
        return AVX512
    if features.get("avx2") and features.get("fma"):
        return AVX2
    if platform.machine().lower() in ("arm64", "aarch64"):
        return NEON
    return PORTABLE
