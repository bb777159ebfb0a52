"""Mixture-of-experts products on GPUs: rows times the weights of their chosen experts.

Rows are listed by expert, and each expert's in tiles of its own, so that a tile reads weights for several
rows. Packed weights are unpacked first, once for all rows. A few rows are left to the generic kernel, which
reads the weights as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from engine.backends.operands import Fits, emit
from engine.base.dtypes import FLOAT32, INT32
from engine.compiler.plan import Compute, Tuner
from engine.kernels.expr import Expr, arg, cast, eq, fold, index, lit, reduce, select
from engine.kernels.size import deferrable, deferred, smallest
from engine.kernels.value import Value

MOST_UNPACKED = 1 << 25
"""Weights of a layer of all experts that are listed, or unpacked."""

NAMES = ("threads", "strips", "n", "k", "per_row")
"""Arguments of a product: a row of x serves `per_row` products; `threads` tiles of rows and strips."""


@dataclass(frozen=True)
class ExpertProduct:
    """The step that multiplies: x by weights, for the products listed in `slots`.

    weights: (experts, n, k), or as the backend has laid them out. slots: int32, those of a tile one after
    another, below 0 where a tile has none. values: as `NAMES` has them.
    """

    x: Value
    weights: str
    slots: str
    chosen: Value
    values: tuple[int, ...]

    @property
    def inputs(self) -> tuple[str, ...]:
        """The tensors that it reads."""
        return (self.x.root.name, self.weights, self.slots, self.chosen.root.name)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Their element types."""
        return ("float32", "float32", "int32", "int32")


def tune_experts(
    compute: Compute,
    tuner: Tuner,
    fits: Fits,
    tile: tuple[int, int],
    pack_experts: Callable[[Value], str],
    multiply: Callable[[ExpertProduct], bool],
    most_rounds: int | None = None,
) -> bool:
    """Rule for hints of kinds "expert_matmul" and "unpacked_expert_matmul" of float32.

    Args:
        compute: the step.
        tuner: takes the steps that replace it.
        fits: whether a tensor fits in a buffer.
        tile: how many rows and columns of a product a thread computes.
        pack_experts: emits the step that lays weights (experts, n, k) out for `multiply`; returns its tensor.
        multiply: emits the product, if it can.
        most_rounds: after how many rounds a driver ends a thread's loops, if it does.
    """
    (chosen, x, *rest), attributes = compute.operands, compute.attributes
    if compute.body.dtype != "float32" or x.dtype != FLOAT32 or chosen.dtype != INT32:
        return False
    if len(compute.space) != 3:
        return False
    is_packed = "weight" in attributes
    sizes = tuple(attributes[name] for name in ("experts", "n", "k")) if is_packed else rest[0].shape
    (experts, n, k), (rows, count, _) = sizes, compute.space
    strips = -(-n // tile[1])
    places = experts * k * strips * tile[1]
    if places > MOST_UNPACKED or not fits(places, FLOAT32):
        return False
    is_open = not chosen.is_static(0)
    few, many = deferred(_divided, rows, count, experts)
    if not is_open and not many:
        return False
    pairs = many * count
    if most_rounds is not None and 2 * pairs + experts > most_rounds:
        return False
    tiles = pairs // tile[0] + smallest(experts, pairs)
    slots = _listed(tuner, chosen, experts, pairs, tiles, tile[0])
    if is_packed or rest[0].dtype != FLOAT32:
        weight = attributes["weight"] if is_packed else lambda line, c: rest[0].at(line * arg(k) + c)
        w = Value(tuner.temporary(experts * n * k, FLOAT32), sizes, FLOAT32)
        emit(
            tuner,
            cast(weight(index(0), index(1)), "float32"),
            (smallest(pairs, 1) * experts * n, k),
            FLOAT32,
            w.name,
            ((experts * n,), (k,)) if is_packed else None,
        )
    else:
        w = rest[0]
    values = tiles * strips, strips, n, k, count if attributes["shared"] else 1
    if not multiply(ExpertProduct(x, pack_experts(w), slots, chosen, values)):
        return False
    if is_open:
        part = replace(compute, space=(few, *compute.space[1:]), hint=None).numbered()
        tuner.emit(part.kernel, part.space, part.values, part.inputs, part.output)
    return True


@deferrable
def _divided(rows: int, count: int, experts: int) -> tuple[int, int]:
    """Rows that read the weights as they are, and rows that are listed by expert; one of them is 0."""
    return (rows, 0) if rows * count <= experts else (0, rows)


def _listed(tuner: Tuner, chosen: Value, experts: int, pairs: int, tiles: int, rows: int) -> str:
    """The tensor of products by expert: each expert's in whole tiles, -1 for what is beyond them."""
    room = Value(tuner.temporary(experts, INT32), (experts,), INT32)

    def is_of(p: Expr, e: Expr) -> Expr:
        return eq(cast(chosen.at(p), "index"), e)

    taken = reduce("sum", arg(pairs), lambda p: select(is_of(p, index(0)), lit(1), lit(0)))
    padded = (taken + lit(rows - 1)) // lit(rows) * lit(rows)
    emit(tuner, cast(padded, "int32"), room.shape, INT32, room.name)

    def owner(e: Expr, found: Expr, place: Expr) -> tuple[Expr, Expr]:
        here = cast(room[e], "index")
        is_here, is_later = (found < lit(0)) & (place < here), (found < lit(0)) & (place >= here)
        return select(is_here, e, found), select(is_later, place - here, place)

    expert, place = fold(arg(experts), (lit(-1), index(0)), owner)

    def member(p: Expr, seen: Expr, found: Expr) -> tuple[Expr, Expr]:
        is_one = is_of(p, expert)
        return seen + select(is_one, lit(1), lit(0)), select(is_one & eq(seen, place), p, found)

    _, pair = fold(arg(pairs), (lit(0), lit(-1)), member)
    slots = tuner.temporary(tiles * rows, INT32)
    emit(tuner, cast(pair, "int32"), (tiles * rows,), INT32, slots)
    return slots
