# mypy: allow-untyped-defs, allow-incomplete-defs
"""Tiles of convolutions whose channels lie last: the sums of a few pixels stay in registers over all taps."""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from engine.backends.cpu.library.lane import Lane
from engine.backends.cpu.library.vectors import _SINGLE, _WORD, _counted_loop, _spread, _vector_at, _word


def _address_at(builder, address, offset):
    """The 8-byte word that lies so many bytes behind an address."""
    place = builder.add(address, _word(offset))
    return builder.load(builder.inttoptr(place, _WORD.as_pointer()), align=8)


def _add_products(builder, pixels, offset, weights, vectors, lanes, totals):
    """Sums with one number of each pixel, `offset` bytes behind its address, times a row of weights."""
    kind = ir.VectorType(_SINGLE, lanes)
    right = []
    for v in range(vectors):
        pointer = _vector_at(builder, weights, _word(4 * lanes * v), kind)
        right.append(Lane(builder, builder.load(pointer, align=4)))
    sums = []
    for r, pixel in enumerate(pixels):
        pointer = _vector_at(builder, pixel, offset, _SINGLE)
        left = Lane(builder, _spread(builder, builder.load(pointer, align=4), lanes))
        for v in range(vectors):
            total = Lane(builder, totals[r * vectors + v])
            sums.append(left.times_plus(right[v], total).value)
    return sums


def _zeros(count, lanes):
    return [ir.Constant(ir.VectorType(_SINGLE, lanes), [0.0] * lanes)] * count


def _store_sums(builder, target, sums, lanes):
    for i, total in enumerate(sums):
        builder.store(total, _vector_at(builder, target, _word(4 * lanes * i), total.type), align=4)


def make_pixel_tile(rows, vectors, lanes, unroll):
    """A tile of `rows` pixels x (`vectors` * `lanes`) output channels, channels of the input last.

    pixel_tile(table, table_step, taps, channels, weights, target): `table` holds for each tap the addresses of
    `rows` pixels' channels; those of a tap lie `table_step` bytes behind those of the tap before. `weights`
    are (tap, channel, vectors * lanes). The sums go to `target`, (rows, vectors * lanes). `unroll` channels
    are taken in a turn, for tiles that are small.
    """
    width = vectors * lanes * 4

    @intrinsic
    def pixel_tile(typing_context, table, table_step, taps, channels, weights, target):
        def generate(context, builder, signature, args):
            table, table_step, taps, channels, weights, target = args

            def add_tap(places, totals):
                pixels = [_address_at(builder, places[0], 8 * r) for r in range(rows)]

                def turns(count):
                    def body(inner, sums):
                        for u in range(count):
                            offset = builder.add(inner[0], _word(4 * u))
                            right = builder.add(inner[1], _word(width * u))
                            sums = _add_products(builder, pixels, offset, right, vectors, lanes, sums)
                        return sums

                    return body

                whole = channels if unroll == 1 else builder.sdiv(channels, _word(unroll))
                steps = [_word(4 * unroll), _word(width * unroll)]
                ends, sums = _counted_loop(
                    builder, whole, [_word(0), places[1]], steps, totals, turns(unroll)
                )
                if unroll > 1:
                    rest = builder.srem(channels, _word(unroll))
                    _, sums = _counted_loop(builder, rest, ends, [_word(4), _word(width)], sums, turns(1))
                return sums

            steps = [table_step, builder.mul(channels, _word(width))]
            zeros = _zeros(rows * vectors, lanes)
            _, sums = _counted_loop(builder, taps, [table, weights], steps, zeros, add_tap)
            _store_sums(builder, target, sums, lanes)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), generate

    return pixel_tile


def make_plane_tile(rows, vectors, lanes):
    """A tile of `rows` pixels x (`vectors` * `lanes`) output channels, channels of the input in planes.

    plane_tile(table, offsets, depth, weights, target): `table` holds the addresses of `rows` pixels, and
    `offsets` how many bytes behind a pixel's address each of its `depth` products finds its number.
    """
    width = vectors * lanes * 4

    @intrinsic
    def plane_tile(typing_context, table, offsets, depth, weights, target):
        def generate(context, builder, signature, args):
            table, offsets, depth, weights, target = args
            pixels = [_address_at(builder, table, 8 * r) for r in range(rows)]

            def body(places, totals):
                offset = _address_at(builder, places[0], 0)
                return _add_products(builder, pixels, offset, places[1], vectors, lanes, totals)

            steps = [_word(8), _word(width)]
            zeros = _zeros(rows * vectors, lanes)
            _, sums = _counted_loop(builder, depth, [offsets, weights], steps, zeros, body)
            _store_sums(builder, target, sums, lanes)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), generate

    return plane_tile
