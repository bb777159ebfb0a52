"""Row-wise generic kernels for CPU devices: adjacent work-items compute adjacent elements of a row.

Where a work-item divides its position into axes, a compiler sees no neighbours: each load is one of separate
elements, and what belongs to a row is computed for each of its elements. Here the innermost axis is a
dimension of a group: loads along it are vectors, and what does not depend on it is computed once for a
vector. Graphics cards join the loads of neighbours by themselves, and would idle at the ends of rows.

Groups are in one row: runtimes divide a grid of several dimensions among threads by columns, too, which then
read and write the same lines of a cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from engine.backends.cost import loop_rounds
from engine.backends.opencl.codegen.functions import functions_for
from engine.backends.opencl.codegen.printer import AxisSplit, OpenCLPrinter, Signature, extensions
from engine.backends.opencl.codegen.tuned_kernel import FIRST_GROUP, TunedKernel, indent
from engine.base.dtypes import ArithmeticType
from engine.compiler.plan import Compute, Step
from engine.device.cl.device import CLLimits
from engine.kernels.expr import nodes
from engine.kernels.kernel import Kernel
from engine.kernels.value import is_one_size

VECTOR = 16
"""Elements of a vector of the longest kind."""

Tile = tuple[int, int]
"""The rows that a group computes, and how many elements of each."""

_TILES: dict[Tile, float] = {(4, 64): 1.0, (1, 256): 1.0, (16, VECTOR): 1.1}
"""Tiles, and how long a group takes in proportion. Smaller groups take longer to start than to compute."""

_FEWEST = 1 << 12
"""Elements from which on a step is worth a kernel of its own; less work is joined with its neighbours'."""
_TYPICAL = 100
# Multiplications that a node of a formula counts for.
_NODE = 3


def row_step(compute: Compute) -> Step:
    """A formula's step: by rows where these are long, else generic."""
    step = compute.as_step()
    kernel, space = step.kernel, step.space
    assert isinstance(kernel, Kernel)
    sizes = _sizes(compute)
    if not _is_by_rows(sizes) or not any(node.op == "index" for node in nodes(kernel.body)):
        return step
    rows, columns = prod(space[:-1]), space[-1]
    work = loop_rounds(kernel.body, step.values)
    tile = _tile(sizes)
    across, down = -(-columns // tile[1]), -(-rows // tile[0])
    values = (*step.values, *row_split(kernel).values(space[:-1]), rows, columns, work, across)
    return replace(step, kernel=print_rows(kernel, tile), space=(across * down, 1, 1), values=values)


def fits(limits: CLLimits) -> bool:
    """Whether a device supports groups of these sizes."""
    most = tuple(max(tile[axis] for tile in _TILES) for axis in (1, 0))
    sizes = zip(limits.max_work_item_sizes, most, strict=False)
    return all(size >= wanted for size, wanted in sizes) and limits.max_work_group_size >= max(
        map(prod, _TILES)
    )


def _sizes(compute: Compute) -> list[int]:
    """The sizes of the space's axes. Kernels must not depend on those that vary: they count as typical."""
    # A group of no axes has no sizes.
    return [next(iter(n), 1) if is_one_size(n) else _TYPICAL for n in compute.extents or ()]


def _is_by_rows(sizes: Sequence[int]) -> bool:
    """Whether rows hold a vector's elements at least, and there is work enough."""
    return len(sizes) > 1 and sizes[-1] >= VECTOR and prod(sizes) >= _FEWEST


def _tile(sizes: Sequence[int]) -> Tile:
    """The tile of which the fewest are needed."""

    def cost(tile: Tile) -> float:
        return _TILES[tile] * -(-prod(sizes[:-1]) // tile[0]) * -(-sizes[-1] // tile[1])

    return min(_TILES, key=cost)


def row_split(kernel: Kernel) -> AxisSplit:
    """How the number of a row is split into the axes that a formula uses."""
    used = AxisSplit.of(kernel.body, kernel.rank).used
    return AxisSplit(tuple(axis for axis in used if axis != kernel.rank - 1), kernel.rank - 1)


def print_rows(kernel: Kernel, tile: Tile) -> TunedKernel:
    """The kernel of a formula: one work-item computes one element of its group's tile.

    Its numbers are the formula's, those that split a row's, and those of `row_step`.
    """
    split, last = row_split(kernel), kernel.rank - 1
    sizes = ("rows", "columns", "work", "across", *FIRST_GROUP)
    names = [*(f"p{k}" for k in range(len(kernel.params))), *split.names, *sizes]
    indices: list[ArithmeticType] = ["index" for _ in sizes]
    types: list[ArithmeticType] = [*kernel.params, *split.types, *indices]
    signature = Signature.of(len(kernel.buffers), types)
    parameters, loads = signature.declarations(kernel.buffers, kernel.dtype, names)
    printer = OpenCLPrinter(kernel)
    axes = {axis: f"i{axis}" for axis in (*split.used, last)}
    lines, value = printer.body(kernel.body, {"flat": "i"} | axes)
    statements = [
        *loads,
        # One division for a group; across is 0 where a driver warms up.
        "const int group = f0 + (int)get_group_id(0), down = group / max(across, 1);",
        f"const int i{last} = (group - down * across) * {tile[1]} + (int)get_local_id(0);",
        f"const int row = down * {tile[0]} + (int)get_local_id(1);",
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
