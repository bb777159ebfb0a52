# mypy: allow-untyped-defs, allow-incomplete-defs
"""Products of bfloat16 and of bytes by the instructions made for them, as explicit code.

The left side has rows of groups: 64 bytes, that is 32 bfloat16s or 64 bytes. The right side lies in panels of
32 columns: for each group two tiles of 16 columns, each of which holds, for every 4 bytes of a group, those
of its 16 columns side by side. The matrix unit (AMX) and the dot products of vectors read the same layout.
"""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from engine.backends.cpu.library.vectors import _counted_loop, _spread, _vector_at, _word

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


def _call(builder, name, result, kinds, args):
    function = builder.module.globals.get(name)
    if function is None:
        function = ir.Function(builder.module, ir.FunctionType(result, kinds), name)
    return builder.call(function, args)


def _tile_call(builder, name, *args):
    """An instruction of the matrix unit: numbers are registers, the rest values."""
    values = [ir.Constant(_BYTE, a) if isinstance(a, int) else a for a in args]
    _call(builder, f"llvm.x86.{name}", ir.VoidType(), [v.type for v in values], values)


@intrinsic
def configure_tiles(typing_context, shapes):
    """Set the matrix unit up as the 64 bytes at an address say."""

    def generate(context, builder, signature, args):
        _tile_call(builder, "ldtilecfg", builder.inttoptr(args[0], _POINTER))
        return context.get_dummy_value()

    return types.void(types.int64), generate


@intrinsic
def release_tiles(typing_context):
    """Leave the matrix unit unused, so that a switch of threads need not save it."""

    def generate(context, builder, signature, args):
        _tile_call(builder, "tilerelease")
        return context.get_dummy_value()

    return types.void(), generate


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

    @intrinsic
    def product(typing_context, a, a_row, offsets, taps, groups, b, c, c_row, first):
        def generate(context, builder, signature, args):
            a, a_row, offsets, taps, groups, b, c, c_row, first = args
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
            return context.get_dummy_value()

        return types.void(*[types.int64] * 9), generate

    return product


def _dot_bf16(builder, total, left, right):
    wide = ir.VectorType(_BF, 32)
    pair = [builder.bitcast(x, wide) for x in (left, right)]
    return _call(
        builder, "llvm.x86.avx512bf16.dpbf16ps.512", _SINGLES, [_SINGLES, wide, wide], [total, *pair]
    )


def make_vector_product(rows, column_tiles):
    """product(...) as `make_matrix_product` makes it, of bfloat16 with the dot products of vectors."""

    @intrinsic
    def product(typing_context, a, a_row, offsets, taps, groups, b, c, c_row, first):
        def generate(context, builder, signature, args):
            a, a_row, offsets, taps, groups, b, c, c_row, first = args

            def multiply(a_place, b_place, totals):
                def quad(places, totals):
                    right = [
                        builder.load(_vector_at(builder, places[1], _word(_TILE * v), _NUMBERS), align=4)
                        for v in range(column_tiles)
                    ]
                    sums = []
                    for r in range(rows):
                        pointer = _vector_at(builder, places[0], builder.mul(a_row, _word(r)), ir.FloatType())
                        left = _spread(builder, builder.load(pointer, align=2), 16)
                        for v in range(column_tiles):
                            sums.append(_dot_bf16(builder, totals[r * column_tiles + v], left, right[v]))
                    return sums

                steps = [_word(4), _word(_GROUP)]
                _, totals = _counted_loop(builder, _word(16), [a_place, b_place], steps, totals, quad)
                return totals

            zeros = [ir.Constant(_SINGLES, [0.0] * 16)] * (rows * column_tiles)
            totals = _over_groups(builder, a, b, offsets, taps, groups, zeros, multiply)
            pointers = []
            for r in range(rows):
                row = builder.add(c, builder.mul(c_row, _word(r)))
                pointers += [
                    _vector_at(builder, row, _word(_GROUP * v), _SINGLES) for v in range(column_tiles)
                ]
            with builder.if_else(builder.icmp_signed("==", first, _word(0))) as (store, add):
                with store:
                    for pointer, total in zip(pointers, totals, strict=True):
                        builder.store(total, pointer, align=4)
                with add:
                    for pointer, total in zip(pointers, totals, strict=True):
                        builder.store(builder.fadd(builder.load(pointer, align=4), total), pointer, align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 9), generate

    return product


