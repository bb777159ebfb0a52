"""Generic formulas on processors, row by row: work-items along the innermost axis are neighbours in it.

Where a work-item divides its position into axes, a compiler sees no neighbours: each load is one of separate
elements, and what belongs to a row is computed for each of its elements. Here the innermost axis is a
dimension of the grid: loads along it are vectors, and what does not depend on it is computed once for a
vector. Graphics cards join the loads of neighbours by themselves, and would idle at the ends of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from engine.backends.cost import loop_rounds
from engine.backends.opencl.functions import functions_for
from engine.backends.opencl.printer import AxisSplit, OpenCLPrinter, Signature, extensions
from engine.backends.opencl.tuned_kernel import FIRST_GROUP, TunedKernel, indent
from engine.base.dtypes import ArithmeticType
from engine.compiler.plan import Compute, Step
from engine.kernels.expr import nodes
from engine.kernels.kernel import Kernel
from engine.kernels.value import is_one_size

VECTOR = 16
"""Elements of a vector of the longest kind."""

Tile = tuple[int, int]
"""The rows that a group computes, and how many elements of each."""

_LONG, _SHORT = (1, 64), (4, VECTOR)

_FEWEST = 1 << 12
"""Elements from which on a step is worth a kernel of its own; less work is joined with its neighbours'."""
# A size that varies.
_TYPICAL = 100
# Multiplications that a node of a formula counts for.
_NODE = 3


def step_of(compute: Compute) -> Step:
    """A formula's step: by rows where these are long, else generic."""
    step = compute.numbered()
    kernel, space = step.kernel, step.space
    assert isinstance(kernel, Kernel)
    sizes = _sizes(compute)
    if not _has_long_rows(sizes) or not any(node.op == "index" for node in nodes(kernel.body)):
        return step
    rows, columns = prod(space[:-1]), space[-1]
    work = loop_rounds(kernel.body, step.values)
    values = (*step.values, *_split(kernel).values(space[:-1]), rows, columns, work)
    tile = _tile(sizes)
    grid = (-(-columns // tile[1]), -(-rows // tile[0]), 1)
    return Step(step.layer, step.op_type, print_rows(kernel, tile), grid, values, step.inputs, step.output)


def _sizes(compute: Compute) -> list[int | None]:
    """The sizes of the space's axes, None for those that vary: kernels must not depend on these."""
    # A group of no axes has none.
    return [next(iter(sizes), 1) if is_one_size(sizes) else None for sizes in compute.extents or ()]


def _has_long_rows(sizes: Sequence[int | None]) -> bool:
    """Whether rows hold a vector's elements at least, and there is work enough, as far as sizes are known."""
    if len(sizes) < 2 or (sizes[-1] is not None and sizes[-1] < VECTOR):
        return False
    return None in sizes or prod(size for size in sizes if size is not None) >= _FEWEST


def _tile(sizes: Sequence[int | None]) -> Tile:
    """The tile that fits best."""
    *outer, columns = [_TYPICAL if size is None else size for size in sizes]
    return min((_LONG, _SHORT), key=lambda tile: -(-prod(outer) // tile[0]) * -(-columns // tile[1]))


def _split(kernel: Kernel) -> AxisSplit:
    """How the number of a row is split into the axes that a formula uses."""
    used = AxisSplit.of(kernel.body, kernel.rank).used
    return AxisSplit(tuple(axis for axis in used if axis != kernel.rank - 1), kernel.rank - 1)


def print_rows(kernel: Kernel, tile: Tile) -> TunedKernel:
    """The kernel of a formula: one work-item computes one element of its group's tile.

    Its numbers are the formula's, those that split a row's, the rows, the columns, and rounds of an element.
    """
    split, last = _split(kernel), kernel.rank - 1
    own = [f"p{k}" for k in range(len(kernel.params))]
    names = [*own, *split.names, "rows", "columns", "work", *FIRST_GROUP]
    types: list[ArithmeticType] = [*kernel.params, *split.types, *["index"] * (3 + len(FIRST_GROUP))]
    signature = Signature.of(len(kernel.buffers), types)
    parameters, loads = signature.declarations(kernel.buffers, kernel.dtype, names)
    printer = OpenCLPrinter(kernel)
    axes = {axis: f"i{axis}" for axis in (*split.used, last)}
    lines, value = printer.body(kernel.body, {"flat": "i"} | axes)
    statements = [
        *loads,
        f"const int i{last} = f0 * {tile[1]} + (int)get_global_id(0);",
        f"const int row = f1 * {tile[0]} + (int)get_global_id(1);",
        f"if (i{last} >= columns || row >= rows) return;",
        f"const int i = row * columns + i{last};",
        *split.statements("row"),
        *lines,
        printer.store("y", "i", value, kernel.body.dtype),
    ]
    # Contraction would let a coordinate fall on the other side of a rounding edge than elsewhere.
    body = indent(["#pragma OPENCL FP_CONTRACT OFF", *statements], 1)
    local = (tile[1], tile[0], 1)
    function = f"__kernel __attribute__((reqd_work_group_size{local})) void k({parameters})\n{{\n{body}}}\n"
    text = extensions(function) + functions_for(function) + function
    area = prod(tile) * _NODE * sum(1 for _ in nodes(kernel.body))
    return TunedKernel(text, signature, local, (names.index("work"),), area)
