"""Epilogues: bias, activation and residual, applied to a row of sums while it is in cache.

The epilogue's formula is printed by the same printer as generic kernels, into a loop over one row, which
LLVM vectorises.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, isnan
from typing import Any

import numpy as np

from engine.backends.cost import formula_ns
from engine.backends.cpu.codegen.printer import NumbaPrinter, indent, read_text
from engine.compiler.plan import Compute
from engine.kernels.expr import Expr, acc
from engine.kernels.kernel import KernelCall, kernel_call

Recipe = tuple[Any, ...]
"""An epilogue for sums in registers, see `library/epilogue.py`."""

_MOST_OPERANDS = 16

EPILOGUE_BYTES = 8 * (4 + _MOST_OPERANDS)
"""Memory for what `store_epilogue` stores."""


@dataclass(frozen=True)
class Epilogue:
    """An epilogue's statements and the values of the argument words that they read.

    arguments: read `p*`, `out` and `in*` from `args`; `words` is how many words they take. kernel: what
    changes nowhere. store: stores one row, given the row's indices, `tile` (the address of its sums), `start`
    (the flat position of the first), `columns` (how many), `first_column` and `last_size`.
    """

    arguments: list[str]
    kernel: list[str]
    store: list[str]
    values: tuple[int | float, ...]
    inputs: tuple[str, ...]
    nanoseconds: float
    """Estimate for one element."""
    recipe: Recipe | None = None
    """The same over whole vectors of the last axis, where the formula is plain enough."""

    @property
    def pooled(self) -> int:
        """How many sums along each axis a result is the largest of."""
        return 2 if self.recipe is not None and self.recipe[0] == "pooled" else 1

    @property
    def words(self) -> int:
        """How many words of `args` the values, the output and the inputs take."""
        return len(self.values) + 1 + len(self.inputs)

    def store_columns(self, count: str) -> list[str]:
        """`store` with a count of columns of its own: a literal one makes a loop of whole vectors."""
        return [line.replace("range(columns)", f"range({count})") for line in self.store]

    def store_tile(self, width: int, rows: list[str]) -> list[str]:
        """`store` for each row of a tile, with a special case for full-width tiles.

        rows: the head of the loop over rows, and the statements that come before `store` in it.
        """
        lead = [rows[0], *indent(rows[1:])]
        whole, part = indent(self.store_columns(str(width))), indent(self.store)
        return [f"if columns == {width}:", *indent([*lead, *whole]), "else:", *indent([*lead, *part])]


def print_epilogue(
    compute: Compute, first_word: int, row_axes: int = 2, core: str = "float32", total: str = "",
    over_channels: bool = False,
) -> Epilogue:  # fmt: skip
    """The epilogue over a space whose first `row_axes` indices (`i0`, `i1`...) are fixed in a row.

    The other axes, one or two, run along it: column `first_column` + k is a position in the last axis, or in
    the last two, where `last_size` is the size of the last. `core` is the storage type of what `tile` holds,
    `total` the text of a sum at `column` where that is not just what the tile holds there.

    over_channels: whether a row runs along axis 1 instead, which is all that the formula depends on. Its
    results are stored at `made`, side by side.
    """
    formula = compute.epilogue if compute.epilogue is not None else acc(compute.body.dtype)
    rank = len(compute.space)
    call = kernel_call(formula, rank, compute.output.dtype)
    kernel, values, inputs = call
    printer = NumbaPrinter(kernel)
    along = frozenset({1} if over_channels else range(row_axes, rank))
    printer.variables |= {axis: f"i{axis}" for axis in range(rank)} | {"flat": "flat", "acc": "acc"}
    arguments = printer.arguments(first_word)
    printer.open(frozenset())
    printer.open(frozenset(range(rank)) - along)
    printer.open(along | {"flat", "acc"})
    store = printer.store(*(("column", kernel.body, "made") if over_channels else ("flat", kernel.body)))
    element = printer.close()
    row = printer.close()
    lead = [f"acc = {total or read_text(core, 'tile', 'column')}", "flat = start + column"]
    if kernel.body.free & along:
        at = "first_column + column"
        if len(along) == 1:
            lead.append(f"i{min(along)} = {at}")
        else:
            lead += [f"i{row_axes} = op_div({at}, last_size)", f"i{row_axes + 1} = op_rem({at}, last_size)"]
    store_lines = [*row, "for column in range(columns):", *indent([*lead, *element, store])]
    cost = formula_ns(kernel.body, values)
    names = tuple(v.name for v in inputs)
    fits = core == "float32" and along == {rank - 1} and len(inputs) + len(values) <= _MOST_OPERANDS
    recipe = _recipe(kernel.body, call) if fits else None
    if recipe is not None and compute.hint is not None and compute.attributes.get("pooled", 1) > 1:
        recipe = ("pooled", recipe)
    return Epilogue(arguments, printer.close(), store_lines, values, names, cost, recipe)


def _recipe(node: Expr, call: KernelCall) -> Recipe | None:
    """Recognise a formula of sums, bounds, numbers, and tensors read per column, once, or per element."""
    kernel, values, inputs = call
    if kernel.dtype != "float32" or node.dtype != "float32":
        return None
    if node.op == "acc":
        return ("acc",)
    if node.op == "const":
        return ("const", float(node.attr)) if isfinite(node.attr) else None
    if node.op == "param":
        slot = len(inputs) + node.attr
        return None if _is_nan(values[node.attr]) else ("number", slot, f"p{node.attr}")
    if node.op == "load" and len(node.args) == 1 and kernel.buffers[node.attr] == "float32":
        at = node.args[0]
        if at.op == "index" and at.attr == kernel.rank - 1:
            return ("row", node.attr)
        if at.op == "const" and at.attr == 0:
            known = inputs[node.attr].known
            if known is None or known.dtype != np.float32 or _is_nan(known.flat[0]):
                return ("scalar", node.attr)
            return ("number", node.attr, f"load_f32(in{node.attr}, 0)")
        return ("place", node.attr) if at.op == "flat" else None
    if node.op in ("add", "sub", "mul", "min", "max"):
        parts = [_recipe(part, call) for part in node.args]
        return None if None in parts else (node.op, *parts)
    return None


def reads_results_places(recipe: Recipe) -> bool:
    """Whether a tensor is read where the result goes."""
    return any(leaf[0] == "place" for leaf in _operands(recipe).values())


def _is_nan(value: float | np.floating) -> bool:
    return isinstance(value, float | np.floating) and isnan(value)


def store_epilogue(recipe: Recipe, ends: str, *, columns: str, pixels: str, first: str) -> list[str]:
    """Statements that pass the epilogue to a tile, given `start`, the flat position of its first sum.

    ends: the address of the memory for that. columns, pixels: how many are meant. first: the first column.
    """
    reads = {"row": f"in{{}} + ({first}) * 4", "scalar": "in{}", "place": "in{} + start * 4"}
    words = [(0, "out + start * 4"), (2, columns), (3, pixels)]
    numbers = []
    for slot, (how, *parts) in sorted(_operands(recipe).items()):
        if how == "number":
            numbers.append(f"store_f32({ends}, {2 * (4 + slot)}, {parts[-1]})")
        else:
            words.append((4 + slot, reads[how].format(slot)))
    return [*(f"store_i64({ends}, {word}, {value})" for word, value in words), *numbers]


def store_row_stride(ends: str, columns: str) -> str:
    """The statement that passes the distance between pixels, in columns, to all tiles."""
    return f"store_i64({ends}, 1, {columns} * 4)"


def _operands(recipe: Recipe) -> dict[int, Recipe]:
    """The leaves of a recipe that read a word, by its place among the operands."""
    if recipe[0] in ("row", "scalar", "place", "number"):
        return {recipe[1]: recipe}
    return {k: leaf for part in recipe[1:] if isinstance(part, tuple) for k, leaf in _operands(part).items()}
