"""Interpolation at listed positions on GPUs: a thread blends several channels of a position.

Positions and shares are the same in all channels, and neighbouring threads have neighbouring places. Where
several groups of places read a plane, its channels are put last, so that a thread reads a vector at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from engine.backends.operands import Fits, emit
from engine.base.dtypes import FLOAT32, INT32
from engine.compiler.plan import Compute, Tuner
from engine.kernels.expr import index
from engine.kernels.value import Value

WIDTH = 4
"""Channels of a thread's vector."""

NAMES = ("total", "places", "taps", "channels", "groups", "size")
"""Arguments of a step of `total` threads: elements of a blend are `taps`, and those of a plane `size`."""


@dataclass(frozen=True)
class Interpolation:
    """A step: operands as the hint has them, and its output."""

    planes: Value
    elements: Value
    shares: Value
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
    def is_read_once(self) -> bool:
        """Whether each plane is read by one group of positions only, so that packing would not pay."""
        return self.elements.shape[1] == 1

    @property
    def total(self) -> int:
        """Number of threads, one per position and vector of channels."""
        groups, places = self.elements.shape[1], self.elements.shape[3]
        return self.images * (self.channels // WIDTH) * groups * places


def tune_blend(compute: Compute, fits: Fits, emit_blend: Callable[[Interpolation], bool]) -> bool:
    """Rule for hints of kind "blend" of float32; `emit_blend` emits the step, if it can."""
    planes, elements, shares = compute.operands
    types = (planes.dtype, elements.dtype, shares.dtype, compute.output.dtype)
    if compute.epilogue is not None or types != (FLOAT32, INT32, FLOAT32, FLOAT32):
        return False
    if not planes.is_static(1) or planes.shape[1] % WIDTH or not fits(2 * planes.size, FLOAT32):
        return False
    axes = compute.attributes["axes"]
    return emit_blend(Interpolation(planes, elements, shares, axes, compute.output.name))


def laid_out(blend: Interpolation, tuner: Tuner) -> str:
    """Emit the step that packs planes with channels last; returns its tensor."""
    if blend.is_read_once:
        return blend.planes.root.name
    images, channels, size = blend.planes.shape
    name = tuner.temporary(prod(blend.planes.shape), FLOAT32)
    n, element, c = map(index, range(3))
    emit(tuner, blend.planes[n, c, element], (images, size, channels), FLOAT32, name)
    return name


def sums(
    blend: Interpolation,
    vector: str,
    zero: str,
    number: Callable[[str], str],
    share: Callable[[str], str],
    found: str,
) -> list[str]:
    """Statements that set `sum0`, a blend whose first entries are at `from`.

    vector, zero: the type of the numbers of several channels, and their 0. number, share: the text of an
    element of the tables. found: the text of the channels' elements at `at`.
    """
    names = " + ".join(f"at{axis}" for axis in range(blend.axes))
    lines = [f"int at = {names};", f"{vector} sum{blend.axes} = {found};"]
    for axis in reversed(range(blend.axes)):
        entry = f"from + ({axis * blend.count} + k{axis}) * places"
        lines = [
            f"{vector} sum{axis} = {zero};",
            f"for (int k{axis} = 0; k{axis} < {blend.count}; ++k{axis}) {{",
            f"    int at{axis} = {number(entry)};",
            f"    if (at{axis} < 0) continue;",
            *(f"    {line}" for line in lines),
            f"    sum{axis} += {share(entry)} * sum{axis + 1};",
            "}",
        ]
    return lines


def statements(
    blend: Interpolation, vector: str, made: str, pixel: Callable[[str], str], one: Callable[[str], str],
    number: Callable[[str], str], share: Callable[[str], str], output: str,
) -> list[str]:  # fmt: skip
    """Statements of thread `t`.

    vector, made: the type of four floats, and the word that makes one of its elements. pixel, one: the text
    of four floats of the planes at a position, counted in vectors, and of one. number, share: see `sums`.
    output: the output's name.
    """
    found = pixel("(n * size + at) * blocks + block")
    if blend.is_read_once:
        first = f"(n * channels + block * {WIDTH}) * size + at"
        found = f"{made}({', '.join(one(f'{first} + {k} * size') for k in range(WIDTH))})"
    zero = f"{made}({', '.join(['0.0'] * WIDTH)})"
    return [
        "if (t >= total) return;",
        f"int blocks = channels / {WIDTH}, rest = t / places, p = t - rest * places;",
        "int g = rest % groups, plane = rest / groups, block = plane % blocks, n = plane / blocks;",
        f"int from = (n * groups + g) * {blend.axes * blend.count} * places + p;",
        *sums(blend, vector, zero, number, share, found),
        f"int to = ((n * channels + block * {WIDTH}) * groups + g) * places + p;",
        *(f"{output}[to + {k} * groups * places] = sum0.{lane};" for k, lane in enumerate("xyzw")),
    ]
