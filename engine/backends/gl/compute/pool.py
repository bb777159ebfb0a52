"""Pooling with overlapping windows: a thread computes four neighbours and reads shared elements once."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

from engine.backends.gl.compute.epilogue import FIRST_GROUP, Epilogue, grid_fits
from engine.backends.gl.compute.flat import LOCAL_SIZE, THREAD, flat_grid
from engine.backends.gl.compute.printer import element
from engine.backends.gl.compute.target import Target
from engine.backends.gl.glsl import float_literal
from engine.backends.gl.storage import lanes
from engine.compiler.plan import Compute, Tuner
from engine.kernels.size import whole

_EACH = 4
_MOST_COLUMNS = 32
_NAMES = (
    "height", "width", "rows", "columns", "threads", "top", "left", "margin_top", "margin_left",
    "end_h", "end_w", *FIRST_GROUP,
)  # fmt: skip
_COLUMN_NS = 2.0
_START = {"max": float_literal(-inf), "average": "0.0", "sum": "0.0"}


def tune_pool(compute: Compute, tuner: Tuner, target: Target) -> bool:
    """Rule for hints of kind "pool" of float32 over one or two axes.

    False for kernels of a size that varies, and where neighbours share no element.
    """
    (x,), attributes = compute.operands, compute.attributes
    rank, kind = x.rank - 2, attributes["kind"]
    is_float32 = x.dtype.name == compute.body.dtype == "float32" and lanes(compute.output.dtype.name) == 1
    if not is_float32 or rank not in (1, 2) or len(compute.space) != x.rank:
        return False

    def pair(values: Sequence[Any], fill: int) -> tuple[int, int]:
        found = (*(fill,) * (2 - rank), *map(whole, values))
        return found[0], found[1]

    kernel, strides, dilations = (pair(attributes[name], 1) for name in ("kernel", "strides", "dilations"))
    is_fixed = all(type(n) is int for n in (*kernel, *strides, *dilations))
    if not is_fixed:
        return False
    reach = (_EACH - 1) * strides[1] + (kernel[1] - 1) * dilations[1] + 1
    if reach > min(_MOST_COLUMNS, _EACH * kernel[1] - 1):
        return False
    sizes, out = pair(x.shape[2:], 1), pair(compute.space[2:], 1)
    begins, ends = pair(attributes["pads"], 0), pair(attributes["ends"], 0)
    margins = begins if attributes["include_pad"] else (0, 0)
    limits = [n + e if attributes["include_pad"] else n for n, e in zip(sizes, ends, strict=True)]
    threads = x.shape[0] * x.shape[1] * out[0] * -(-out[1] // _EACH)
    finish = Epilogue(compute, [(x.root.name, 1)], 0, target)
    grid = flat_grid(threads, target)
    if not finish.fits() or not grid_fits(grid, target):
        return False
    main = _main(finish, kind, kernel, strides, dilations, target.texels)
    own = (*sizes, *out, threads, *begins, *margins, *limits, 0, 0, 0)
    round_ns = _COLUMN_NS * reach * kernel[0]
    shader = finish.kernel_for(main, len(_NAMES), (LOCAL_SIZE, 1), (), round_ns, is_folded=True)
    finish.emit(tuner, shader, grid, own)
    return True


def _main(
    finish: Epilogue,
    kind: str,
    kernel: tuple[int, int],
    strides: tuple[int, int],
    dilations: tuple[int, int],
    texels: bool,
) -> str:
    each = range(_EACH)
    lines = [
        THREAD,
        "if (t >= threads) return;",
        f"int quads = max((columns + {_EACH - 1}) / {_EACH}, 1), line = t / quads;",
        f"int column = (t - line * quads) * {_EACH}, plane = line / max(rows, 1);",
        f"int first = (line - plane * rows) * {strides[0]} - top, begin = column * {strides[1]} - left;",
        *(f"float a{j} = {_START[kind]};" for j in each),
        "int counted = 0;",
        f"for (int kh = 0; kh < {kernel[0]}; ++kh) {{",
        f"    int h = first + kh * {dilations[0]};",
        "    counted += h >= -margin_top && h < end_h ? 1 : 0;",
        "    if (h < 0 || h >= height) continue;",
        "    int row = (plane * height + h) * width;",
    ]
    for offset in range((_EACH - 1) * strides[1] + (kernel[1] - 1) * dilations[1] + 1):
        taps = [offset - j * strides[1] for j in each]
        hit = [j for j in each if taps[j] % dilations[1] == 0 and 0 <= taps[j] // dilations[1] < kernel[1]]
        if not hit:
            continue
        name, at = f"v{offset}", f"begin + {offset}"
        value = element("b0", f"row + clamp({at}, 0, width - 1)", "float32", texels)
        lines.append(f"    float {name} = {at} >= 0 && {at} < width ? {value} : {_START[kind]};")
        step = "a{0} = k_max(a{0}, {1});" if kind == "max" else "a{0} += {1};"
        lines += [f"    {step.format(j, name)}" for j in hit]
    lines.append("}")
    for j in each:
        result = f"a{j}"
        if kind == "average":
            places = [f"begin + {j * strides[1] + k * dilations[1]}" for k in range(kernel[1])]
            inside = " + ".join(f"int({w} >= -margin_left && {w} < end_w)" for w in places)
            result = f"a{j} / float(counted * ({inside}))"
        lines.append(f"if (column + {j} < columns) finish(line * columns + column + {j}, {result});")
    return finish.main(_NAMES, lines)
