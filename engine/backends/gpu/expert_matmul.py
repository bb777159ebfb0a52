"""Mixture-of-experts products on GPUs: rows times the weights of their chosen experts.

Rows are listed by expert, and each expert's in tiles of its own, so that a tile reads weights for several
rows. Packed weights are unpacked first, once for all rows. A few rows are left to the generic kernel, which
reads the weights as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from engine.backends.gpu.kernel_dialect import GROUP, KernelDialect, Store, ThreadStep
from engine.backends.operands import emit, rows_of
from engine.base.dtypes import FLOAT32, INT32
from engine.compiler.plan import Compute, Tuner
from engine.kernels.expr import Expr, arg, cast, eq, fold, index, lit, reduce, select
from engine.kernels.size import deferrable, deferred, smallest
from engine.kernels.value import Value

MOST_UNPACKED = 1 << 25
"""Weights of a layer of all experts that are listed, or unpacked."""

NAMES = ("threads", "strips", "n", "k", "per_row")
"""Arguments of a product: a row of x serves `per_row` products; `threads` tiles of rows and strips."""


TILE = (4, 4)
"""Rows and columns of a product that a thread computes."""

_ROUND_NS, _STORE_ROUNDS = 3.8, 32


@dataclass(frozen=True)
class ExpertProduct:
    """The step that multiplies: x by weights (experts, n, k), for the products listed in `slots`.

    slots: int32, those of a tile one after another, below 0 where a tile has none. values: as `NAMES` has
    them.
    """

    x: Value
    w: Value
    slots: str
    chosen: Value
    values: tuple[int, ...]

    def inputs(self, weights: str) -> list[tuple[str, str]]:
        """The tensors that it reads, with their element types; `weights` as they are laid out."""
        pairs = (self.slots, "int32"), (self.chosen.root.name, "int32")
        return [(self.x.root.name, "float32"), (weights, "float32"), *pairs]


Multiply = Callable[[ExpertProduct, Compute, Tuner, KernelDialect], bool]
"""Emits the product, if it can."""


def tune_expert_matmul(compute: Compute, tuner: Tuner, dialect: KernelDialect) -> bool:
    """Rule for hints of kinds "expert_matmul" and "expert_matmul_nbits" of float32."""
    return emit_expert_matmul(compute, tuner, dialect, TILE, _multiply)


def emit_expert_matmul(
    compute: Compute, tuner: Tuner, dialect: KernelDialect, tile: tuple[int, int], multiply: Multiply
) -> bool:
    """Emit the steps; `multiply` computes tiles of these rows and columns per thread."""
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
    if places > MOST_UNPACKED or not dialect.fits(places, FLOAT32):
        return False
    is_open = not chosen.is_static(0)
    few, many = deferred(_divided, rows, count, experts)
    if not is_open and not many:
        return False
    pairs = many * count
    if 2 * pairs + experts > dialect.most_rounds:
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
    if not multiply(ExpertProduct(x, w, slots, chosen, values), compute, tuner, dialect):
        return False
    if is_open:
        part = replace(compute, space=(few, *compute.space[1:]), hint=None).as_step()
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


def _multiply(product: ExpertProduct, compute: Compute, tuner: Tuner, dialect: KernelDialect) -> bool:
    """Emit the product; returns False if it exceeds the driver's loop or binding limits."""
    k = product.values[NAMES.index("k")]
    if k + _STORE_ROUNDS > dialect.most_rounds:
        return False
    is_wide = type(k) is int and k % 4 == 0
    inputs = product.inputs(rows_of(product.w, tuner))
    step = ThreadStep(
        product.values[0], (), NAMES, product.values, inputs, compute.output.name,
        widths=(4, 4, 1, 1) if is_wide else (), rounds=("k",), area=GROUP * TILE[0] * TILE[1],
        ns=GROUP * _ROUND_NS,
    )  # fmt: skip
    return dialect.emit_with_epilogue(
        compute, tuner, step, lambda store: _statements(dialect, is_wide, store)
    )


def _statements(dialect: KernelDialect, is_wide: bool, store: Store) -> list[str]:
    """Statements of thread `t`, which reads four numbers along k at a time where that divides it."""
    rows, columns = map(range, TILE)
    at = [(r, c) for r in rows for c in columns]
    kind, term = (dialect.vector(), "dot(x{}, w{})") if is_wide else ("float", "x{} * w{}")

    def fetch(slot: int, position: str) -> str:
        return dialect.load_vector(slot, position) if is_wide else dialect.load(slot, position, "float32")

    return [
        "if (t >= threads) return;",
        f"int tile = t / max(strips, 1), column = (t - tile * strips) * {TILE[1]}, first = tile * {TILE[0]};",
        *(f"int pair{r} = {dialect.element(2, f'first + {r}')};" for r in rows),
        "if (pair0 < 0) return;",
        f"int expert = {dialect.element(3, 'pair0')}, rounds = k / {4 if is_wide else 1};",
        # Rows and columns that are not there repeat another one, and are not stored.
        *(f"int line{c} = (expert * n + min(column + {c}, n - 1)) * rounds;" for c in columns),
        *(f"int row{r} = max(pair{r}, 0) / max(per_row, 1) * rounds;" for r in rows),
        *(f"float sum{r}_{c} = 0.0f;" for r, c in at),
        "for (int at = 0; at < rounds; ++at) {",
        *(f"    {kind} w{c} = {fetch(1, f'line{c} + at')};" for c in columns),
        *(f"    {kind} x{r} = {fetch(0, f'row{r} + at')};" for r in rows),
        *(f"    sum{r}_{c} += {term.format(r, c)};" for r, c in at),
        "}",
        f"int pairs[{TILE[0]}] = {{{', '.join(f'pair{r}' for r in rows)}}};",
        f"float sums[{len(at)}] = {{{', '.join(f'sum{r}_{c}' for r, c in at)}}};",
        f"for (int r = 0; r < {TILE[0]}; ++r) {{",
        f"    for (int j = 0; j < {TILE[1]} && pairs[r] >= 0 && column + j < n; ++j) {{",
        *(f"        {line}" for line in store("pairs[r] * n + column + j", f"sums[r * {TILE[1]} + j]")),
        "    }",
        "}",
    ]
