# mypy: allow-untyped-defs, allow-incomplete-defs
"""Products of bfloat16 and of bytes by the instructions made for them, as explicit code.

The left side has rows of groups: 64 bytes, that is 32 bfloat16s or 64 bytes. The right side is in panels of
32 columns: for each group two tiles of 16 columns, each of which holds, for every 4 bytes of a group, those
of its 16 columns side by side. The matrix unit (AMX) and the dot products of vectors read the same layout.
"""

from llvmlite import ir
from numba import types

from engine.backends.cpu.library.instruction import instruction
from engine.backends.cpu.library.vectors import _counted_loop, _processor_call, _spread, _vector_at, _word

_BYTE, _WORD32, _LONG = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_POINTER = _BYTE.as_pointer()
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


def _tile_call(builder, name, *args):
    """An instruction of the matrix unit: numbers are registers, the rest values."""
    values = [ir.Constant(_BYTE, a) if isinstance(a, int) else a for a in args]
    _processor_call(builder, f"llvm.x86.{name}", ir.VoidType(), [v.type for v in values], values)


@instruction()
def configure_tiles(builder, shapes):
    """Set the matrix unit up as the 64 bytes at an address say."""
    _tile_call(builder, "ldtilecfg", builder.inttoptr(shapes, _POINTER))


@instruction()
def release_tiles(builder):
    """Leave the matrix unit unused, so that a switch of threads need not save it."""
    _tile_call(builder, "tilerelease")


def _over_groups(builder, a, b, offsets, taps, groups, totals, multiply):
    """All groups of all taps: `multiply(a, b, totals)` gives the sums' next values."""

    def tap(places, totals):
        offset = builder.load(builder.inttoptr(places[0], _LONG.as_pointer()), align=8)
        start = builder.add(a, offset)

        def group(inner, totals):
            return multiply(inner[0], inner[1], totals)

        steps = [_word(_GROUP), _word(_PANEL_TILES)]
        _, totals = _counted_loop(builder, groups, [start, places[1]], steps, totals, group)
        return totals

    steps = [_word(8), builder.mul(groups, _word(_PANEL_TILES))]
    _, totals = _counted_loop(builder, taps, [offsets, b], steps, totals, tap)
    return totals


def make_matrix_product(row_tiles, column_tiles, operation):
    """product(a, a_row, offsets, taps, groups, b, c, c_row, first) on the matrix unit, 16 x 16 sums a tile.

    c = A B, or c += A B unless `first` is 0. Row r of A starts at a + r * a_row, plus offsets[t] for tap t.
    B is a panel. All strides are bytes. `operation` is the unit's instruction.
    """

    @instruction()
    def product(builder, a, a_row, offsets, taps, groups, b, c, c_row, first):
        grid = [(r, v) for r in range(row_tiles) for v in range(column_tiles)]

        def sums_at(r, v):
            row = builder.add(c, builder.mul(c_row, _word(16 * r)))
            return builder.inttoptr(builder.add(row, _word(_GROUP * v)), _POINTER)

        with builder.if_else(builder.icmp_signed("==", first, _word(0))) as (start, go_on):
            with start:
                for r, v in grid:
                    _tile_call(builder, "tilezero", 2 * r + v)
            with go_on:
                for r, v in grid:
                    _tile_call(builder, "tileloadd64", 2 * r + v, sums_at(r, v), c_row)

        def multiply(a_place, b_place, totals):
            for v in range(column_tiles):
                source = builder.inttoptr(builder.add(b_place, _word(_TILE * v)), _POINTER)
                _tile_call(builder, "tileloadd64", 6 + v, source, _word(_GROUP))
            for r in range(row_tiles):
                row = builder.add(a_place, builder.mul(a_row, _word(16 * r)))
                _tile_call(builder, "tileloadd64", 4 + r, builder.inttoptr(row, _POINTER), a_row)
                for v in range(column_tiles):
                    _tile_call(builder, operation, 2 * r + v, 4 + r, 6 + v)
            return []

        _over_groups(builder, a, b, offsets, taps, groups, [], multiply)
        for r, v in grid:
            _tile_call(builder, "tilestored64", 2 * r + v, sums_at(r, v), c_row)

    return product


