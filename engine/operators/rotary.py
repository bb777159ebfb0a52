"""Rotary position embedding (Su et al., 2021): pairs of columns rotated by angles that grow with position."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.graph.model import CONTRIB
from engine.kernels.expr import Expr, arg, cast, clamp, eq, lit, select
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.operators.registry import operator


def rotated_element(
    element: Callable[[Expr], Expr], column: Expr, columns: int, width: int, interleaved: bool,
    angle: Callable[[Expr], tuple[Expr, Expr]],
) -> Expr:  # fmt: skip
    """x * cos - partner * sin for the first of a pair, x * cos + partner * sin for the second.

    The first `width` of the `columns` of a row are rotated; a pair is two neighbours if `interleaved`, else
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
    """How many columns of a head are rotated (0 means all), once the tables are known to fit."""
    width = width or columns
    if not 0 < width <= columns or width % 2:
        k.error(f"cannot turn {width} of a head's {columns} columns: it takes an even number of them")
    if cos.shape != sin.shape or cos.shape[-1] != width // 2:
        k.error(
            f"tables of {list(cos.shape)} and {list(sin.shape)} do not hold a cosine and a sine for each of "
            f"the {width // 2} pairs of columns"
        )
    return width


Angle = Callable[[Expr, Expr, Expr], tuple[Expr, Expr]]
"""Cosine and sine from batch, row and number of the pair."""


