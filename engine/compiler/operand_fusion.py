"""Operand fusion: a formula becomes part of the kernels that read its result, wherever they read it.

On graphics cards and their drivers on processors, storing a tensor and reading it again takes longer than
most formulas do. `fuse_operands` therefore replaces loads of a tensor by the formula of its elements: in all
readers where that only converts what it reads, as a half to float32, and else in the only reader, if that
reads each element once, as a reduction does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import prod

from engine.base.dtypes import NARROW_FLOAT_TYPES
from engine.compiler.fusion import DEPTH_LIMIT, narrowed
from engine.compiler.plan import Compute
from engine.compiler.plan_memo import PlanMemo
from engine.compiler.trace import live
from engine.kernels.expr import FLAT, LOOPS, Expr, lit, nodes, substitute
from engine.kernels.size import Number, name_of
from engine.kernels.value import Value, is_one_size

Accepts = Callable[[Compute], bool]
"""Whether the backend runs a formula."""


def fuse_operands(
    computes: Sequence[Compute],
    kept: Sequence[Value],
    fan_in: int,
    tuned: frozenset[str],
    accepts: Accepts,
    memo: PlanMemo | None = None,
) -> list[Compute]:
    """Fuse formulas into the kernels that read them.

    Args:
        computes: Formulas in execution order.
        kept: Tensors that have to be stored.
        fan_in: How many tensors a kernel may read.
        tuned: Kinds of hints for which the backend has kernels of its own, which stay as they are.
        accepts: Whether the backend runs a formula.
        memo: Caches results.

    Returns:
        The formulas, without those that nothing reads any more.
    """
    pinned = {v.root for v in kept}
    readers = Counter(value for compute in computes for value in compute.reads)
    made: dict[Value, Compute] = {}
    for compute in computes:
        reader = compute
        if reader.kind is None or not (reader.kind in tuned or _is_bound(reader)):
            for value in filter(made.__contains__, compute.reads):
                producer = made[value]
                is_alone = readers[value] == 1 and value not in pinned
                if (producer.kind in tuned or _is_bound(producer)) or not (is_alone or _converts(producer)):
                    continue
                join = partial(_joined, producer, reader, fan_in, accepts)
                found = join() if memo is None else memo.joined(producer, reader, join, is_operand=True)
                reader = found or reader
        made[reader.output] = reader
    return live(list(made.values()), kept)


def _is_bound(compute: Compute) -> bool:
    return compute.hint is not None and compute.hint.is_bound


def _converts(compute: Compute) -> bool:
    """Whether a formula is its only operand, of a type that takes no more memory than the result."""
    source = compute.body
    while source.op == "cast":
        source = source.args[0]
    if compute.epilogue is not None or source.op != "load" or source.args[0] != FLAT:
        return False
    read, output = source.attr.dtype, compute.output.dtype
    return bool(read.itemsize <= output.itemsize)


def _joined(producer: Compute, reader: Compute, fan_in: int, accepts: Accepts) -> Compute | None:
    """The reader with the producer's formula in place of its loads; None if they do not fit."""
    output, own = producer.output, producer.formula()
    if output.dtype.name in NARROW_FLOAT_TYPES or any(node.op in LOOPS for node in nodes(own)):
        return None
    own = narrowed(own, output)
    formula, at = reader.formula(), {}
    for node in nodes(formula):
        if node.op == "load" and node.attr is output:
            if not (_converts(producer) or _reads_once(node.args[0], reader)):
                return None
            element = _element(own, producer, reader, node.args[0])
            if element is None:
                return None
            at[node] = element
    if not at or formula.depth + own.depth > DEPTH_LIMIT:
        return None
    joined = replace(
        reader, body=substitute(formula, at.get), op_type=f"{producer.op_type}+{reader.op_type}",
        hint=None, epilogue=None,
    )  # fmt: skip
    return joined if len(joined.reads) <= fan_in and accepts(joined) else None


def _steps(position: Expr) -> list[tuple[Expr, Number]] | None:
    """The variables that a position is a sum of, each with its step; None if it is anything else."""
    match position.op:
        case "index" | "loopvar" | "flat":
            return [(position, 1)]
        case "const":
            return [] if position.attr == 0 else None
        case "mul":
            variable, step = position.args
            if step.op == "param" and variable.op in ("index", "loopvar"):
                return [(variable, step.attr.value)]
        case "add":
            parts = [_steps(part) for part in position.args]
            return None if None in parts else [step for part in parts for step in part or ()]
    return None


def _reads_once(position: Expr, reader: Compute) -> bool:
    """Whether the reader's elements and iterations each read another position."""
    steps = _steps(position)
    if steps is None:
        return False
    names = {name_of(step) for _, step in steps}
    if len(names) < len(steps) or name_of(0) in names:
        return False
    axes = {variable.attr for variable, _ in steps if variable.op == "index"}
    extents = reader.extents or [(size,) for size in reader.space]
    walked = [axis for axis, sizes in enumerate(extents) if any(size != 1 for size in sizes)]
    return FLAT in [variable for variable, _ in steps] or axes.issuperset(walked)


def _element(own: Expr, producer: Compute, reader: Compute, position: Expr) -> Expr | None:
    """The producer's formula for the element at a position of its output; None if its indices are unknown."""
    indices: dict[int, Expr] = {}
    if any(type(variable) is int for variable in own.free):
        found = _indices(producer, reader, position)
        if found is None:
            return None
        indices = found

    def moved(node: Expr) -> Expr | None:
        if node.op == "index":
            return indices[node.attr]
        return position if node.op == "flat" else None

    return substitute(own, moved)


def _indices(producer: Compute, reader: Compute, position: Expr) -> dict[int, Expr] | None:
    """The indices of the element at a position, by axis; None if they are unknown.

    A variable of the position may run through several axes, if divisions by constants tell them apart.
    """
    steps, rank = _steps(position), len(producer.space)
    strides = [name_of(prod(producer.space[axis + 1 :])) for axis in range(rank)]
    if steps is None:
        return None
    if [name_of(step) for _, step in steps] == strides:
        return {axis: variable for axis, (variable, _) in enumerate(steps)}
    found: dict[int, Expr] = {}
    for variable, step in steps:
        first = len(found)
        if name_of(step) not in strides[first:]:
            return None
        axes = range(first, strides.index(name_of(step), first) + 1)
        sizes = [_fixed_size(producer, axis) for axis in axes]
        if len(axes) > 1:
            extent = _fixed_size(reader, variable.attr) if variable.op == "index" else 0
            if not (extent and all(sizes)) or extent > prod(sizes):
                return None
        for number, axis in enumerate(axes):
            inner = prod(sizes[number + 1 :])
            at = variable if inner == 1 else variable // lit(inner)
            found[axis] = at if number == 0 else at % lit(sizes[number])
    return found if len(found) == rank else None


def _fixed_size(compute: Compute, axis: int) -> int:
    """The size of an axis of a formula's space; 0 if it varies or is not known."""
    sizes = () if compute.extents is None else compute.extents[axis]
    return sizes[0] if sizes and type(sizes[0]) is int and is_one_size(sizes) else 0
