"""Blends of a plane's elements at listed positions on GPUs: a thread blends several channels at a place.

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
"""Arguments of a step of `total` threads; `size` elements of a plane."""


@dataclass(frozen=True)
class Blend:
    """A step: operands as the hint has them, and its output."""

    planes: Value
    elements: Value
    shares: Value
    target: str

    @property
    def images(self) -> int:
        """Images of several planes each."""
        return self.planes.shape[0]

    @property
    def channels(self) -> int:
        """Planes of an image; the same for every input shape."""
        return self.planes.shape[1]

    @property
    def numbers(self) -> tuple[int, ...]:
        """Values of `NAMES` behind the first."""
        _, groups, taps, places = self.elements.shape
        return places, taps, self.channels, groups, self.planes.shape[2]

    @property
    def is_read_once(self) -> bool:
        """Whether planes are read by one group of places: then another order would not pay."""
        return self.elements.shape[1] == 1

    @property
    def total(self) -> int:
        """Threads where each has a vector of a place."""
        groups, places = self.elements.shape[1], self.elements.shape[3]
        return self.images * (self.channels // WIDTH) * groups * places


def tune_blend(compute: Compute, fits: Fits, emit_blend: Callable[[Blend], bool]) -> bool:
    """Rule for hints of kind "blend" of float32; `emit_blend` emits the step, if it can."""
    planes, elements, shares = compute.operands
    types = (planes.dtype, elements.dtype, shares.dtype, compute.output.dtype)
    if compute.epilogue is not None or types != (FLOAT32, INT32, FLOAT32, FLOAT32):
        return False
    if not planes.is_static(1) or planes.shape[1] % WIDTH or not fits(2 * planes.size, FLOAT32):
        return False
    return emit_blend(Blend(planes, elements, shares, compute.output.name))


def laid_out(blend: Blend, tuner: Tuner) -> str:
    """The planes as `statements` read them; emits the step that puts channels last."""
    if blend.is_read_once:
        return blend.planes.root.name
    images, channels, size = blend.planes.shape
    name = tuner.temporary(prod(blend.planes.shape), FLOAT32)
    n, element, c = map(index, range(3))
    emit(tuner, blend.planes[n, c, element], (images, size, channels), FLOAT32, name)
    return name


def statements(
    blend: Blend, vector: str, pixel: Callable[[str], str], one: Callable[[str], str],
    number: Callable[[str], str], share: Callable[[str], str], output: str,
) -> list[str]:  # fmt: skip
    """Statements of thread `t`.

    vector: the type of four floats. pixel, one: the text of four floats of the planes at a position, counted
    in vectors, and of one. number, share: the text of an element of the tables. output: the output's name.
    """
    if blend.is_read_once:
        first = f"(n * channels + block * {WIDTH}) * size + at"
        terms = [f"sum.{lane} += part * {one(f'{first} + {k} * size')};" for k, lane in enumerate("xyzw")]
    else:
        terms = [f"sum += part * {pixel('(n * size + at) * blocks + block')};"]
    return [
        "if (t >= total) return;",
        f"int blocks = channels / {WIDTH}, rest = t / places, p = t - rest * places;",
        "int g = rest % groups, plane = rest / groups, block = plane % blocks, n = plane / blocks;",
        "int from = (n * groups + g) * taps * places + p;",
        f"{vector} sum;",
        "sum.x = sum.y = sum.z = sum.w = 0.0f;",
        "for (int k = 0; k < taps; ++k) {",
        f"    int at = {number('from + k * places')};",
        f"    float part = {share('from + k * places')};",
        "    if (at < 0) continue;",
        *(f"    {term}" for term in terms),
        "}",
        f"int to = ((n * channels + block * {WIDTH}) * groups + g) * places + p;",
        *(f"{output}[to + {k} * groups * places] = sum.{lane};" for k, lane in enumerate("xyzw")),
    ]
