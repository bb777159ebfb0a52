"""The layout of a tensor in a texture: four elements to a texel, texels in row-major order.

Drivers that compile a shader for the textures it reads (llvmpipe does) tell apart sizes that are powers of
two from others. So every width is a power of two and no height is: a new shape compiles nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from engine.backends.gpu.size_functions import USUAL_WIDTH, texel_layout
from engine.kernels.size import largest

_LARGEST_WIDTH = 16384
ROWS_TOGETHER = 4
_MOST_ROWS = 20
"""The most that layouts narrower than the usual width have."""


class TexelLayout(NamedTuple):
    """Where texels are in a texture: texel t at column t % width, row t // width; the width is 2**shift.

    In `layers`, four rows go together: t is at column t // 4 % width, row t // 4 // width * 4 + t % 4. So
    the 16 fragments that a rasteriser works on at once follow each other, and fetch the same weights.
    """

    shift: int
    height: int
    layers: bool = False

    @classmethod
    def of(cls, texels: int, limit: int, layers: bool = False) -> TexelLayout:
        """The layout for a number of texels on a device with textures of at most limit x limit texels.

        Raises ValueError beyond `capacity(limit)`.
        """
        if texels > capacity(limit):
            raise ValueError(f"{texels} texels do not fit into a texture of {limit}x{limit}")
        return cls(*texel_layout(texels, limit, ROWS_TOGETHER if layers else 1), layers)

    def holding(self, texels: int, limit: int) -> TexelLayout:
        """The layout of this width for a number of texels."""
        step = ROWS_TOGETHER if self.layers else 1
        height = max(1, -(-texels // (self.width * step))) * step
        while height & (height - 1) == 0 and height + step <= limit:
            height += step
        return TexelLayout(self.shift, height, self.layers)

    @classmethod
    def around(cls, layouts: Sequence[TexelLayout]) -> TexelLayout:
        """A layout with room for each of the given ones, one at a time."""
        return cls(max(x.shift for x in layouts), max(x.height for x in layouts), layouts[0].layers)

    def larger(self, limit: int) -> TexelLayout:
        """A layout for about half as many texels again (twice as many if small), within the limit."""
        step = ROWS_TOGETHER if self.layers else 1
        if self.width * 2 <= min(USUAL_WIDTH, limit):
            # Layouts of twice as many texels are twice as wide, not higher.
            return TexelLayout(self.shift + 1, max(self.height, _MOST_ROWS), self.layers)
        height = self.height + max(1, self.height // (2 * step)) * step
        while height & (height - 1) == 0:
            height += step
        return self if height > limit else TexelLayout(self.shift, height, self.layers)

    def smaller(self) -> TexelLayout:
        """The largest layout that `larger` exceeds by a good part of its step."""
        if self.width < USUAL_WIDTH:
            return TexelLayout(self.shift - 1, self.height, self.layers)
        return TexelLayout(self.shift, self.height * 4 // 5, self.layers)

    @property
    def width(self) -> int:
        """Texels in a row."""
        return 1 << self.shift

    @property
    def texels(self) -> int:
        """Texels in all."""
        return self.height << self.shift

    def area(self, texels: int) -> tuple[int, int]:
        """Columns and rows that cover the first `texels` texels."""
        step = ROWS_TOGETHER if self.layers else 1
        columns = -(-texels // step)
        return min(columns, self.width), -(-columns // self.width) * step


def texels_of(elements: int) -> int:
    """Texels that a tensor takes; an empty one takes one."""
    return largest(1, -(-elements // 4))


def capacity(limit: int) -> int:
    """How many texels a tensor may have on a device with textures of at most limit x limit texels."""
    width = 1 << (min(limit, _LARGEST_WIDTH).bit_length() - 1)
    return width * limit
