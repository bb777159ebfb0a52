"""Sliding windows: the geometry that convolution and pooling share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from engine.kernels.expr import Expr, arg, lit
from engine.operators.builder import Builder


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
        taps = []
        for axis in range(len(self.kernel)):
            tap = r // arg(prod(self.kernel[axis + 1 :])) if axis < len(self.kernel) - 1 else r
            taps.append(tap % arg(self.kernel[axis]) if axis else tap)
        return taps

    def inside(self, sources: Sequence[Expr], margin: bool = False) -> Expr:
        """Whether a source lies in the input; with `margin`, in the input and its declared padding."""
        found: Expr = lit(True, "bool")
        for axis, i in enumerate(sources):
            low = -self.begins[axis] if margin else 0
            high = self.sizes[axis] + (self.ends[axis] if margin else 0)
            found = found & (i >= arg(low)) & (i < arg(high))
        return found


def slide(
    k: Builder,
    sizes: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int] | None,
    dilations: Sequence[int] | None,
    pads: Sequence[int] | None,
    auto_pad: str,
    ceil_mode: int = 0,
) -> Windows:
    """Resolve attributes into windows; the counts follow ONNX's Conv and pooling specifications."""
    rank = len(sizes)
    kernel = tuple(kernel)
    strides = tuple(strides) if strides else (1,) * rank
    dilations = tuple(dilations) if dilations else (1,) * rank
    pads = tuple(pads) if pads else (0,) * (2 * rank)
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
            total = max(0, (count - 1) * stride + extent - size)
            begin = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
            end = total - begin
        elif auto_pad in ("NOTSET", "VALID", ""):
            begin, end = (0, 0) if auto_pad == "VALID" else (pads[axis], pads[axis + rank])
            room = size + begin + end - extent
            if room < 0:
                k.error(
                    f"a window of {extent} does not fit into {size} elements with padding {begin} and {end}"
                )
            count = room // stride + 1
            if ceil_mode and room % stride:
                # A window that would start in the end padding is left out (ONNX pooling, opset 19 on).
                count += int(count * stride < size + begin)
        else:
            k.error(f"auto_pad is {auto_pad!r}; one of NOTSET, SAME_UPPER, SAME_LOWER, VALID")
        begins.append(begin)
        ends.append(end)
        counts.append(count)
    return Windows(tuple(sizes), kernel, strides, dilations, tuple(begins), tuple(ends), tuple(counts))
