"""Rotary position embedding (Su et al., 2021): pairs of columns turned by angles that grow with position."""

from __future__ import annotations

from collections.abc import Callable

from engine.kernels.expr import Expr, arg, cast, clamp, eq, lit, select
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.operators.registry import operator


def turned(
    element: Callable[[Expr], Expr], column: Expr, columns: int, width: int, interleaved: bool,
    angle: Callable[[Expr], tuple[Expr, Expr]],
) -> Expr:  # fmt: skip
    """x * cos - partner * sin for the first of a pair, x * cos + partner * sin for the second.

    The first `width` of the `columns` of a row are turned; a pair is two neighbours if `interleaved`, else
    an element of the first half and one of the second. `angle` gives cosine and sine by number of the pair.
    """
    half = arg(width // 2)
    if interleaved:
        pair, is_first = column // lit(2), eq(column % lit(2), lit(0))
        partner = select(is_first, column + lit(1), column - lit(1))
    else:
        is_first = column < half
        pair = select(is_first, column, column - half)
        partner = select(is_first, column + half, column - half)
    cosine, sine = angle(clamp(pair, lit(0), half - lit(1)))
    own, other = element(column), element(clamp(partner, lit(0), arg(columns - 1)))
    sine, cosine = cast(sine, own.dtype), cast(cosine, own.dtype)
    return select(column < arg(width), own * cosine + select(is_first, -other, other) * sine, own)


def checked_width(k: Builder, columns: int, width: int, cos: Value, sin: Value) -> int:
    """How many columns of a head are turned (0 means all), once the tables are known to fit."""
    width = width or columns
    if not 0 < width <= columns or width % 2:
        k.error(f"cannot turn {width} of a head's {columns} columns: it takes an even number of them")
    if cos.shape != sin.shape or cos.shape[-1] != width // 2:
        k.error(
            f"tables of {list(cos.shape)} and {list(sin.shape)} do not hold a cosine and a sine for each of "
            f"the {width // 2} pairs of columns"
        )
    return width


def table_row(table: Value, position: Expr) -> Expr:
    """A position as a row that surely lies in the table."""
    return clamp(cast(position, "index"), lit(0), arg(table.shape[0] - 1))


@operator("RotaryEmbedding", since=23)
def rotary_embedding(
    k: Builder, x: Value, cos_cache: Value, sin_cache: Value, position_ids: Value | None = None, *,
    interleaved: int = 0, num_heads: int = 0, rotary_embedding_dim: int = 0,
) -> Value:  # fmt: skip
    """Angles come from the row of the tables that a token's position names, or from its own row."""
    if x.rank not in (3, 4):
        k.error(f"takes (batch, heads, length, size) or (batch, length, hidden), not {list(x.shape)}")
    if x.rank == 3 and (num_heads < 1 or x.shape[2] % num_heads):
        k.error(f"{x.shape[2]} columns of {list(x.shape)} do not divide into {num_heads} heads (num_heads)")
    batch, rows = x.shape[0], x.shape[-2]
    columns = x.shape[3] if x.rank == 4 else x.shape[2] // num_heads
    width = checked_width(k, columns, rotary_embedding_dim, cos_cache, sin_cache)
    lead = cos_cache.shape[:-1] if position_ids is None else position_ids.shape
    if lead != (batch, rows) or cos_cache.rank != (3 if position_ids is None else 2):
        k.error(f"tables or positions of {list(lead)} do not fit {list(x.shape)}")

    def formula(b: Expr, i: Expr, d: Expr, element: Callable[[Expr], Expr]) -> Expr:
        def angle(pair: Expr) -> tuple[Expr, Expr]:
            if position_ids is None:
                return cos_cache[b, i, pair], sin_cache[b, i, pair]
            row = table_row(cos_cache, position_ids[b, i])
            return cos_cache[row, pair], sin_cache[row, pair]

        return turned(element, d, columns, width, bool(interleaved), angle)

    if x.rank == 4:
        return k.compute(x.shape, x.dtype, lambda b, h, i, d: formula(b, i, d, lambda c: x[b, h, i, c]))
    y = k.alias(x, (batch, rows, num_heads, columns))
    turn = k.compute(y.shape, x.dtype, lambda b, i, h, d: formula(b, i, d, lambda c: y[b, i, h, c]))
    return k.alias(turn, x.shape)