def _dot_bytes(builder, total, left, right):
    """Four products of an unsigned byte with a signed one on top of each sum; AVX512_VNNI or AVX-VNNI."""
    kind = total.type
    wide = ir.VectorType(_BYTE, 4 * kind.count)
    pair = [builder.bitcast(x, wide) for x in (left, right)]
    name = f"llvm.x86.avx512.vpdpbusd.{32 * kind.count}"
    return _processor_call(builder, name, kind, [kind, wide, wide], [total, *pair])


def _dot_bf16(builder, total, left, right):
    wide = ir.VectorType(_BF, 32)
    pair = [builder.bitcast(x, wide) for x in (left, right)]
    return _processor_call(
        builder, "llvm.x86.avx512bf16.dpbf16ps.512", _SINGLES, [_SINGLES, wide, wide], [total, *pair]
    )


def make_vector_product(rows, column_tiles, bytewise, lanes):
    """product(...) as `make_matrix_product` makes it, with the dot products of vectors.

    Of bytes the sums are int32s, else float32s.
    """
    dot, element, zero = (_dot_bytes, _WORD32, 0) if bytewise else (_dot_bf16, ir.FloatType(), 0.0)
    kind, numbers = ir.VectorType(element, lanes), ir.VectorType(_WORD32, lanes)
    vectors = column_tiles * 16 // lanes
    # Where the vectors of a row of columns lie, in a panel and among the sums.
    places_in_panel = [_TILE * (v * lanes // 16) + 4 * (v * lanes % 16) for v in range(vectors)]

    @instruction()
    def product(builder, a, a_row, offsets, taps, groups, b, c, c_row, first):
        def multiply(a_place, b_place, totals):
            def quad(places, totals):
                right = [
                    builder.load(_vector_at(builder, places[1], _word(place), numbers), align=4)
                    for place in places_in_panel
                ]
                sums = []
                for r in range(rows):
                    pointer = _vector_at(builder, places[0], builder.mul(a_row, _word(r)), ir.FloatType())
                    left = _spread(builder, builder.load(pointer, align=2), lanes)
                    for v in range(vectors):
                        sums.append(dot(builder, totals[r * vectors + v], left, right[v]))
                return sums

            steps = [_word(4), _word(_GROUP)]
            _, totals = _counted_loop(builder, _word(16), [a_place, b_place], steps, totals, quad)
            return totals

        zeros = [ir.Constant(kind, [ir.Constant(element, zero)] * lanes)] * (rows * vectors)
        totals = _over_groups(builder, a, b, offsets, taps, groups, zeros, multiply)
        pointers = []
        for r in range(rows):
            row = builder.add(c, builder.mul(c_row, _word(r)))
            pointers += [_vector_at(builder, row, _word(4 * lanes * v), kind) for v in range(vectors)]
        with builder.if_else(builder.icmp_signed("==", first, _word(0))) as (store, add):
            with store:
                for pointer, total in zip(pointers, totals, strict=True):
                    builder.store(total, pointer, align=4)
            with add:
                add_up = builder.add if bytewise else builder.fadd
                for pointer, total in zip(pointers, totals, strict=True):
                    builder.store(add_up(builder.load(pointer, align=4), total), pointer, align=4)

    return product


def _store_bf16(builder, target, halves):
    """32 float32s as bfloat16s, rounded to nearest, ties to even."""
    wide = ir.VectorType(_BF, 32)
    name = "llvm.x86.avx512bf16.cvtne2ps2bf16.512"
    narrow = _processor_call(builder, name, wide, [_SINGLES, _SINGLES], [halves[1], halves[0]])
    kind = _NUMBERS
    builder.store(builder.bitcast(narrow, kind), _vector_at(builder, target, _word(0), kind), align=2)


def _part(builder, source, count, vectors):
    """`count` float32s as vectors, padded with zeros. Reads nothing beyond them."""
    bits = ir.VectorType(ir.IntType(1), 16)
    zeros = ir.Constant(_SINGLES, [0.0] * 16)
    limit = _spread_number(builder, count)
    found = []
    for v in range(vectors):
        places = ir.Constant(_NUMBERS, [ir.Constant(_WORD32, 16 * v + k) for k in range(16)])
        inside = builder.icmp_signed("<", places, limit)
        pointer = _vector_at(builder, source, _word(_GROUP * v), _SINGLES)
        kinds = [pointer.type, _WORD32, bits, _SINGLES]
        values = [pointer, ir.Constant(_WORD32, 4), inside, zeros]
        found.append(_processor_call(builder, "llvm.masked.load.v16f32.p0", _SINGLES, kinds, values))
    return found


def _whole(builder, source, vectors):
    pointers = [_vector_at(builder, source, _word(_GROUP * v), _SINGLES) for v in range(vectors)]
    return [builder.load(pointer, align=4) for pointer in pointers]


def _to_nearest(builder, part, lanes):
    """16 float32s as int32s; the smallest one for NaN, for which LLVM's own conversion gives anything."""
    if lanes == 16:
        kinds = [_SINGLES, _NUMBERS, ir.IntType(16), _WORD32]
        zeros = ir.Constant(_NUMBERS, [ir.Constant(_WORD32, 0)] * 16)
        values = [part, zeros, ir.Constant(ir.IntType(16), -1), ir.Constant(_WORD32, 4)]
        return _processor_call(builder, "llvm.x86.avx512.mask.cvtps2dq.512", _NUMBERS, kinds, values)
    half, number = ir.VectorType(ir.FloatType(), 8), ir.VectorType(_WORD32, 8)
    halves = []
    for first in (0, 8):
        mask = ir.Constant(number, [ir.Constant(_WORD32, first + k) for k in range(8)])
        chosen = builder.shuffle_vector(part, part, mask)
        halves.append(_processor_call(builder, "llvm.x86.avx.cvt.ps2dq.256", number, [half], [chosen]))
    mask = ir.Constant(_NUMBERS, [ir.Constant(_WORD32, k) for k in range(16)])
    return builder.shuffle_vector(*halves, mask)


def _within(builder, number, low, high):
    for symbol, bound in ((">", low), ("<", high)):
        limit = ir.Constant(_NUMBERS, [ir.Constant(_WORD32, bound)] * 16)
        number = builder.select(builder.icmp_signed(symbol, number, limit), number, limit)
    return number


def _spread_number(builder, number):
    """The low 32 bits of a word in every lane."""
    bits = builder.bitcast(builder.trunc(number, _WORD32), ir.FloatType())
    return builder.bitcast(_spread(builder, bits, 16), _NUMBERS)


def _store_bytes(builder, target, parts, factor, zero, lanes):
    """64 float32s times `factor`, rounded to nearest, plus `zero`, as saturated bytes."""
    scale, shift = _spread(builder, factor, 16), _spread_number(builder, zero)
    for v, part in enumerate(parts):
        nearest = _within(builder, _to_nearest(builder, builder.fmul(part, scale), lanes), -65536, 65536)
        number = _within(builder, builder.add(nearest, shift), 0, 255)
        narrow = builder.trunc(number, ir.VectorType(_BYTE, 16))
        builder.store(narrow, _vector_at(builder, target, _word(16 * v), narrow.type), align=1)


def make_rounding(bytewise, lanes):
    """round_group(target, source, factor, zero): a group of 64 bytes out of float32s; round_part(target,
    source, count, factor, zero): out of fewer, the others are zero.
    """
    vectors = 4 if bytewise else 2

    def store(builder, target, parts, factor, zero):
        if bytewise:
            _store_bytes(builder, target, parts, factor, zero, lanes)
        else:
            _store_bf16(builder, target, parts)

    @instruction(types.int64, types.int64, types.float32, types.int64)
    def round_group(builder, target, source, factor, zero):
        store(builder, target, _whole(builder, source, vectors), factor, zero)

    @instruction(*[types.int64] * 3, types.float32, types.int64)
    def round_part(builder, target, source, count, factor, zero):
        store(builder, target, _part(builder, source, count, vectors), factor, zero)

    return round_group, round_part


@instruction()
def fill_group(builder, target, byte):
    """64 equal bytes."""
    kind = ir.VectorType(_BYTE, 64)
    one = builder.insert_element(
        ir.Constant(kind, ir.Undefined), builder.trunc(byte, _BYTE), ir.Constant(_WORD32, 0)
    )
    mask = ir.Constant(ir.VectorType(_WORD32, 64), [0] * 64)
    equal = builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), mask)
    builder.store(equal, _vector_at(builder, target, _word(0), kind), align=1)


