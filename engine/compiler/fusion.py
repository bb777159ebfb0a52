"""Activation fusion: an elementwise formula becomes part of the kernel that computes its input.

`fuse_elementwise` takes formulas in execution order and returns fewer. A producer is fused when its
result has one reader, that reader is elementwise over the same elements, and the joined kernel reads no
more tensors than a kernel may. After a step with a hint (a convolution, say) the chain becomes its
epilogue, which tuned kernels apply while the result is still in registers or cache.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial

from engine.base.dtypes import INTEGER_TYPES, NARROW_FLOAT_TYPES, SIGNED_TYPES, bits_of
from engine.compiler.plan import Compute
from engine.compiler.plan_memo import PlanMemo
from engine.kernels.expr import FLAT, Expr, acc, arg, cast, index, lit, nodes, substitute
from engine.kernels.size import has_sizes, name_of
from engine.kernels.value import Value

DEPTH_LIMIT = 120
"""Deepest formula that fusion makes: what walks formulas recurses, and compilers' time grows with depth."""


def fuse_elementwise(
    computes: Sequence[Compute], kept: Iterable[Value], fan_in: int, memo: PlanMemo | None = None
) -> list[Compute]:
    """Fuse elementwise formulas into their producers, except for those in `kept`; `memo` caches results."""
    pinned = {v.root for v in kept}
    readers: Counter[Value] = Counter()
    for compute in computes:
        readers.update(compute.reads)
    made: dict[Value, Compute] = {}
    for compute in computes:
        current: Compute | None = compute
        while current is not None:
            compute = current
            current = None
            for producer in _candidates(compute, made, pinned, readers):
                if memo is None:
                    current = fuse(producer, compute, fan_in)
                else:
                    current = memo.joined(producer, compute, partial(fuse, producer, compute, fan_in))
                if current is not None:
                    del made[producer.output]
                    break
        made[compute.output] = compute
    return list(made.values())


def _candidates(
    compute: Compute, made: dict[Value, Compute], pinned: set[Value], readers: Counter[Value]
) -> list[Compute]:
    """Producers that `compute` may join, those that do the most work first: others can join those later."""
    if not compute.elementwise:
        return []
    found = [made[v] for v in compute.reads if v in made and v not in pinned and readers[v] == 1]
    return sorted(found, key=lambda c: (c.hint is None, c.elementwise))


def fuse(producer: Compute, consumer: Compute, fan_in: int) -> Compute | None:
    """Fuse two formulas into one kernel with the consumer's output; None if they do not fit."""
    if consumer.hint is not None or producer.kind == "byte_lookup":
        return None
    if producer.output.size != consumer.output.size:
        return None
    at_flat = Expr("load", producer.output.arithmetic, (FLAT,), producer.output)
    formula = consumer.formula()
    if _rounds(producer, consumer) or formula.depth + _value_of(producer).depth > DEPTH_LIMIT:
        return None
    if not _only_reads_at_flat(formula, producer.output):
        return None
    own = narrowed(_value_of(producer), producer.output)
    space, extents = producer.space, producer.extents
    if _uses_index(formula):
        if (indices := match_axes(consumer, producer)) is not None:
            formula = substitute(formula, lambda x: indices[x.attr] if x.op == "index" else None)
        elif producer.hint is None and not _uses_index(producer.body):
            space, extents = consumer.space, consumer.extents
        else:
            return None
    body, epilogue = producer.body, None
    replaced = substitute(formula, lambda x: own if x == at_flat else None)
    if producer.hint is not None:
        epilogue = replaced
    else:
        body = replaced
    layer = consumer.layer if producer.elementwise else producer.layer
    joined = Compute(
        consumer.output, space, body, layer, f"{producer.op_type}+{consumer.op_type}",
        producer.hint, epilogue, extents, producer.elementwise,
    )  # fmt: skip
    return joined if len(joined.reads) <= fan_in else None


def _rounds(producer: Compute, consumer: Compute) -> bool:
    """Whether the tensor between rounds visibly: a narrow float that the consumer turns into another type."""
    between = producer.output.dtype
    return between.name in NARROW_FLOAT_TYPES and consumer.output.dtype != between


def _value_of(producer: Compute) -> Expr:
    """The value that the producer stores, as an expression of the fused formula."""
    if producer.hint is None:
        return producer.body
    return producer.epilogue if producer.epilogue is not None else acc(producer.body.dtype)


def narrowed(x: Expr, output: Value) -> Expr:
    """Round `x` through its storage type, which matters for narrow integers."""
    name = output.dtype.name
    x = cast(x, output.arithmetic)
    if name in INTEGER_TYPES and output.dtype.itemsize < 4:
        bits = lit(32 - bits_of(output.dtype), "int32")
        mask = lit((1 << bits_of(output.dtype)) - 1, "int32")
        return (x << bits) >> bits if name in SIGNED_TYPES else x & mask
    return x


def _only_reads_at_flat(formula: Expr, value: Value) -> bool:
    return all(node.args[0] == FLAT for node in nodes(formula) if node.op == "load" and node.attr is value)


def _uses_index(formula: Expr) -> bool:
    # Axes are numbers among the variables that a formula depends on.
    return any(type(variable) is int for variable in formula.free)


def match_axes(consumer: Compute, producer: Compute) -> dict[int, Expr] | None:
    """The consumer's index along each axis in terms of the producer's; None if they do not match."""
    wanted_extents, own_extents = consumer.extents, producer.extents
    if wanted_extents is None or own_extents is None:
        # Nothing is known of other input shapes. Equal spaces are taken to be equal there, too; of open
        # sizes, those that are one number.
        if [*map(name_of, consumer.space)] == [*map(name_of, producer.space)]:
            return {axis: index(axis) for axis in range(len(producer.space))}
        if has_sizes(consumer.space) or has_sizes(producer.space):
            return None
        wanted_extents, own_extents = (tuple((n,) for n in c.space) for c in (consumer, producer))
    supply = [(k, sizes) for k, sizes in enumerate(own_extents) if any(n != 1 for n in sizes)]
    indices: dict[int, Expr] = {}
    for axis, wanted in enumerate(wanted_extents):
        position: Expr = lit(0)
        reached = (1,) * len(wanted)
        while reached != wanted:
            if not supply:
                return None
            k, sizes = supply.pop(0)
            if len(sizes) != len(wanted):
                return None
            reached = tuple(a * b for a, b in zip(reached, sizes, strict=True))
            position = position * arg(producer.space[k]) + index(k)
        indices[axis] = position
    return None if supply else indices
