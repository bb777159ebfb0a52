"""Resizing along one axis: a thread computes several elements that the same entries of the tables belong to.

They are neighbours in a row, or along the innermost axis, the same column of several rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.backends.gl.compute.flat_grid import emit_with_epilogue
from engine.backends.gl.compute.printer import element
from engine.backends.gl.compute.target import ShaderTarget
from engine.backends.gl.glsl import COMPONENTS
from engine.backends.gl.storage import lanes
from engine.backends.gpu.division import divide
from engine.backends.gpu.kernel_dialect import GROUP, ThreadStep
from engine.base.dtypes import FLOAT32
from engine.compiler.plan import Compute, Tuner

_EACH, _EACH_IN_SOFTWARE = 4, 8
_WIDTH = 4
_MOST_TAPS = 16
_TAP_NS = 2.0
_VECTORS = {"float32": "vec4", "int32": "ivec4"}
_NAMES = ("threads", "outer", "size", "made", "inner", "first", "parts")


def tune_resample(compute: Compute, tuner: Tuner, target: ShaderTarget) -> bool:
    """Rule for hints of kind "resample" to float32; returns False for many taps."""
    (x, rows, weights), attributes = compute.operands, compute.attributes
    taps, is_innermost = attributes["taps"], attributes["is_innermost"]
    is_number = x.arithmetic in ("float32", "int32")
    if not is_number or weights.dtype != FLOAT32 or compute.body.dtype != "float32":
        return False
    if type(taps) is not int or taps > _MOST_TAPS:
        return False
    outer, size, out, inner = (attributes[name] for name in ("outer", "size", "out", "inner"))
    held = lanes(compute.output.dtype.name)
    if held > 1 and (not attributes["is_inner_static"] or inner % held):
        return False
    each = _EACH_IN_SOFTWARE if target.texels else _EACH
    parts = -(-(outer if is_innermost else inner) // each)
    threads = parts * out * (1 if is_innermost else outer)
    is_whole = not is_innermost and attributes["is_inner_static"] and inner % _WIDTH == 0
    width = _WIDTH if is_whole and x.dtype.name in _VECTORS else 1
    values = (threads, outer, size, out, inner, attributes["first"], parts)
    if is_innermost:
        lines = _innermost(taps, each, x.dtype.name, target.texels)
    else:
        lines = _outer(taps, each, x.dtype.name, target.texels, held, width)
    inputs = [(x.root.name, x.dtype.name), (rows.root.name, "int32"), (weights.root.name, "float32")]
    step = ThreadStep(
        threads, ["if (t >= threads) return;", *lines], _NAMES, values, inputs, compute.output.name,
        widths=(width, 1, 1), divisors=("made",) if is_innermost else ("parts", "made"),
        ns=GROUP * _TAP_NS * taps * each,
    )  # fmt: skip
    return emit_with_epilogue(compute, tuner, step, target)


def _sums(taps: int, entry: str, loads: Sequence[str], texels: bool, before: Sequence[str] = ()) -> list[str]:
    """Statements that add up the taps.

    `loads` are the texts of the elements, of `at` and what the statements `before` set.
    """
    lines = [f"float a{j} = 0.0;" for j in range(len(loads))]
    for k in range(taps):
        position = f"first + {k} * made + {entry}"
        lines += [
            "{",
            f"    int at = max({element('b1', position, 'int32', texels)}, 0);",
            f"    float share = {element('b2', position, 'float32', texels)};",
            *(f"    {line}" for line in before),
            *(f"    a{j} += share * float({load});" for j, load in enumerate(loads)),
            "}",
        ]
    return lines


def _outer(taps: int, each: int, kind: str, texels: bool, held: int, width: int) -> list[str]:
    """Neighbours in a row of `inner`; a word of the output holds so many, and a load yields `width`."""
    stores = [f"if (begin + {j} < inner) finish(line * inner + begin + {j}, a{j});" for j in range(each)]
    if held > 1:
        stores = ["int to = line * inner + begin;"]
        for word in range(0, each, held):
            bits = [f"finish(to + {word + j}, a{word + j}) << {32 // held * j}" for j in range(held)]
            stores.append(f"if (begin + {word} < inner) o[(to + {word}) / {held}] = {' | '.join(bits)};")
    # What is behind the last one reads it again.
    starts = range(0, each, width)
    entries = [f"int e{j} = plane * size * inner + min(begin + {j}, inner - {width});" for j in starts]
    loads, before = [element("b0", f"at * inner + e{j}", kind, texels) for j in starts], []
    if width > 1:
        found = "texelFetch(b0, {})" if texels else "b0[{}]"
        before = [
            f"{_VECTORS[kind]} found{j} = {found.format(f'(at * inner + e{j}) / {width}')};" for j in starts
        ]
        loads = [f"found{j}.{lane}" for j in starts for lane in COMPONENTS]
    return [
        f"int line = {divide('t', 'parts')}, begin = (t - line * parts) * {each};",
        f"int plane = {divide('line', 'made')}, row = line - plane * made;",
        *entries,
        *_sums(taps, "row", loads, texels, before),
        *stores,
    ]


def _innermost(taps: int, each: int, kind: str, texels: bool) -> list[str]:
    """The same column of several rows."""
    rows = range(each)
    return [
        f"int line = {divide('t', 'made')}, column = t - line * made, begin = line * {each};",
        *(f"int e{j} = min(begin + {j}, outer - 1) * size;" for j in rows),
        *_sums(taps, "column", [element("b0", f"at + e{j}", kind, texels) for j in rows], texels),
        *(f"if (begin + {j} < outer) finish((begin + {j}) * made + column, a{j});" for j in rows),
    ]
