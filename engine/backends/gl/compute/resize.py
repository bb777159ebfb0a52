"""Resizing along one axis: a thread computes four elements that the same entries of the tables belong to.

They are neighbours in a row, or along the innermost axis, the same column of four rows.
"""

from __future__ import annotations

from engine.backends.gl.compute.epilogue import FIRST_GROUP, Epilogue, grid_fits
from engine.backends.gl.compute.flat import (
    LOCAL_SIZE,
    THREAD,
    divide,
    divisor_names,
    divisor_values,
    flat_grid,
)
from engine.backends.gl.compute.printer import element
from engine.backends.gl.compute.target import Target
from engine.backends.gl.storage import lanes
from engine.base.dtypes import FLOAT32
from engine.compiler.plan import Compute, Tuner

_EACH = 4
_MOST_TAPS = 16
_TAP_NS = 8.0
_NAMES = ("threads", "outer", "size", "made", "inner", "first")


def tune_resample(compute: Compute, tuner: Tuner, target: Target) -> bool:
    """Rule for hints of kind "resample" to float32; False for many taps, or as many as sizes say."""
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
    parts = -(-(outer if is_innermost else inner) // _EACH)
    threads = parts * out * (1 if is_innermost else outer)
    grid = flat_grid(threads, target)
    operands = [(v.root.name, 1) for v in (x, rows, weights)]
    finish = Epilogue(compute, operands, 0, target, (x.dtype.name, "int32", "float32"))
    if not finish.fits() or not grid_fits(grid, target):
        return False
    divisors = ("made",) if is_innermost else ("parts", "made")
    names = (*_NAMES, "parts", *divisor_names(divisors), *FIRST_GROUP)
    sizes = {"parts": parts, "made": out}
    values = (threads, outer, size, out, inner, attributes["first"], parts)
    values = (*values, *divisor_values([sizes[name] for name in divisors]), 0, 0, 0)
    lines = _innermost(taps, x.dtype.name, target.texels)
    if not is_innermost:
        lines = _outer(taps, x.dtype.name, target.texels, held)
    main = finish.main(names, [THREAD, "if (t >= threads) return;", *lines])
    shader = finish.kernel_for(main, len(names), (LOCAL_SIZE, 1), (), _TAP_NS * taps, is_folded=True)
    finish.emit(tuner, shader, grid, values)
    return True


def _sums(taps: int, entry: str, place: str, kind: str, texels: bool) -> list[str]:
    """Statements that add up the taps; `place` is the text of where an element is, of `at` and `e{j}`."""
    lines = [f"float a{j} = 0.0;" for j in range(_EACH)]
    for k in range(taps):
        position = f"first + {k} * made + {entry}"
        lines += [
            "{",
            f"    int at = max({element('b1', position, 'int32', texels)}, 0);",
            f"    float share = {element('b2', position, 'float32', texels)};",
            *(
                f"    a{j} += share * float({element('b0', place.format(j=j), kind, texels)});"
                for j in range(_EACH)
            ),
            "}",
        ]
    return lines


def _outer(taps: int, kind: str, texels: bool, held: int) -> list[str]:
    """Four neighbours in a row of `inner`; a word of the output holds so many."""
    stores = [f"if (begin + {j} < inner) finish(line * inner + begin + {j}, a{j});" for j in range(_EACH)]
    if held > 1:
        stores = []
        for word in range(0, _EACH, held):
            bits = [f"finish(to + {word + j}, a{word + j}) << {32 // held * j}" for j in range(held)]
            stores.append(f"if (begin + {word} < inner) o[(to + {word}) / {held}] = {' | '.join(bits)};")
        stores.insert(0, "int to = line * inner + begin;")
    return [
        f"int line = {divide('t', 'parts')}, begin = (t - line * parts) * {_EACH};",
        f"int plane = {divide('line', 'made')}, row = line - plane * made;",
        # Those behind the last one read it again.
        *(f"int e{j} = plane * size * inner + min(begin + {j}, inner - 1);" for j in range(_EACH)),
        *_sums(taps, "row", "at * inner + e{j}", kind, texels),
        *stores,
    ]


def _innermost(taps: int, kind: str, texels: bool) -> list[str]:
    """The same column of four rows."""
    return [
        f"int line = {divide('t', 'made')}, column = t - line * made, begin = line * {_EACH};",
        *(f"int e{j} = min(begin + {j}, outer - 1) * size;" for j in range(_EACH)),
        *_sums(taps, "column", "at + e{j}", kind, texels),
        *(f"if (begin + {j} < outer) finish((begin + {j}) * made + column, a{j});" for j in range(_EACH)),
    ]