def rotated(k: Builder, x: Value, columns: int, width: int, interleaved: bool, angle: Angle) -> Value:
    """x with the heads of each row rotated: (batch, heads, rows, columns) or (batch, rows, hidden)."""
    by_head = x if x.rank == 4 else k.alias(x, (*x.shape[:2], x.shape[2] // max(columns, 1), columns))
    if width == columns and not interleaved:
        # Along each half of a row, neighbours meet neighbours.
        halves = k.alias(by_head, (*by_head.shape[:3], 2, columns // 2))

        def turn(b: Expr, first: Expr, second: Expr, half: Expr, pair: Expr) -> Expr:
            own, other = (halves[b, first, second, which, pair] for which in (half, lit(1) - half))
            row = second if x.rank == 4 else first
            cosine, sine = (cast(e, own.dtype) for e in angle(b, row, pair))
            return own * cosine + select(eq(half, lit(0)), -other, other) * sine

        return k.alias(k.compute(halves.shape, x.dtype, turn), x.shape)

    def formula(b: Expr, first: Expr, second: Expr, d: Expr) -> Expr:
        row = second if x.rank == 4 else first
        return rotated_element(
            lambda c: by_head[b, first, second, c], d, columns, width, interleaved,
            lambda pair: angle(b, row, pair),
        )  # fmt: skip

    turned = k.compute(by_head.shape, x.dtype, formula)
    return turned if x.rank == 4 else k.alias(turned, x.shape)


def head_columns(k: Builder, x: Value, heads: int) -> int:
    """How many columns a head has."""
    if x.rank not in (3, 4):
        k.error(f"takes (batch, heads, length, size) or (batch, length, hidden), not {list(x.shape)}")
    if x.rank == 3 and (heads < 1 or x.shape[2] % heads):
        k.error(f"{x.shape[2]} columns of {list(x.shape)} do not divide into {heads} heads (num_heads)")
    return x.shape[3] if x.rank == 4 else x.shape[2] // heads


def listed_angle(cos: Value, sin: Value, position: Callable[[Expr, Expr, Expr], Expr]) -> Angle:
    """Angles from the row of the tables that a token's position names, given batch, row and pair."""

    def angle(b: Expr, i: Expr, pair: Expr) -> tuple[Expr, Expr]:
        row = clamp(cast(position(b, i, pair), "index"), lit(0), arg(cos.shape[0] - 1))
        return cos[row, pair], sin[row, pair]

    return angle


@operator("RotaryEmbedding", since=23)
def rotary_embedding(
    k: Builder, x: Value, cos_cache: Value, sin_cache: Value, position_ids: Value | None = None, *,
    interleaved: int = 0, num_heads: int = 0, rotary_embedding_dim: int = 0,
) -> Value:  # fmt: skip
    """Rotary embedding by position ids into the tables, or by each token's own table row."""
    columns = head_columns(k, x, num_heads)
    width = checked_width(k, columns, rotary_embedding_dim, cos_cache, sin_cache)
    lead = cos_cache.shape[:-1] if position_ids is None else position_ids.shape
    if lead != (x.shape[0], x.shape[-2]) or cos_cache.rank != (3 if position_ids is None else 2):
        k.error(f"tables or positions of {list(lead)} do not fit {list(x.shape)}")
    angle: Angle = lambda b, i, pair: (cos_cache[b, i, pair], sin_cache[b, i, pair])  # noqa: E731
    if position_ids is not None:
        angle = listed_angle(cos_cache, sin_cache, lambda b, i, _: position_ids[b, i])
    return rotated(k, x, columns, width, bool(interleaved), angle)


@operator("RotaryEmbedding", since=1, domain=CONTRIB)
def rotary_embedding_contrib(
    k: Builder, x: Value, position_ids: Value, cos_cache: Value, sin_cache: Value, *, interleaved: int = 0,
    is_packed_batching: int = 0, num_heads: int = 0, rotary_embedding_dim: int = 0, scale: float = 1.0,
) -> Value:  # fmt: skip
    """As ONNX's; a single position is that of every sample's first token."""
    columns = head_columns(k, x, num_heads or x.shape[-1] // max(2 * cos_cache.shape[-1], 1))
    width = checked_width(k, columns, rotary_embedding_dim, cos_cache, sin_cache)
    if position_ids.shape not in ((1,), (x.shape[0], x.shape[-2])) or cos_cache.rank != 2:
        k.error(f"tables {list(cos_cache.shape)}, positions {list(position_ids.shape)} do not fit {x}")

    def position(b: Expr, i: Expr, _: Expr) -> Expr:
        if position_ids.rank == 2:
            return position_ids[b, i]
        return cast(position_ids[lit(0)], "index") + i

    return rotated(k, x, columns, width, bool(interleaved), listed_angle(cos_cache, sin_cache, position))


@operator("MRotaryEmbedding", domain=CONTRIB)
def m_rotary_embedding(
    k: Builder, x: Value, position_ids: Value, cos_cache: Value, sin_cache: Value, *, interleaved: int = 0,
    is_packed_batching: int = 0, mrope_layout: int = 0, mrope_section: Sequence[int], num_heads: int = 0,
    rotary_embedding_dim: int = 0, scale: float = 1.0,
) -> Value:  # fmt: skip
    """Angles by three positions of a token (time, height, width), (3, batch, rows), each for some pairs.

    Layout 0 gives each position a run of pairs, as long as its section; layout 1 lets them take turns.
    """
    columns = head_columns(k, x, num_heads or x.shape[-1] // max(2 * cos_cache.shape[-1], 1))
    width = checked_width(k, columns, rotary_embedding_dim, cos_cache, sin_cache)
    sections = [*mrope_section]
    if mrope_layout not in (0, 1) or len(sections) != 3 or sum(sections) != width // 2:
        k.error(f"mrope_section {sections} and mrope_layout {mrope_layout} do not fit {width // 2} pairs")
    if position_ids.shape != (3, x.shape[0], x.shape[-2]) or cos_cache.rank != 2:
        k.error(f"tables {list(cos_cache.shape)}, positions {list(position_ids.shape)} do not fit {x}")

    def stream(pair: Expr) -> Expr:
        if mrope_layout == 0:
            first, second = arg(sections[0]), arg(sections[0] + sections[1])
            return select(pair < first, lit(0), select(pair < second, lit(1), lit(2)))
        turn = pair % lit(3)
        limit = select(eq(turn, lit(1)), arg(3 * sections[1]), arg(3 * sections[2]))
        return select(pair < limit, turn, lit(0))

    angle = listed_angle(cos_cache, sin_cache, lambda b, i, pair: position_ids[stream(pair), b, i])
    return rotated(k, x, columns, width, bool(interleaved), angle)
