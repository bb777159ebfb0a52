"""RoiAlign on GPUs, with channels last so that a thread reads several at once.

A thread computes the channels of a vector of a bin; on a processor all of a bin, one vector after another.
"""

from __future__ import annotations

from engine.backends.gpu.kernel_dialect import GROUP, KernelDialect, ThreadStep
from engine.backends.operands import emit
from engine.base.dtypes import FLOAT32
from engine.compiler.plan import Compute, Tuner
from engine.kernels.expr import index
from engine.kernels.value import Value

_NAMES = ("total", "bins", "channels", "height", "width", "images")
"""Arguments of a step; `total` bins of all regions."""

_SAMPLE_NS = 10.0


def tune_roi_align(compute: Compute, tuner: Tuner, dialect: KernelDialect) -> bool:
    """Rule for hints of kind "roi_align" of float32."""
    (x, places, numbers), ratio = compute.operands, compute.attributes["ratio"]
    types = {x.dtype, places.dtype, compute.output.dtype}
    if compute.epilogue is not None or types != {FLOAT32} or not x.is_static(1):
        return False
    width = next((w for w in dialect.widths if x.shape[1] % w == 0), 0)
    if not width or not dialect.fits(x.size, FLOAT32):
        return False
    images, channels, height, size = x.shape
    regions, _, bins = compute.space
    last = Value(tuner.temporary(x.size, FLOAT32), (images, height, size, channels), FLOAT32)
    n, h, w, c = map(index, range(4))
    emit(tuner, x[n, c, h, w], last.shape, FLOAT32, last.name)
    lines, is_alone = _statements(dialect, ratio, width, numbers.dtype.name), len(dialect.widths) > 1
    begin = [f"int blocks = channels / {width};"]
    if is_alone:
        begin += ["if (t >= total) return;", "for (int block = 0; block < blocks; ++block) {"]
        lines = [*begin, *(f"    {line}" for line in lines), "}"]
    else:
        lines = [
            *begin,
            "int block = t % max(blocks, 1);",
            "t /= max(blocks, 1);",
            "if (t >= total) return;",
            *lines,
        ]
    vectors = 1 if is_alone else channels // width
    total, group = regions * bins, 1 if is_alone else GROUP
    inputs = [(last.name, "float32"), (places.root.name, "float32"), (numbers.root.name, numbers.dtype.name)]
    return dialect.emit(tuner, ThreadStep(
        total * vectors, lines, _NAMES, (total, bins, channels, height, size, images), inputs,
        compute.output.name, "float32", (width, 1, 1), is_alone=is_alone,
        area=group * 4 * ratio**2 * channels // vectors, ns=group * _SAMPLE_NS * ratio**2,
    ))  # fmt: skip


def _statements(dialect: KernelDialect, ratio: int, width: int, kind: str) -> list[str]:
    """Statements that store the channels from vector `block` on, of `blocks`, in the bin `t` of all."""
    corners = [(f"{a} + {b}", f"{u} * {v}") for a, u in (("low", "(1.0f - dy)"), ("high", "dy"))
               for b, v in (("left", "(1.0f - dx)"), ("right", "dx"))]  # fmt: skip
    pixels = [dialect.load_vector(0, f"({at}) * blocks + block", width) for at, _ in corners]
    terms = [f"{pixel} * ({share})" for pixel, (_, share) in zip(pixels, corners, strict=True)]
    return [
        "int region = t / max(bins, 1), p = t - region * bins;",
        f"int image = min(max({dialect.element(2, 'region', kind)}, 0), images - 1) * height;",
        f"int down = region * {2 * ratio} * bins + p, along = down + {ratio} * bins;",
        f"{dialect.vector(width)} sum = {dialect.construct_vector('0.0f', width)};",
        f"for (int i = 0; i < {ratio}; ++i) {{",
        f"    float v = {dialect.load(1, 'down + i * bins', 'float32')};",
        f"    int row = min(max({dialect.as_int.format('v')}, 0), height - 1);",
        "    int low = (image + row) * width, high = (image + min(row + 1, height - 1)) * width;",
        f"    float dy = v - {dialect.as_float.format('row')};",
        f"    for (int j = 0; j < {ratio}; ++j) {{",
        f"        float u = {dialect.load(1, 'along + j * bins', 'float32')};",
        f"        int left = min(max({dialect.as_int.format('u')}, 0), width - 1);",
        "        int right = min(left + 1, width - 1);",
        f"        float dx = u - {dialect.as_float.format('left')};",
        f"        {dialect.vector(width)} found = {' + '.join(terms)};",
        "        if (v >= 0.0f && u >= 0.0f) sum += found;",
        "    }",
        "}",
        f"sum /= {float(ratio**2)}f;",
        f"int to = (region * channels + block * {width}) * bins + p;",
        *(f"{dialect.output}[to + {k} * bins] = {dialect.lane('sum', k)};" for k in range(width)),
    ]
