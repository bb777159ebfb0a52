# mypy: allow-untyped-defs, allow-incomplete-defs
"""Matrix products of bfloat16 and int8 by dedicated instructions.

The left side has rows of groups: 64 bytes, that is 32 bfloat16s or 64 bytes. The right side is in panels of
32 columns: for each group two tiles of 16 columns, each of which holds, for every 4 bytes of a group, those
of its 16 columns side by side. The matrix unit (AMX) and the dot products of vectors read the same layout.
"""

from functools import partial

from llvmlite import ir
from numba import types

from engine.backends.cpu.library.llvm_intrinsic import llvm_intrinsic
from engine.backends.cpu.library.matmul_tiles import _multiplied
from engine.backends.cpu.library.vectors import _counted_loop, add_products, first_lanes, read_lanes

_BYTE, _WORD32 = ir.IntType(8), ir.IntType(32)
_GROUP, _TILE, _PANEL_TILES = 64, 1024, 2048


class _BFloat(ir.Type):
    """LLVM's bfloat, which llvmlite does not name; only ever the element of a vector."""

    def __str__(self):
        return "bfloat"

    def __eq__(self, other):
        return isinstance(other, _BFloat)

    def __hash__(self):
        return hash(_BFloat)


_BF = _BFloat()
_SINGLES = ir.VectorType(ir.FloatType(), 16)
_NUMBERS = ir.VectorType(_WORD32, 16)
_BFLOATS = ir.VectorType(_BF, 32)


def _pointer(address):
    """An address as the matrix unit's instructions take it."""
    return address.like(address.at(_BYTE))


def _tile_call(name, *args):
    """An instruction of the matrix unit, of its registers' numbers, pointers and strides."""
    first, *others = args
    first.named(f"llvm.x86.{name}", ir.VoidType(), *others)


@llvm_intrinsic()
def configure_tiles(shapes):
    """Configure the matrix unit from the 64 bytes at an address."""
    _tile_call("ldtilecfg", _pointer(shapes))


@llvm_intrinsic()
def release_tiles(shapes):
    """Release the matrix unit, so that a context switch need not save it."""
    module, name = shapes.builder.module, "llvm.x86.tilerelease"
    function = module.globals.get(name) or ir.Function(module, ir.FunctionType(ir.VoidType(), []), name)
    shapes.builder.call(function, [])


def _over_groups(a, b, offsets, taps, groups, totals, multiply):
    """All groups of all taps: `multiply(a, b, totals)` gives the sums' next values."""

    def tap(places, totals):
        def group(inner, totals):
            return multiply(*inner, totals)

        starts = [a + places[0].word(), places[1]]
        return _counted_loop(groups, starts, [_GROUP, _PANEL_TILES], totals, group)[1]

    return _counted_loop(taps, [offsets, b], [8, groups * _PANEL_TILES], totals, tap)[1]


def make_matrix_product(row_tiles, column_tiles, operation):
    """product(a, a_row, offsets, taps, groups, b, c, c_row, first) on the matrix unit, 16 x 16 sums a tile.

    c = A B, or c += A B unless `first` is 0. Row r of A starts at a + r * a_row, plus offsets[t] for tap t.
    B is a panel. All strides are bytes. `operation` is the unit's instruction.
    """

    grid = [(r, v) for r in range(row_tiles) for v in range(column_tiles)]

    @llvm_intrinsic()
    def product(a, a_row, offsets, taps, groups, b, c, c_row, first):
        step = a.constant(_GROUP)
        sums, lefts, rights = ([a.of(_BYTE, k) for k in range(*ends)] for ends in ((0, 4), (4, 6), (6, 8)))

        def at(r, v):
            return _pointer(c + c_row * (16 * r) + _GROUP * v)

        with a.builder.if_else(first.equals(0).value) as (start, go_on):
            with start:
                for r, v in grid:
                    _tile_call("tilezero", sums[2 * r + v])
            with go_on:
                for r, v in grid:
                    _tile_call("tileloadd64", sums[2 * r + v], at(r, v), c_row)

        def multiply(a_place, b_place, totals):
            for v in range(column_tiles):
                _tile_call("tileloadd64", rights[v], _pointer(b_place + _TILE * v), step)
            for r in range(row_tiles):
                _tile_call("tileloadd64", lefts[r], _pointer(a_place + a_row * (16 * r)), a_row)
                for v in range(column_tiles):
                    _tile_call(operation, sums[2 * r + v], lefts[r], rights[v])
            return []

        _over_groups(a, b, offsets, taps, groups, [], multiply)
        for r, v in grid:
            _tile_call("tilestored64", sums[2 * r + v], at(r, v), c_row)

    return product


def _dot_bf16(left, right, total):
    pair = [x.seen_as(_BFLOATS) for x in (left, right)]
    return total.named("llvm.x86.avx512bf16.dpbf16ps.512", _SINGLES, *pair)


def _as_bf16(low, high):
    """Two vectors of float32s as bfloat16s, rounded to nearest, ties to even."""
    return high.named("llvm.x86.avx512bf16.cvtne2ps2bf16.512", _BFLOATS, low)


