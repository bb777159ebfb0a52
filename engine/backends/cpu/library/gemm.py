# mypy: allow-untyped-defs, allow-incomplete-defs
"""Tiles of convolutions with the channels last: the sums of a few pixels stay in registers over all taps."""

from functools import partial

from llvmlite import ir

from engine.backends.cpu.library.epilogue import Finish
from engine.backends.cpu.library.instruction import instruction
from engine.backends.cpu.library.lane import Lane
from engine.backends.cpu.library.vectors import (
    _SINGLE,
    _WORD,
    _counted_loop,
    _loop,
    _opaque,
    _spread,
    _vector_at,
    _word,
    prefetch_line,
)

# With more, the addresses of pixels do not fit into registers with what else an iteration needs; LLVM would
# then load all numbers before the first product, and lack registers for sums.
_MOST_SUMS = 22


def _address_at(builder, address, offset):
    """The 8-byte word at a byte offset from an address."""
    place = builder.add(address, _word(offset))
    return builder.load(builder.inttoptr(place, _WORD.as_pointer()), align=8)


def _keep_order(builder):
    """Loads stay on their side."""
    kind = ir.FunctionType(ir.VoidType(), [])
    builder.call(ir.InlineAsm(kind, "", "~{memory}", side_effect=True), [])


def make_ask(size):
    """ask(address): ask for `size` bytes before they are read."""

    @instruction()
    def ask(builder, address):
        for offset in range(0, size, 64):
            prefetch_line(builder, builder.add(address, _word(offset)))

    return ask


def _fixed(addresses):
    """Addresses that a loop finds in registers."""
    return [partial(lambda address: address, address) for address in addresses]


def _add_products(builder, pixels, offset, weights, vectors, lanes, totals):
    """Sums with one number of each pixel, `offset` bytes behind its address, times a row of weights.

    `pixels` are functions that give the addresses.
    """
    kind = ir.VectorType(_SINGLE, lanes)
    right = []
    for v in range(vectors):
        pointer = _vector_at(builder, weights, _word(4 * lanes * v), kind)
        right.append(Lane(builder, builder.load(pointer, align=4)))
    sums = []
    for r, pixel in enumerate(pixels):
        pointer = _vector_at(builder, pixel(), offset, _SINGLE)
        left = Lane(builder, _spread(builder, builder.load(pointer, align=4), lanes))
        for v in range(vectors):
            total = Lane(builder, totals[r * vectors + v])
            sums.append(left.times_plus(right[v], total).value)
    return sums


def _walk(builder, offset, end, step, right, right_step, sums, body):
    """A loop while `offset` is below `end`; `offset` and `right` advance by their steps each turn.

    `body` gives the sums' new values from an offset and a place on the right.
    """

    def turn(values):
        hidden = _opaque(builder, values[0])
        following = body(hidden, values[1], values[2:])
        return [builder.add(hidden, _word(step)), builder.add(values[1], _word(right_step)), *following]

    place, right_place, *totals = _loop(
        builder, lambda values: builder.icmp_signed("<", values[0], end), [offset, right, *sums], turn
    )
    return place, right_place, totals


def _zeros(count, lanes):
    return [ir.Constant(ir.VectorType(_SINGLE, lanes), [0.0] * lanes)] * count


def _store_sums(builder, target, sums, lanes, vectors=1, recipe=None):
    if recipe is not None:
        Finish(builder, recipe, target, lanes).store(sums, vectors)
        return
    for i, total in enumerate(sums):
        builder.store(total, _vector_at(builder, target, _word(4 * lanes * i), total.type), align=4)