def _store_bf16(builder, target, halves):
    """32 float32s as bfloat16s, rounded to nearest, ties to even."""
    wide = ir.VectorType(_BF, 32)
    name = "llvm.x86.avx512bf16.cvtne2ps2bf16.512"
    narrow = _call(builder, name, wide, [_SINGLES, _SINGLES], [halves[1], halves[0]])
    kind = _NUMBERS
    builder.store(builder.bitcast(narrow, kind), _vector_at(builder, target, _word(0), kind), align=2)


@intrinsic
def narrow_group(typing_context, target, source):
    """32 float32s as bfloat16s."""

    def generate(context, builder, signature, args):
        halves = [
            builder.load(_vector_at(builder, args[1], _word(_GROUP * half), _SINGLES), align=4)
            for half in (0, 1)
        ]
        _store_bf16(builder, args[0], halves)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def narrow_part(typing_context, target, source, count):
    """`count` float32s, fewer than 32, as bfloat16s, and zeros up to 32. Nothing behind them is read."""

    def generate(context, builder, signature, args):
        halves = []
        bits = ir.VectorType(ir.IntType(1), 16)
        zeros = ir.Constant(_SINGLES, [0.0] * 16)
        count = builder.trunc(args[2], _WORD32)
        limit = builder.bitcast(_spread(builder, builder.bitcast(count, ir.FloatType()), 16), _NUMBERS)
        for half in (0, 1):
            places = ir.Constant(_NUMBERS, [ir.Constant(_WORD32, 16 * half + k) for k in range(16)])
            inside = builder.icmp_signed("<", places, limit)
            pointer = _vector_at(builder, args[1], _word(_GROUP * half), _SINGLES)
            kinds = [pointer.type, _WORD32, bits, _SINGLES]
            values = [pointer, ir.Constant(_WORD32, 4), inside, zeros]
            halves.append(_call(builder, "llvm.masked.load.v16f32.p0", _SINGLES, kinds, values))
        _store_bf16(builder, args[0], halves)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic
def zero_group(typing_context, target):
    """64 bytes of zeros."""

    def generate(context, builder, signature, args):
        zeros = ir.Constant(_NUMBERS, [ir.Constant(_WORD32, 0)] * 16)
        builder.store(zeros, _vector_at(builder, args[0], _word(0), _NUMBERS), align=2)
        return context.get_dummy_value()

    return types.void(types.int64), generate


@intrinsic
def interleave_three(typing_context, target, source, plane):
    """16 float32s of each of three planes, `plane` bytes apart, as 16 triples of bfloat16s."""

    def generate(context, builder, signature, args):
        shorts = ir.VectorType(ir.IntType(16), 32)
        wide = ir.VectorType(_BF, 32)
        loaded = [
            builder.load(_vector_at(builder, args[1], builder.mul(args[2], _word(c)), _SINGLES), align=4)
            for c in range(3)
        ]
        name = "llvm.x86.avx512bf16.cvtne2ps2bf16.512"
        kinds = [_SINGLES, _SINGLES]
        first = _call(builder, name, wide, kinds, [loaded[1], loaded[0]])
        second = _call(builder, name, wide, kinds, [loaded[2], loaded[2]])
        pair = [builder.bitcast(x, shorts) for x in (first, second)]
        # Triple k is made of elements k and 16 + k of the first vector and k of the second.
        places = [16 * c + k for k in range(16) for c in range(3)]
        mask = ir.Constant(ir.VectorType(_WORD32, 48), [ir.Constant(_WORD32, p) for p in places])
        mixed = builder.shuffle_vector(*pair, mask)
        builder.store(mixed, _vector_at(builder, args[0], _word(0), mixed.type), align=2)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate
