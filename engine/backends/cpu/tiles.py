"""Which tile of a matrix product suits this processor: how many vectors its registers can hold as sums."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from functools import cache

import llvmlite.binding as llvm

from engine.compiler.plan import storable

MAX_TAPS = 1024
"""Elements of a window whose places kernels have room to note."""


@storable
@dataclass(frozen=True)
class Tile:
    """`lanes` float32s a vector, `vectors` of them side by side, and the row counts to choose from."""

    lanes: int
    vectors: int
    row_choices: tuple[int, ...]

    @property
    def width(self) -> int:
        """Columns of a tile."""
        return self.lanes * self.vectors

    def rows_for(self, m: int) -> int:
        """The tile height of least cost for `m` rows; the taller one of equals."""
        # A tile costs its rows' products, and the loading of its columns once.
        return min(self.row_choices, key=lambda rows: (-(-m // rows) * (rows + 0.5), -rows))


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
