"""Pooling with overlapping windows: a thread computes four adjacent results and shares loads.

They are neighbours in a row, or in a column where windows overlap in columns only.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from engine.backends.gl.compute.flat_grid import emit_with_epilogue
from engine.backends.gl.compute.printer import element
from engine.backends.gl.compute.target import ShaderTarget
from engine.backends.gl.glsl import float_literal
from engine.backends.gl.storage import lanes
from engine.backends.gpu.kernel_dialect import GROUP, ThreadStep
from engine.backends.windows import pair, windows_first
from engine.compiler.plan import Compute, Tuner

_EACH = 4
_MOST_REACHED = 32
_NAMES = (
    "height", "width", "rows", "columns", "threads", "top", "left", "margin_top", "margin_left",
    "end_h", "end_w",
)  # fmt: skip
_COLUMN_NS = 2.0
# Names of the two axes: of the input, of the output, of the position, and of what is beside the input.
_SIZES, _COUNTS, _PLACES = ("height", "width"), ("rows", "columns"), ("row", "column")
_PADS, _MARGINS, _ENDS = ("top", "left"), ("margin_top", "margin_left"), ("end_h", "end_w")
_START = {"max": float_literal(-inf), "average": "0.0", "sum": "0.0"}


def tune_pool(compute: Compute, tuner: Tuner, target: ShaderTarget) -> bool:
    """Rule for hints of kind "pool" of float32 over one or two axes.

    False for kernels of a size that varies, and where neighbours share no element.
    """
    (x,), attributes = compute.operands, compute.attributes
    kind, win = attributes["kind"], windows_first(compute)
    is_float32 = x.dtype.name == compute.body.dtype == "float32" and lanes(compute.output.dtype.name) == 1
    if not is_float32 or win is None:
        return False
    kernel, strides, dilations = win.kernel, win.strides, win.dilations
    if not all(type(n) is int for n in (*kernel, *strides, *dilations)):
        return False
    reaches = [(_EACH - 1) * s + (k - 1) * d + 1 for k, s, d in zip(kernel, strides, dilations, strict=True)]
    shared = [axis for axis in (1, 0) if reaches[axis] <= min(_MOST_REACHED, _EACH * kernel[axis] - 1)]
    if not shared:
        return False
    along, other = shared[0], 1 - shared[0]
    sizes, out, begins, ends = (win.height, win.width), win.out, win.pads, pair(attributes["ends"], 0)
    margins = begins if attributes["include_pad"] else (0, 0)
    limits = [n + e if attributes["include_pad"] else n for n, e in zip(sizes, ends, strict=True)]
    threads = x.shape[0] * x.shape[1] * out[other] * -(-out[along] // _EACH)
    lines = _statements(kind, (kernel, strides, dilations), along, target.texels)
    own = (*sizes, *out, threads, *begins, *margins, *limits)
    ns = GROUP * _COLUMN_NS * reaches[along] * kernel[other]
    step = ThreadStep(threads, lines, _NAMES, own, [(x.root.name, "float32")], compute.output.name, ns=ns)
    return emit_with_epilogue(compute, tuner, step, target)


def _statements(kind: str, windows: Sequence[tuple[int, int]], along: int, texels: bool) -> list[str]:
    """The statements for windows of a kernel, strides and dilations; neighbours are `along` an axis."""
    each, other = range(_EACH), 1 - along
    (kernel, step, dilation), (others, stride, apart) = (
        [pair[axis] for pair in windows] for axis in (along, other)
    )
    size, place, next_to = _SIZES[along], _PLACES[along], ("width", "1")[along]
    quads = f"(({_COUNTS[along]} + {_EACH - 1}) / {_EACH})"
    down, across = (quads, "columns") if along == 0 else ("rows", quads)
    lines = [
        "if (t >= threads) return;",
        f"int across = max({across}, 1), down = max({down}, 1), line = t / across, plane = line / down;",
        "int column = t - line * across, row = line - plane * down;",
        f"{place} *= {_EACH};",
        f"int first = {_PLACES[other]} * {stride} - {_PADS[other]};",
        f"int begin = {place} * {step} - {_PADS[along]};",
        *(f"float a{j} = {_START[kind]};" for j in each),
        "int counted = 0;",
        f"for (int k = 0; k < {others}; ++k) {{",
        f"    int at = first + k * {apart};",
        f"    counted += at >= -{_MARGINS[other]} && at < {_ENDS[other]} ? 1 : 0;",
        f"    if (at < 0 || at >= {_SIZES[other]}) continue;",
        f"    int from = plane * height * width + at{' * width' if other == 0 else ''};",
    ]
    for offset in range((_EACH - 1) * step + (kernel - 1) * dilation + 1):
        taps = [offset - j * step for j in each]
        hit = [j for j in each if taps[j] % dilation == 0 and 0 <= taps[j] // dilation < kernel]
        if not hit:
            continue
        name, at = f"v{offset}", f"begin + {offset}"
        value = element("b0", f"from + clamp({at}, 0, {size} - 1) * {next_to}", "float32", texels)
        lines.append(f"    float {name} = {at} >= 0 && {at} < {size} ? {value} : {_START[kind]};")
        accumulated = "a{0} = k_max(a{0}, {1});" if kind == "max" else "a{0} += {1};"
        lines += [f"    {accumulated.format(j, name)}" for j in hit]
    lines.append("}")
    to = ("columns", "1")[along]
    lines.append("int to = (plane * rows + row) * columns + column;")
    for j in each:
        result = f"a{j}"
        if kind == "average":
            places = [f"begin + {j * step + k * dilation}" for k in range(kernel)]
            inside = " + ".join(f"int({w} >= -{_MARGINS[along]} && {w} < {_ENDS[along]})" for w in places)
            result = f"a{j} / float(counted * ({inside}))"
        lines.append(f"if ({place} + {j} < {_COUNTS[along]}) finish(to + {j} * {to}, {result});")
    return lines
