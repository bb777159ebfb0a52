"""Formulas with sums in strips of a row, for a work-item that computes all elements alone.

Where the loop of a sum is inside that over elements, compilers make no vectors, as neighbours of a sum are
mostly apart in memory. Here the loop over a strip of neighbouring elements is inside, over variables of its
own for each. The order of a sum's terms stays.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.backends.opencl.codegen.printer import AxisSplit, OpenCLPrinter
from engine.kernels.c_printer import SUM_BLOCK
from engine.kernels.expr import LOOPS, Expr, nodes, substitute
from engine.kernels.kernel import Kernel

_STRIP = 128


def sums_of(kernel: Kernel) -> list[Expr]:
    """The loops of a formula that strips take: as long for all elements, and without others inside."""
    return [
        node
        for node in nodes(kernel.body)
        if node.op == "reduce"
        and not node.args[0].free
        and all(isinstance(variable, int) or variable == "flat" for variable in node.free)
        and not any(inner.op in LOOPS for inner in nodes(node.args[1]))
    ]


def strip_lines(kernel: Kernel, split: AxisSplit, rows: str, columns: str) -> list[str]:
    """Statements for all elements of rows and columns; `split` gives the axes of a row number."""
    last, sums = kernel.rank - 1, sums_of(kernel)
    axes: dict[int | str, str] = {"flat": "i"} | {axis: f"i{axis}" for axis in (*split.used, last)}
    sums_lines, made = [], {}
    for k, node in enumerate(sums):
        name = f"sum{k}"
        sums_lines += _sum(kernel, node, name, axes, last)
        made[node] = Expr("loopvar", node.dtype, attr=name, free=frozenset({name}))
    printer = OpenCLPrinter(kernel)
    body = substitute(kernel.body, made.get)
    lines, value = printer.body(body, axes | {f"sum{k}": f"sum{k}[l]" for k in range(len(sums))})
    # Compilers do not know that the output is none of the inputs, which they would read after each store.
    kept = [
        f"{printer.TYPES[kernel.body.dtype]} found[{_STRIP}];",
        *_lanes([*lines, f"found[l] = {value};"], last),
    ]
    stored = _lanes([printer.store("y", "i", "found[l]", kernel.body.dtype)], last)
    return [
        f"for (int row = 0; row < {rows}; ++row) {{",
        *(f"    {line}" for line in split.statements("row")),
        f"    for (int next = 0; next < {columns}; next += {_STRIP}) {{",
        f"        const int width = min({_STRIP}, {columns} - next), start = row * {columns} + next;",
        *(f"        {line}" for line in (*sums_lines, *kept, *stored)),
        "    }",
        "}",
    ]


def _sum(kernel: Kernel, node: Expr, name: str, axes: dict[int | str, str], last: int) -> list[str]:
    """Statements that compute a sum, or another reduction, for each element of a strip."""
    (kind, variable), (extent, term) = node.attr, node.args
    printer = OpenCLPrinter(kernel)
    word, neutral = printer.TYPES[node.dtype], printer.neutral(kind, node.dtype)
    in_blocks = kind == "sum" and node.dtype == "float32"
    total = "part[l]" if in_blocks else f"{name}[l]"
    op = {"sum": "add", "prod": "mul"}.get(kind, kind)
    term, before, held = _loaded_before(kernel, term, variable, name, axes, last)

    def loop(term: Expr) -> list[str]:
        inner = OpenCLPrinter(kernel)
        inner.variables |= axes | held | {variable: "r"}
        # What is the same for all elements of a strip comes first.
        of_all = inner.open(frozenset({variable, *axes} - {last, "flat"}))
        of_each = inner.open(frozenset({last, "flat", *held}))
        value = inner.text(term)
        added = f"{total} = {printer.template(op, node.dtype).format(total, value, T=word)};"
        lines = [*of_all.lines, *_lanes([*of_each.lines, added], last)]
        return ["for (int r = first; r < behind; ++r) {", *(f"    {line}" for line in lines), "}"]

    rounds = loop(term)
    strides, beside = _beside(term, last)
    if strides:
        # Not every compiler asks by itself whether a stride is 1.
        are_beside = " && ".join(f"p{k} == 1" for k in strides)
        rounds = [
            f"if ({are_beside})",
            *(f"    {x}" for x in loop(beside)),
            "else",
            *(f"    {x}" for x in rounds),
        ]
    count = OpenCLPrinter(kernel).body(extent, {})[1]
    begin = [*before, f"{word} {name}[{_STRIP}];", *_lanes([f"{name}[l] = {neutral};"], None)]
    if not in_blocks:
        return [
            *begin,
            "{",
            f"    const int first = 0, behind = {count};",
            *(f"    {x}" for x in rounds),
            "}",
        ]
    return [
        *begin,
        f"for (int first = 0; first < {count}; first += {SUM_BLOCK}) {{",
        f"    const int behind = min(first + {SUM_BLOCK}, {count});",
        f"    {word} part[{_STRIP}];",
        *_lanes([f"part[l] = {neutral};"], None, "    "),
        *(f"    {line}" for line in rounds),
        *_lanes([f"{name}[l] += part[l];"], None, "    "),
        "}",
    ]


def _loaded_before(
    kernel: Kernel, term: Expr, variable: str, name: str, axes: dict[int | str, str], last: int
) -> tuple[Expr, list[str], dict[int | str, str]]:
    """A term without the loads that each round would repeat, the statements that do them, and their names."""
    lines: list[str] = []
    held: dict[int | str, str] = {}

    def replace(node: Expr) -> Expr | None:
        if node.op != "load" or variable in node.free or not node.free & {last, "flat", *held}:
            return None
        array = f"{name}_{len(held)}"
        printer = OpenCLPrinter(kernel)
        statements, value = printer.body(node, axes | held)
        lines.append(f"{printer.TYPES[node.dtype]} {array}[{_STRIP}];")
        lines.extend(_lanes([*statements, f"{array}[l] = {value};"], last))
        held[array] = f"{array}[l]"
        return Expr("loopvar", node.dtype, attr=array, free=frozenset({array}))

    return substitute(term, replace), lines, held


def _beside(term: Expr, last: int) -> tuple[list[int], Expr]:
    """The arguments that an axis is multiplied by, and the term as it is where these are 1."""
    strides: set[int] = set()

    def replace(node: Expr) -> Expr | None:
        if node.op == "mul" and node.args[0].op == "index" and node.args[0].attr == last:
            if node.args[1].op == "param":
                strides.add(node.args[1].attr)
                return node.args[0]
        return None

    beside = substitute(term, replace)
    return sorted(strides), beside


def _lanes(lines: Sequence[str], last: int | None, indent: str = "") -> list[str]:
    """A loop over the elements of a strip; `last` is the axis along it, where the statements use it."""
    place = [] if last is None else [f"const int i{last} = next + l, i = start + l;"]
    body = ["for (int l = 0; l < width; ++l) {", *(f"    {line}" for line in (*place, *lines)), "}"]
    return [indent + line for line in body]
