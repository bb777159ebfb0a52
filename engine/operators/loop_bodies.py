"""Loop bodies of control-flow operators: iteration limits, inputs and results."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from engine.graph.model import Model
from engine.kernels.expr import Expr, arg
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.operators.movement import concat_many

LONGEST = 20_000
"""Most runs of one loop that are copies of the body in the plan: without an end, they would fill memory."""

MOST_RUNS = 1 << 24
"""Most runs of one loop of which one stands for all."""

STACKED_AT_ONCE = 3
"""How many results one step joins: few, so that loops made when loading have joins of all kinds."""

LIGHT = frozenset(
    "Abs Add And Cast Clip Constant Div Equal Exp Greater GreaterOrEqual Identity If Less LessOrEqual Max "
    "Min Mul Neg Not Or Pow Relu Sigmoid Sqrt Sub Sum Tanh Where Xor".split()
)
"""Layers that cost little."""

LIGHT_LAYERS = 6


def is_light(body: Model) -> bool:
    """Whether running an unused branch costs less than reading its condition."""
    layers = [*body.walk()]
    return len(layers) <= LIGHT_LAYERS and all(x.op_type in LIGHT and not x.domain for x in layers)


def never_ends_early(body: Model) -> bool:
    """Whether a loop's body returns its condition unchanged, or true."""
    made_by = {name: layer for layer in body.layers for name in layer.outputs}
    name = body.outputs[0].name
    while (layer := made_by.get(name)) is not None and layer.op_type == "Identity":
        name = layer.inputs[0]
    constant = body.constants.get(name)
    return name == body.inputs[1].name or (constant is not None and bool(constant.all()))


def stacked(k: Builder, slices: Sequence[Value], axis: int = 0, counts: Sequence[int | None] = ()) -> Value:
    """Stack tensors of one shape along a new axis, with kernels independent of their number.

    counts: How many each of the tensors has along its first axis, which then is that axis; None for a single
        one, as all are without `counts`.
    """
    counts = counts or [None] * len(slices)
    shapes = [x.shape if n is None else x.shape[1:] for x, n in zip(slices, counts, strict=True)]
    shape = shapes[0]
    axis = k.axis(axis, len(shape) + 1)
    for x, own in zip(slices, shapes, strict=True):
        if own != shape:
            k.error(f"its runs yield {list(shape)} and {list(own)}, which do not stack")
        if x.dtype != slices[0].dtype:
            k.error(f"its runs yield {slices[0].dtype.name} and {x.dtype.name}, which do not stack")
    runs = [1 if n is None else n for n in counts]
    outer, inner = prod(shape[:axis]), prod(shape[axis:])
    rows = [k.alias(x, (outer, n * inner)) for x, n in zip(slices, runs, strict=True)]
    return k.alias(concat_many(k, rows, STACKED_AT_ONCE), (*shape[:axis], sum(runs), *shape[axis:]))


def slice_at(k: Builder, x: Value, axis: int, position: int | Expr) -> Value:
    """The slice of a tensor at a position along an axis, without that axis; zeros where there is none."""
    if not x.shape[axis]:
        return k.constant(np.zeros((*x.shape[:axis], *x.shape[axis + 1 :]), x.dtype))
    outer, inner = prod(x.shape[:axis]), prod(x.shape[axis + 1 :])
    rows = k.alias(x, (outer, x.shape[axis] * inner))
    start = position * (arg(inner) if isinstance(position, Expr) else inner)
    taken = k.compute((outer, inner), x.dtype, lambda o, i: rows[o, i + start])
    return k.alias(taken, (*x.shape[:axis], *x.shape[axis + 1 :]))


def nothing_from(k: Builder, body: Model, position: int, sample: Value | None, axis: int = 0) -> Value:
    """The scan output at `position` after zero iterations.

    A `sample` of what it would stack gives the shape; else what the body declares does.
    """
    declared = body.outputs[position]
    dims = [n if isinstance(n, int) else 0 for n in declared.shape or ()]
    dtype = np.dtype(np.float32) if declared.dtype is None else declared.dtype
    if sample is not None:
        dims, dtype = [*sample.shape], sample.dtype
    dims.insert(axis if axis >= 0 else len(dims) + 1 + axis, 0)
    return k.constant(np.zeros(dims, dtype))