def _make_widening(part):
    """Lets the range at `state` (16 smallest, 16 largest) hold 64 float32s; NaN is left out."""

    def generate_with(builder, state, loaded):
        for k, symbol in enumerate("<>"):
            pointer = _vector_at(builder, state, _word(_GROUP * k), _SINGLES)
            best = builder.load(pointer, align=4)
            for values in loaded:
                best = builder.select(builder.fcmp_ordered(symbol, values, best), values, best)
            builder.store(best, pointer, align=4)

    if part:

        @instruction()
        def widen(builder, state, source, count):
            generate_with(builder, state, _part(builder, source, count, 4))

    else:

        @instruction()
        def widen(builder, state, source):
            generate_with(builder, state, _whole(builder, source, 4))

    return widen


widen_range, widen_range_part = _make_widening(False), _make_widening(True)


@instruction(types.int64, types.float32, *[types.int64] * 3)
def scale_sums(builder, sums, step, zero, scales, totals):
    """16 int32 sums minus `zero` times their totals, times `step` and their scales, as float32s in place."""
    place = _vector_at(builder, sums, _word(0), _NUMBERS)
    total = builder.load(_vector_at(builder, totals, _word(0), _NUMBERS), align=4)
    shift = _spread_number(builder, zero)
    number = builder.sub(builder.load(place, align=4), builder.mul(total, shift))
    scale = builder.load(_vector_at(builder, scales, _word(0), _SINGLES), align=4)
    value = builder.fmul(builder.sitofp(number, _SINGLES), builder.fmul(scale, _spread(builder, step, 16)))
    builder.store(value, _vector_at(builder, sums, _word(0), _SINGLES), align=4)


@instruction()
def interleave_three(builder, target, source, plane):
    """16 float32s of each of three planes, `plane` bytes apart, as 16 triples of bfloat16s."""
    shorts = ir.VectorType(ir.IntType(16), 32)
    wide = ir.VectorType(_BF, 32)
    loaded = [
        builder.load(_vector_at(builder, source, builder.mul(plane, _word(c)), _SINGLES), align=4)
        for c in range(3)
    ]
    name = "llvm.x86.avx512bf16.cvtne2ps2bf16.512"
    kinds = [_SINGLES, _SINGLES]
    first = _processor_call(builder, name, wide, kinds, [loaded[1], loaded[0]])
    second = _processor_call(builder, name, wide, kinds, [loaded[2], loaded[2]])
    pair = [builder.bitcast(x, shorts) for x in (first, second)]
    # Triple k is made of elements k and 16 + k of the first vector and k of the second.
    places = [16 * c + k for k in range(16) for c in range(3)]
    mask = ir.Constant(ir.VectorType(_WORD32, 48), [ir.Constant(_WORD32, p) for p in places])
    mixed = builder.shuffle_vector(*pair, mask)
    builder.store(mixed, _vector_at(builder, target, _word(0), mixed.type), align=2)
