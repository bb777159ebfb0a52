"""Functions of one byte as tables of their 256 results.

Between quantised layers, activations are such functions: DequantizeLinear, Sigmoid, Mul, QuantizeLinear.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from engine.base.dtypes import NARROW_FLOAT_TYPES
from engine.compiler.fusion import DEPTH_LIMIT, narrowed
from engine.compiler.plan import Compute
from engine.compiler.plan_memo import PlanMemo
from engine.kernels.evaluate import evaluate
from engine.kernels.expr import FLAT, FLOATS, Expr, cast, lit, load, nodes, substitute
from engine.kernels.hint import Hint
from engine.kernels.kernel import kernel_call
from engine.kernels.size import has_sizes
from engine.kernels.value import Value

_BYTES = (np.dtype(np.int8), np.dtype(np.uint8))


class ByteFunction(NamedTuple):
    """A value as a function of `root`'s byte at the same place, and the operators that compute it."""

    root: Value
    formula: Expr
    op_types: tuple[str, ...]


def tabulate(
    computes: Sequence[Compute], kept: Iterable[Value], memo: PlanMemo | None = None
) -> Sequence[Compute]:
    """Replace formulas in floats that yield bytes, and depend on one byte, by tables; `memo` caches them.

    Formulas are in execution order; those that nothing reads any more remain.
    """
    if not any(compute.output.dtype in _BYTES for compute in computes):
        return computes
    chains, ends = _chains(computes, {value.root for value in kept})
    functions: dict[Value, ByteFunction] = {}
    made = []
    for compute in computes:
        found = _function(compute, functions) if compute.output in chains else None
        if found is not None and compute.output not in ends:
            functions[compute.output] = found
        elif found is not None and any(node.dtype in FLOATS for node in nodes(found.formula)):
            compute = (
                _tabulated(compute, found) if memo is None else memo.tabulated(compute, found, _tabulated)
            )
        made.append(compute)
    return made


def _chains(computes: Sequence[Compute], wanted: set[Value]) -> tuple[set[Value], set[Value]]:
    """The values that are functions of one byte, and the last bytes of each chain of these."""
    roots: dict[Value, Value] = {}
    for compute in computes:
        sources = {roots.get(value, value) for value in compute.reads if value.known is None}
        if len(sources) == 1 and (root := sources.pop()).dtype in _BYTES and _is_at_one_place(compute):
            roots[compute.output] = root
        else:
            wanted.update(compute.reads)
    ends = set()
    for compute in reversed(computes):
        if compute.output in roots and compute.output in wanted:
            if compute.output.dtype in _BYTES:
                ends.add(compute.output)
            else:
                wanted.update(compute.reads)
    return set(roots), ends


def _is_at_one_place(compute: Compute) -> bool:
    """Whether a formula is of elements at its own place and of numbers known now, and rounds no float."""
    if not compute.elementwise or compute.hint is not None:
        return False
    if any(v.dtype.name in NARROW_FLOAT_TYPES for v in (compute.output, *compute.reads)):
        return False
    for node in nodes(compute.body):
        if node.op == "index" or node.op == "param" and node.dtype not in FLOATS:
            return False
        if node.op == "param" and has_sizes((node.attr.value,)):
            return False
        if node.op == "load":
            value, (place,) = node.attr, node.args
            if place != FLAT if value.known is None else value.size != 1 or place.op != "const":
                return False
    return True


def _function(compute: Compute, functions: dict[Value, ByteFunction]) -> ByteFunction | None:
    """The formula in terms of one byte; None if it depends on the last bytes of several chains."""
    sources = {value: functions.get(value) for value in compute.reads}
    roots = {
        value if found is None else found.root for value, found in sources.items() if value.known is None
    }
    if len(roots) != 1 or (root := roots.pop()).dtype not in _BYTES:
        return None
    found = {value: source for value, source in sources.items() if source is not None}
    inner = {load(value, FLAT): narrowed(source.formula, value) for value, source in found.items()}
    formula = substitute(compute.body, inner.get)
    if formula.depth > DEPTH_LIMIT:
        return None
    op_types = dict.fromkeys(name for source in found.values() for name in source.op_types)
    return ByteFunction(root, formula, (*op_types, compute.op_type))


def _tabulated(compute: Compute, function: ByteFunction) -> Compute:
    """The formula as a load from its table."""
    root, formula, op_types = function
    kernel, values, inputs = kernel_call(formula, 1, compute.output.dtype)
    every = np.arange(256, dtype=np.uint8).view(root.dtype)
    arrays = [every if value.known is None else value.known for value in inputs]
    elements = evaluate(kernel, (256,), values, arrays)
    # Equal tables share a name, and so a buffer.
    name = f"table of bytes {hashlib.sha256(elements.tobytes()).hexdigest()[:16]}"
    table = Value(name, elements.shape, elements.dtype, known=elements)
    body = load(table, cast(load(root, FLAT) & lit(255, "int32"), "index"))
    return replace(
        compute, body=body, op_type="+".join(op_types), hint=Hint("byte_lookup", (root, table), {})
    )
