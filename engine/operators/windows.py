"""Sliding windows: the geometry shared by convolution and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from engine.kernels.expr import Expr, arg, lit, maximum, minimum
from engine.kernels.size import largest, smallest
from engine.operators.builder import Builder
from engine.operators.declaration import AttributeGroup


@dataclass(frozen=True, kw_only=True)
class WindowAttributes(AttributeGroup):
    """Window attributes; empty strides and dilations mean 1, empty pads 0."""

    auto_pad: str = "NOTSET"
    dilations: Sequence[int] = ()
    pads: Sequence[int] = ()
    strides: Sequence[int] = ()


@dataclass(frozen=True, kw_only=True)
class ConvAttributes(WindowAttributes):
    """The attributes of a convolution."""

    group: int = 1
    kernel_shape: Sequence[int] = ()


@dataclass(frozen=True, kw_only=True)
class PoolAttributes(WindowAttributes):
    """The attributes of a pool."""

    kernel_shape: Sequence[int]
    ceil_mode: int = 0


@dataclass(frozen=True)
class Windows:
    """Windows over spatial axes: one entry per axis in each field; sizes in elements."""

    sizes: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    counts: tuple[int, ...]

    def source(self, axis: int, window: Expr, tap: Expr) -> Expr:
        """The input index, padding included, that tap number `tap` of a window reads."""
        return window * self.strides[axis] + tap * self.dilations[axis] - self.begins[axis]

    def taps(self, r: Expr) -> list[Expr]:
        """The tap along each axis, from one loop variable over all taps in row-major order."""
        return _unravelled(r, self.kernel)

    def places(self, o: Expr) -> list[Expr]:
        """The window along each axis, from its number among all in row-major order."""
        return _unravelled(o, self.counts)

    def along(self, *axes: int) -> Windows:
        """The same windows along some of the axes."""
        fields = (
            self.sizes, self.kernel, self.strides, self.dilations, self.begins, self.ends, self.counts
        )  # fmt: skip
        return Windows(*(tuple(field[a] for a in axes) for field in fields))

    def counted(self, axis: int, window: Expr, margin: bool = False) -> Expr:
        """How many taps of a window are in the input along an axis; with `margin`, in its padding too."""
        step = self.dilations[axis]
        first = window * self.strides[axis] - self.begins[axis]
        low = -self.begins[axis] if margin else 0
        high = self.sizes[axis] + (self.ends[axis] if margin else 0)

        def taps_before(bound: int) -> Expr:
            reach = maximum(arg(bound) - first, lit(0))
            return minimum(reach if step == 1 else (reach + arg(step - 1)) // arg(step), self.kernel[axis])

        return taps_before(high) - taps_before(low)

    def inside(self, sources: Sequence[Expr]) -> Expr:
        """Whether a source is in the input."""
        found: Expr = lit(True, "bool")
        for axis, i in enumerate(sources):
            found = found & (i >= lit(0)) & (i < arg(self.sizes[axis]))
        return found


def _unravelled(r: Expr, sizes: Sequence[int]) -> list[Expr]:
    """The index along each axis, from that of an element in row-major order."""
    found = []
    for axis in range(len(sizes)):
        i = r // arg(prod(sizes[axis + 1 :])) if axis < len(sizes) - 1 else r
        found.append(i % arg(sizes[axis]) if axis else i)
    return found


def slide(k: Builder, sizes: Sequence[int], kernel: Sequence[int], sliding: WindowAttributes) -> Windows:
    """Resolve attributes into windows; the counts follow ONNX's Conv and pooling specifications.

    Of pools, what these leave open is as onnxruntime has it: SAME pads for windows without dilation, a
    window that is a little too large yields no element, and padding is smaller than the window.
    """
    rank, auto_pad, pooling = len(sizes), sliding.auto_pad, isinstance(sliding, PoolAttributes)
    kernel = tuple(kernel)
    strides = tuple(sliding.strides) or (1,) * rank
    dilations = tuple(sliding.dilations) or (1,) * rank
    pads = tuple(sliding.pads) or (0,) * (2 * rank)
    for name, values, wanted in (
        ("kernel_shape", kernel, rank), ("strides", strides, rank), ("dilations", dilations, rank),
        ("pads", pads, 2 * rank),
    ):  # fmt: skip
        if len(values) != wanted:
            k.error(f"{name} has {len(values)} entries; {rank} spatial axes need {wanted}")
    if min(kernel + strides + dilations, default=1) < 1:
        k.error(f"kernel_shape {kernel}, strides {strides} and dilations {dilations} must be 1 or more")
    begins, ends, counts = [], [], []
    for axis in range(rank):
        extent = (kernel[axis] - 1) * dilations[axis] + 1
        size, stride = sizes[axis], strides[axis]
        if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            count = -(-size // stride)
            total = largest(0, (count - 1) * stride + (kernel[axis] if pooling else extent) - size)
            begin = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
            end = total - begin
            if pooling and dilations[axis] > 1:
                count = largest(0, (size + total - extent) // stride + 1)
        elif auto_pad in ("NOTSET", "VALID", ""):
            begin, end = (0, 0) if auto_pad == "VALID" else (pads[axis], pads[axis + rank])
            if pooling and max(begin, end) >= kernel[axis]:
                k.error(f"its padding of {begin} and {end} is not smaller than the window of {kernel[axis]}")
            room = size + begin + end - extent
            # Towards 0, where a window is too large by less than a stride.
            count = (room // stride if room >= 0 else -(-room // stride)) + 1
            if count < 0 or (room < 0 and not pooling):
                k.error(
                    f"a window of {extent} does not fit into {size} elements with padding {begin} and {end}",
                    [size], [extent - begin - end],
                )  # fmt: skip
            if isinstance(sliding, PoolAttributes) and sliding.ceil_mode and stride > 1 and room > 0:
                # A window that would start in the end padding is left out (ONNX pooling, opset 19 on).
                count = smallest(-(-room // stride), (size + begin - 1) // stride) + 1
        else:
            k.error(f"auto_pad is {auto_pad!r}; one of NOTSET, SAME_UPPER, SAME_LOWER, VALID")
        begins.append(begin)
        ends.append(end)
        counts.append(count)
    return Windows(tuple(sizes), kernel, strides, dilations, tuple(begins), tuple(ends), tuple(counts))