def make_vector_product(rows, column_tiles, bytewise, lanes):
    """product(...) as `make_matrix_product` makes it, with the dot products of vectors.

    Of bytes the sums are int32s, else float32s.
    """
    element = _WORD32 if bytewise else ir.FloatType()
    dot = partial(_multiplied, "bytes") if bytewise else _dot_bf16
    kind, numbers = ir.VectorType(element, lanes), ir.VectorType(_WORD32, lanes)
    vectors = column_tiles * 16 // lanes
    # Where the vectors of a row of columns lie, in a panel and among the sums.
    places_in_panel = [_TILE * (v * lanes // 16) + 4 * (v * lanes % 16) for v in range(vectors)]

    @llvm_intrinsic()
    def product(a, a_row, offsets, taps, groups, b, c, c_row, first):
        def multiply(a_place, b_place, totals):
            def quad(places, totals):
                right = [(places[1] + place).read(numbers) for place in places_in_panel]
                starts = (places[0] + a_row * r for r in range(rows))
                lefts = (start.read(ir.FloatType(), align=2).spread(lanes) for start in starts)
                return add_products(lefts, right, totals, dot)

            return _counted_loop(groups.constant(16), [a_place, b_place], [4, _GROUP], totals, quad)[1]

        zeros = [a.of(kind, 0)] * (rows * vectors)
        totals = _over_groups(a, b, offsets, taps, groups, zeros, multiply)
        places = [c + c_row * r + 4 * lanes * v for r in range(rows) for v in range(vectors)]
        with a.builder.if_else(first.equals(0).value) as (store, add):
            with store:
                for place, total in zip(places, totals, strict=True):
                    place.write(total)
            with add:
                for place, total in zip(places, totals, strict=True):
                    place.write(place.read(kind) + total)

    return product


def _part(source, count, vectors):
    """`count` float32s as vectors, padded with zeros. Reads nothing beyond them."""
    zeros = count.of(_SINGLES, 0.0)
    starts = [(source + _GROUP * v, count - 16 * v) for v in range(vectors)]
    return [read_lanes(place, first_lanes(left, 16), zeros) for place, left in starts]


def _to_nearest(part, lanes):
    """16 float32s as int32s; the smallest one for NaN, for which LLVM's own conversion gives anything."""
    if lanes == 16:
        others = part.of(_NUMBERS, 0), part.of(ir.IntType(16), -1), part.of(_WORD32, 4)
        return part.named("llvm.x86.avx512.mask.cvtps2dq.512", _NUMBERS, *others)
    halves = [
        part.shuffled(part, range(first, first + 8)).named(
            "llvm.x86.avx.cvt.ps2dq.256", ir.VectorType(_WORD32, 8)
        )
        for first in (0, 8)
    ]
    return halves[0].shuffled(halves[1], range(16))


def _within(number, low, high):
    number = number.where(number > low, low)
    return number.where(number < high, high)


def _spread_number(number):
    """The low 32 bits of a word in every lane."""
    return number.to(_WORD32).as_float32().spread(16).seen_as(_NUMBERS)


def make_rounding(bytewise, lanes):
    """round_group(target, source, factor, zero) and round_part(...): quantise 64 or fewer float32s."""
    vectors = 4 if bytewise else 2

    def store(target, parts, factor, zero):
        if not bytewise:
            target.write(_as_bf16(*parts).seen_as(_NUMBERS), align=2)
            return
        scale, shift = factor.spread(16), _spread_number(zero)
        for v, part in enumerate(parts):
            nearest = _within(_to_nearest(part * scale, lanes), -65536, 65536)
            (target + 16 * v).write(_within(nearest + shift, 0, 255).to(_BYTE), align=1)

    @llvm_intrinsic(types.int64, types.int64, types.float32, types.int64)
    def round_group(target, source, factor, zero):
        store(target, source.read_row(_SINGLES, vectors), factor, zero)

    @llvm_intrinsic(*[types.int64] * 3, types.float32, types.int64)
    def round_part(target, source, count, factor, zero):
        store(target, _part(source, count, vectors), factor, zero)

    return round_group, round_part


@llvm_intrinsic()
def fill_group(target, byte):
    """Fill 64 bytes with one value."""
    target.write(byte.to(_BYTE).spread(64), align=1)


def _widen(state, loaded):
    """Have the range at `state` (16 smallest, 16 largest) hold float32s; NaN is left out."""
    for k, symbol in enumerate("<>"):
        place = state + _GROUP * k
        best = place.read(_SINGLES)
        for values in loaded:
            best = values.where(values.compare(symbol, best), best)
        place.write(best)


@llvm_intrinsic()
def widen_range(state, source):
    """`_widen` by 64 float32s."""
    _widen(state, source.read_row(_SINGLES, 4))


@llvm_intrinsic()
def widen_range_part(state, source, count):
    """`_widen` by up to 64 float32s."""
    _widen(state, _part(source, count, 4))


@llvm_intrinsic(types.int64, types.float32, *[types.int64] * 3)
def scale_sums(sums, step, zero, scales, totals):
    """16 int32 sums minus `zero` times their totals, times `step` and their scales, as float32s in place."""
    number = sums.read(_NUMBERS) - totals.read(_NUMBERS) * _spread_number(zero)
    sums.write(number.to(ir.FloatType()) * (scales.read(_SINGLES) * step.spread(16)))


@llvm_intrinsic()
def interleave_three(target, source, plane):
    """16 float32s of each of three planes, `plane` bytes apart, as 16 triples of bfloat16s."""
    shorts = ir.VectorType(ir.IntType(16), 32)
    loaded = [(source + plane * c).read(_SINGLES) for c in range(3)]
    first, second = _as_bf16(*loaded[:2]), _as_bf16(loaded[2], loaded[2])
    # Triple k is made of elements k and 16 + k of the first vector and k of the second.
    places = [16 * c + k for k in range(16) for c in range(3)]
    target.write(first.seen_as(shorts).shuffled(second.seen_as(shorts), places), align=2)
