"""Interpolation at listed positions on GPUs: a thread blends several channels of a position.

Positions and weights are the same in all channels, and neighbouring threads have neighbouring places. Where
several groups of places read a plane, its channels are put last, so that a thread reads a vector at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from engine.backends.gpu.kernel_dialect import GROUP, KernelDialect, ThreadStep
from engine.backends.operands import emit
from engine.base.dtypes import FLOAT32, INT32
from engine.compiler.plan import Compute, Tuner
from engine.kernels.expr import index
from engine.kernels.value import Value

WIDTH = 4
"""Channels of a thread's vector."""

NAMES = ("total", "places", "taps", "channels", "groups", "size")
"""Arguments of a step of `total` threads: `taps` elements are blended of planes of `size` elements."""

_TAP_NS = 5.0


@dataclass(frozen=True)
class Interpolation:
    """A step: operands as the hint has them, and its output."""

    planes: Value
    elements: Value
    weights: Value
    axes: int
    target: str

    @property
    def images(self) -> int:
        """Number of images."""
        return self.planes.shape[0]

    @property
    def channels(self) -> int:
        """Planes of an image; the same for every input shape."""
        return self.planes.shape[1]

    @property
    def count(self) -> int:
        """Entries of the tables for each axis; the same for every input shape."""
        return self.elements.shape[2] // self.axes

    @property
    def numbers(self) -> tuple[int, ...]:
        """Values of `NAMES` after the first."""
        _, groups, _, places = self.elements.shape
        return places, self.count**self.axes, self.channels, groups, self.planes.shape[2]

    @property
    def tables(self) -> list[tuple[str, str]]:
        """The tables' tensors and element types."""
        return [(self.elements.root.name, "int32"), (self.weights.root.name, "float32")]

    @property
    def is_read_once(self) -> bool:
        """Whether each plane is read by one group of positions only, so that packing would not pay."""
        return self.elements.shape[1] == 1

    @property
    def total(self) -> int:
        """Number of threads, one per position and vector of channels."""
        groups, places = self.elements.shape[1], self.elements.shape[3]
        return self.images * (self.channels // WIDTH) * groups * places


def interpolation_of(compute: Compute, dialect: KernelDialect) -> Interpolation | None:
    """The step of a hint of kind "interpolate"; None for other types than float32."""
    planes, elements, weights = compute.operands
    types = (planes.dtype, elements.dtype, weights.dtype, compute.output.dtype)
    if compute.epilogue is not None or types != (FLOAT32, INT32, FLOAT32, FLOAT32):
        return None
    if not planes.is_static(1) or planes.shape[1] % WIDTH or not dialect.fits(2 * planes.size, FLOAT32):
        return None
    return Interpolation(planes, elements, weights, compute.attributes["axes"], compute.output.name)


def tune_interpolation(compute: Compute, tuner: Tuner, dialect: KernelDialect) -> bool:
    """Rule for hints of kind "interpolate"."""
    step = interpolation_of(compute, dialect)
    if step is None:
        return False
    planes, width = _packed_planes(step, tuner), 1 if step.is_read_once else WIDTH
    inputs = [(planes, "float32"), *step.tables]
    return dialect.emit(tuner, ThreadStep(
        step.total, _statements(step, dialect), NAMES, (step.total, *step.numbers), inputs, step.target,
        "float32", (width, 1, 1), rounds=("taps",), area=WIDTH * GROUP, ns=GROUP * _TAP_NS,
    ))  # fmt: skip


def _packed_planes(step: Interpolation, tuner: Tuner) -> str:
    """Emit the step that packs planes with channels last; returns its tensor."""
    if step.is_read_once:
        return step.planes.root.name
    images, channels, size = step.planes.shape
    name = tuner.temporary(prod(step.planes.shape), FLOAT32)
    n, element, c = map(index, range(3))
    emit(tuner, step.planes[n, c, element], (images, size, channels), FLOAT32, name)
    return name


def interpolation_statements(
    step: Interpolation, dialect: KernelDialect, width: int, found: str
) -> list[str]:
    """Statements that set `sum0`, an interpolation whose first entries are at `from`.

    width: how many channels it has. found: the text of the channels' elements at `at`.
    """
    vector, zero = dialect.vector(width), dialect.construct_vector("0.0f", width)
    names = " + ".join(f"at{axis}" for axis in range(step.axes))
    lines = [f"int at = {names};", f"{vector} sum{step.axes} = {found};"]
    for axis in reversed(range(step.axes)):
        entry = f"from + ({axis * step.count} + k{axis}) * places"
        lines = [
            f"{vector} sum{axis} = {zero};",
            f"for (int k{axis} = 0; k{axis} < {step.count}; ++k{axis}) {{",
            f"    int at{axis} = {dialect.element(1, entry)};",
            f"    if (at{axis} < 0) continue;",
            *(f"    {line}" for line in lines),
            f"    sum{axis} += {dialect.load(2, entry, 'float32')} * sum{axis + 1};",
            "}",
        ]
    return lines


def _statements(step: Interpolation, dialect: KernelDialect) -> list[str]:
    """Statements of thread `t`."""
    found = dialect.load_vector(0, "(n * size + at) * blocks + block")
    if step.is_read_once:
        first = f"(n * channels + block * {WIDTH}) * size + at"
        each = [dialect.load(0, f"{first} + {k} * size", "float32") for k in range(WIDTH)]
        found = dialect.construct_vector(", ".join(each))
    stores = [
        f"{dialect.output}[to + {k} * groups * places] = {dialect.lane('sum0', k)};" for k in range(WIDTH)
    ]
    return [
        "if (t >= total) return;",
        f"int blocks = channels / {WIDTH}, rest = t / places, p = t - rest * places;",
        "int g = rest % groups, plane = rest / groups, block = plane % blocks, n = plane / blocks;",
        f"int from = (n * groups + g) * {step.axes * step.count} * places + p;",
        *interpolation_statements(step, dialect, WIDTH, found),
        f"int to = ((n * channels + block * {WIDTH}) * groups + g) * places + p;",
        *stores,
    ]
