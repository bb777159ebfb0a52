"""RoiAlign on GPUs, with channels last so that a thread reads several at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.backends.operands import Fits, emit
from engine.base.dtypes import FLOAT32
from engine.compiler.plan import Compute, Tuner
from engine.kernels.expr import index
from engine.kernels.value import Value

WIDTH = 4
"""Of how many channels their number has to be a multiple."""

NAMES = ("total", "bins", "channels", "height", "width", "images")
"""Arguments of a step; `total` bins of all regions."""


@dataclass(frozen=True)
class Regions:
    """A step: `x` (images, height, width, channels), places and image numbers as the hint has them."""

    x: str
    places: Value
    numbers: Value
    channels: int
    ratio: int
    values: tuple[int, ...]
    target: str

    @property
    def inputs(self) -> tuple[str, ...]:
        """The tensors that it reads."""
        return (self.x, self.places.root.name, self.numbers.root.name)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Their element types."""
        return ("float32", "float32", self.numbers.dtype.name)


@dataclass(frozen=True)
class Dialect:
    """The spelling of a kernel in a language.

    vector: the type of several channels; zero: their 0. pixel: the text of those at a position of x, counted
    in vectors. place, number: the text of an element. cast: the text of a number as another type. store:
    statements that store `sum`.
    """

    vector: str
    zero: str
    cast: Callable[[str, str], str]
    pixel: Callable[[str], str]
    place: Callable[[str], str]
    number: Callable[[str], str]
    store: list[str]


def tune_regions(compute: Compute, tuner: Tuner, fits: Fits, emit_means: Callable[[Regions], bool]) -> bool:
    """Rule for hints of kind "roi_align"; `emit_means` emits the step, if it can."""
    (x, places, numbers), ratio = compute.operands, compute.attributes["ratio"]
    types = {x.dtype, places.dtype, compute.output.dtype}
    if compute.epilogue is not None or types != {FLOAT32} or not x.is_static(1) or x.shape[1] % WIDTH:
        return False
    if not fits(x.size, FLOAT32):
        return False
    images, channels, height, width = x.shape
    regions, _, bins = compute.space
    last = Value(tuner.temporary(x.size, FLOAT32), (images, height, width, channels), FLOAT32)
    n, h, w, c = map(index, range(4))
    emit(tuner, x[n, c, h, w], last.shape, FLOAT32, last.name)
    values = regions * bins, bins, channels, height, width, images
    return emit_means(Regions(last.name, places, numbers, channels, ratio, values, compute.output.name))


def statements(dialect: Dialect, ratio: int) -> list[str]:
    """Statements that store the channels from vector `block` on, of `blocks`, in the bin `t` of all."""
    vector = dialect.vector
    corners = [(f"{a} + {b}", f"{u} * {v}") for a, u in (("low", "(1.0f - dy)"), ("high", "dy"))
               for b, v in (("left", "(1.0f - dx)"), ("right", "dx"))]  # fmt: skip
    terms = [f"{dialect.pixel(f'({at}) * blocks + block')} * ({share})" for at, share in corners]
    return [
        "int region = t / max(bins, 1), p = t - region * bins;",
        f"int image = min(max({dialect.number('region')}, 0), images - 1) * height;",
        f"int down = region * {2 * ratio} * bins + p, along = down + {ratio} * bins;",
        f"{vector} sum = {dialect.zero};",
        f"for (int i = 0; i < {ratio}; ++i) {{",
        f"    float v = {dialect.place('down + i * bins')};",
        f"    int row = min(max({dialect.cast('int', 'v')}, 0), height - 1);",
        "    int low = (image + row) * width, high = (image + min(row + 1, height - 1)) * width;",
        f"    float dy = v - {dialect.cast('float', 'row')};",
        f"    for (int j = 0; j < {ratio}; ++j) {{",
        f"        float u = {dialect.place('along + j * bins')};",
        f"        int left = min(max({dialect.cast('int', 'u')}, 0), width - 1);",
        "        int right = min(left + 1, width - 1);",
        f"        float dx = u - {dialect.cast('float', 'left')};",
        f"        {vector} found = {' + '.join(terms)};",
        "        if (v >= 0.0f && u >= 0.0f) sum += found;",
        "    }",
        "}",
        f"sum /= {float(ratio**2)}f;",
        *dialect.store,
    ]
