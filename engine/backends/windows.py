"""Windows of hinted convolutions and pools over one or two axes, one axis as the columns of a single row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from engine.compiler.plan import Compute
from engine.kernels.size import deferrable, whole


# Frozen ones take three times as long to make, and each new size makes some.
@deferrable
@dataclass(slots=True, unsafe_hash=True)
class Windows2D:
    """Windows over the last two axes of (planes, height, width); one axis is treated as a height of 1.

    Never changed.
    """

    height: int
    width: int
    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads: tuple[int, int]
    out: tuple[int, int]

    @property
    def taps(self) -> int:
        """Elements of a window."""
        return prod(self.kernel)

    @property
    def is_pointwise(self) -> bool:
        """Whether each window is one element, and every element has its window."""
        plain = self.kernel == (1, 1) and self.strides == (1, 1) and self.pads == (0, 0)
        return plain and self.out == (self.height, self.width)

    @property
    def reach(self) -> tuple[int, int]:
        """Rows and columns, padding included, that all windows together read."""
        rows, columns = (
            (out - 1) * s + (k - 1) * d + 1
            for out, s, k, d in zip(self.out, self.strides, self.kernel, self.dilations, strict=True)
        )
        return rows, columns

    @property
    def reads_in_place(self) -> bool:
        """Whether the input can be read in place: no padding, and stride 1 along rows."""
        if self.pads != (0, 0) or self.strides[1] != 1:
            return False
        rows, columns = self.reach
        return rows <= self.height and columns <= self.width


def windows_first(compute: Compute) -> Windows2D | None:
    """Those of a hinted step over (N, C, *spatial); None for other ranks."""
    return _windows(compute, compute.operands[0].shape[2:], compute.space[2:])


def nhwc_windows(compute: Compute) -> Windows2D | None:
    """The windows of a hinted NHWC step, whose input may be NCHW; None for other ranks."""
    shape = compute.operands[0].shape
    spatial = shape[2:] if compute.attributes.get("x_first") else shape[1:-1]
    side = compute.attributes.get("pooled", 1)
    return _windows(compute, spatial, [side * size for size in compute.space[1:-1]])


def counted_sides(compute: Compute, win: Windows2D) -> dict[str, int]:
    """Bounds of the area that an average counts: the input, or its padding too."""
    (top, left), (bottom, right) = win.pads, pair(compute.attributes["ends"], 0)
    if not compute.attributes.get("include_pad", False):
        top = left = bottom = right = 0
    height, width = win.height + bottom, win.width + right
    return {"count_top": -top, "count_bottom": height, "count_left": -left, "count_right": width}


def _windows(compute: Compute, spatial: Sequence[int], out: Sequence[int]) -> Windows2D | None:
    attributes, operands = compute.attributes, compute.operands
    # A pooling has no weights, whose shape would tell.
    kernel = tuple(attributes["kernel"]) if "kernel" in attributes else operands[1].shape[2:]
    if len(spatial) not in (1, 2) or len(out) != len(spatial) or len(kernel) != len(spatial):
        return None
    return Windows2D(
        *pair(spatial, 1), pair(kernel, 1), pair(attributes["strides"], 1), pair(attributes["dilations"], 1),
        pair(attributes["pads"], 0), pair(out, 1),
    )  # fmt: skip


def pair(numbers: Iterable[int], default: int) -> tuple[int, int]:
    """Values for rows and columns; `default` for rows if there are only columns."""
    rows, columns = (default, *numbers)[-2:]
    return whole(rows), whole(columns)