def make_pixel_tile(rows, vectors, lanes, unroll, recipe=None):
    """A tile of `rows` pixels x (`vectors` * `lanes`) output channels, channels of the input last.

    pixel_tile(table, table_step, taps, channels, weights, target, ahead): `table` holds, for each tap, the
    addresses of `rows` pixels' channels; those of the next tap lie `table_step` bytes behind. `weights` are
    (tap, channel, vectors * lanes). The sums go to `target`, (rows, vectors * lanes). `unroll` channels are
    taken in a turn, for tiles that are small. With each, the next cache line from `ahead` on is prefetched.
    With a recipe the sums are finished in registers, and `target` has the ends that `Finish` wants.
    """
    width = vectors * lanes * 4

    @instruction()
    def pixel_tile(builder, table, table_step, taps, channels, weights, target, ahead):
        def add_tap(places, totals):
            pixels = _fixed([_address_at(builder, places[0], 8 * r) for r in range(rows)])

            def turns(count):
                def body(offset, right, sums):
                    for u in range(count):
                        place = builder.add(offset, _word(4 * u))
                        row = builder.add(right, _word(width * u))
                        prefetch_line(builder, builder.add(asked, builder.lshr(row, shift)))
                        sums = _add_products(builder, pixels, place, row, vectors, lanes, sums)
                    return sums

                return body

            def walk(offset, end, count, right, sums):
                return _walk(builder, offset, end, 4 * count, right, width * count, sums, turns(count))

            offset, right, sums = _word(0), places[1], totals
            if unroll > 1:
                offset, right, sums = walk(offset, whole, unroll, right, sums)
            return walk(offset, channel_bytes, 1, right, sums)[2]

        channel_bytes = builder.mul(channels, _word(4))
        # As many cache lines as there are products, while the weights advance by `width` bytes each.
        shift = _word(max(0, (width // 64).bit_length() - 1))
        asked = builder.sub(ahead, builder.lshr(weights, shift))
        # Of the channels taken several at a time, as many as there are whole turns.
        whole = builder.sub(channel_bytes, _word(4 * (unroll - 1)))
        steps = [table_step, builder.mul(channels, _word(width))]
        zeros = _zeros(rows * vectors, lanes)
        _, sums = _counted_loop(builder, taps, [table, weights], steps, zeros, add_tap)
        _store_sums(builder, target, sums, lanes, vectors, recipe)

    return pixel_tile


def make_plane_tile(rows, vectors, lanes, recipe=None):
    """A tile of `rows` pixels x (`vectors` * `lanes`) output channels, channels of the input in planes.

    plane_tile(table, offsets, depth, weights, target): `table` holds the addresses of `rows` pixels, and
    `offsets` how many bytes behind a pixel's address each of its `depth` products finds its number. With a
    recipe the sums are finished in registers, and `target` has the ends that `Finish` wants.
    """
    width = vectors * lanes * 4

    @instruction()
    def plane_tile(builder, table, offsets, depth, weights, target):
        def read(r):
            _keep_order(builder)
            return _address_at(builder, table, 8 * r)

        if rows * vectors > _MOST_SUMS:
            pixels = [partial(read, r) for r in range(rows)]
        else:
            pixels = _fixed([_address_at(builder, table, 8 * r) for r in range(rows)])

        def body(places, totals):
            offset = _address_at(builder, places[0], 0)
            return _add_products(builder, pixels, offset, places[1], vectors, lanes, totals)

        steps = [_word(8), _word(width)]
        zeros = _zeros(rows * vectors, lanes)
        _, sums = _counted_loop(builder, depth, [offsets, weights], steps, zeros, body)
        _store_sums(builder, target, sums, lanes, vectors, recipe)

    return plane_tile


def _added_up(builder, vector, lanes):
    """The sum of a vector's elements, by halves."""
    while lanes > 1:
        lanes //= 2
        mask = ir.VectorType(ir.IntType(32), lanes)
        halves = [
            Lane(
                builder, builder.shuffle_vector(vector, vector, ir.Constant(mask, list(range(k, k + lanes))))
            )
            for k in (0, lanes)
        ]
        vector = (halves[0] + halves[1]).value
    return builder.extract_element(vector, ir.Constant(ir.IntType(32), 0))


def make_sum_tile(rows, outputs, lanes):
    """A tile of `rows` pixels x `outputs` channels whose vectors run along the input's channels.

    sum_tile(table, table_step, taps, channels, weights, target): the table is `make_pixel_tile`'s. `weights`
    are (tap, vector of channels, outputs, lanes); where `channels`, at least `lanes`, are no whole number of
    vectors, the last vector overlaps the previous one, with weights of 0 for what that has done. The
    sums go to `target`, (rows, outputs).
    """
    kind = ir.VectorType(_SINGLE, lanes)
    width = outputs * lanes * 4

    @instruction()
    def sum_tile(builder, table, table_step, taps, channels, weights, target):
        def load(address, offset):
            pointer = _vector_at(builder, address, offset, kind)
            return Lane(builder, builder.load(pointer, align=4))

        def add_tap(places, totals):
            pixels = [_address_at(builder, places[0], 8 * r) for r in range(rows)]

            def body(offset, right, sums):
                columns = [load(right, _word(4 * lanes * j)) for j in range(outputs)]
                following = []
                for r in range(rows):
                    numbers = load(pixels[r], offset)
                    for j, column in enumerate(columns):
                        total = Lane(builder, sums[r * outputs + j])
                        following.append(numbers.times_plus(column, total).value)
                return following

            step = 4 * lanes
            _, right, sums = _walk(builder, _word(0), whole, step, places[1], width, totals, body)
            return _walk(builder, last, last_end, step, right, width, sums, body)[2]

        rest = builder.srem(channels, _word(lanes))
        whole = builder.mul(builder.sub(channels, rest), _word(4))
        last = builder.mul(builder.sub(channels, _word(lanes)), _word(4))
        last_end = builder.add(last, rest)
        vectors = builder.sdiv(builder.add(channels, _word(lanes - 1)), _word(lanes))
        steps = [table_step, builder.mul(vectors, _word(width))]
        zeros = _zeros(rows * outputs, lanes)
        _, sums = _counted_loop(builder, taps, [table, weights], steps, zeros, add_tap)
        for i, total in enumerate(sums):
            pointer = _vector_at(builder, target, _word(4 * i), _SINGLE)
            builder.store(_added_up(builder, total, lanes), pointer, align=4)

    return sum_tile
