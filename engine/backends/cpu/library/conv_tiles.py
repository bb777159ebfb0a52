# mypy: allow-untyped-defs, allow-incomplete-defs
"""Register tiles of NHWC convolutions: the sums of a few pixels stay in registers over all taps."""

from functools import partial

from llvmlite import ir

from engine.backends.cpu.library.epilogue import EpilogueWriter
from engine.backends.cpu.library.llvm_intrinsic import llvm_intrinsic
from engine.backends.cpu.library.vectors import (
    _SINGLE,
    _WORD,
    _counted_loop,
    _folded,
    _loop,
    _opaque,
    add_products,
    prefetch_line,
)

# With more, the addresses of pixels do not fit into registers with what else an iteration needs; LLVM would
# then load all numbers before the first product, and lack registers for sums of several vectors.
_MOST_PIXELS = 8


def _keep_order(builder):
    """A compiler barrier: loads are not moved across it."""
    kind = ir.FunctionType(ir.VoidType(), [])
    builder.call(ir.InlineAsm(kind, "", "~{memory}", side_effect=True), [])


def make_prefetch(size):
    """prefetch(address): prefetch `size` bytes."""

    @llvm_intrinsic()
    def prefetch(address):
        for offset in range(0, size, 64):
            prefetch_line(address + offset)

    return prefetch


def _fixed(addresses):
    """Addresses that a loop finds in registers."""
    return [partial(lambda address: address, address) for address in addresses]


def _multiply_pixels(pixels, offset, weights, vectors, lanes, totals):
    """Sums with one number of each pixel, `offset` bytes behind its address, times a row of weights.

    `pixels` are functions that give the addresses.
    """
    right = weights.read_row(ir.VectorType(_SINGLE, lanes), vectors)
    lefts = ((pixel() + offset).read(_SINGLE).spread(lanes) for pixel in pixels)
    return add_products(lefts, right, totals)


def _walk(offset, end, step, right, right_step, sums, body):
    """A loop while `offset` is below `end`; `offset` and `right` advance by their steps each iteration.

    `body` gives the sums' new values from an offset and a place on the right.
    """

    def iterate(values):
        hidden = _opaque(values[0])
        following = body(hidden, values[1], values[2:])
        return [hidden + step, values[1] + right_step, *following]

    place, right_place, *totals = _loop(lambda values: values[0] < end, [offset, right, *sums], iterate)
    return place, right_place, totals


def _are_all(places, rows, address):
    """Whether the `rows` words at `places` are all `address`."""
    count = 1 << (rows.bit_length() - 1)
    wanted = address.spread(count)
    # Two vectors that overlap have all of them.
    first, last = (places + 8 * at for at in (0, rows - count))
    differing = [place.read(ir.VectorType(_WORD, count), 8) ^ wanted for place in (first, last)]
    return _folded(differing[0] | differing[1], lambda low, high: low | high).equals(0)


def _zeros(count, lanes, like):
    return [like.of(ir.VectorType(_SINGLE, lanes), 0.0)] * count


def _store_sums(target, sums, lanes, vectors, recipe):
    if recipe is not None:
        EpilogueWriter(recipe, target, lanes).store(sums, vectors)
    else:
        target.write_row(sums)


def make_pixel_tile(rows, vectors, lanes, unroll, recipe=None):
    """A tile of `rows` pixels x (`vectors` * `lanes`) output channels, channels of the input last.

    pixel_tile(table, table_step, taps, channels, weights, target, ahead, zeros): `table` holds, for each tap,
    the addresses of `rows` pixels' channels; those of the next tap lie `table_step` bytes behind. A tap that
    finds `zeros` for all of them is skipped. `weights` are (tap, channel, vectors * lanes). The sums go to
    `target`, (rows, vectors * lanes). `unroll` channels are taken in an iteration of small tiles. With each,
    the next cache line from `ahead` on is prefetched. With a recipe the sums are finished in registers, and
    `target` has the ends that `EpilogueWriter` wants.
    """
    width = vectors * lanes * 4

    @llvm_intrinsic()
    def pixel_tile(table, table_step, taps, channels, weights, target, ahead, zeros):
        def add_tap(places, totals):
            pixels = _fixed([places[0].word(r) for r in range(rows)])

            def unrolled(count):
                def body(offset, right, sums):
                    for u in range(count):
                        row = right + width * u
                        prefetch_line(wanted + (row >> shift))
                        sums = _multiply_pixels(pixels, offset + 4 * u, row, vectors, lanes, sums)
                    return sums

                return body

            def walk(offset, end, count, right, sums):
                return _walk(offset, end, 4 * count, right, width * count, sums, unrolled(count))

            # A tap outside begins where the others end.
            offset = channel_bytes.where(_are_all(places[0], rows, zeros), 0)
            right, sums = places[1], totals
            if unroll > 1:
                offset, right, sums = walk(offset, whole, unroll, right, sums)
            return walk(offset, channel_bytes, 1, right, sums)[2]

        channel_bytes = channels * 4
        # As many cache lines as there are products, while the weights advance by `width` bytes each.
        shift = max(0, (width // 64).bit_length() - 1)
        wanted = ahead - (weights >> shift)
        # Of the channels taken several at a time, as many as there are whole iterations.
        whole = channel_bytes - 4 * (unroll - 1)
        none = _zeros(rows * vectors, lanes, taps)
        _, sums = _counted_loop(taps, [table, weights], [table_step, channels * width], none, add_tap)
        _store_sums(target, sums, lanes, vectors, recipe)

    return pixel_tile


def make_plane_tile(rows, vectors, lanes, recipe=None):
    """A tile of `rows` pixels x (`vectors` * `lanes`) output channels, channels of the input in planes.

    plane_tile(table, offsets, depth, weights, target): `table` holds the addresses of `rows` pixels, and
    `offsets` how many bytes behind a pixel's address each of its `depth` products finds its number. With a
    recipe the sums are finished in registers, and `target` has the ends that `EpilogueWriter` wants.
    """
    width = vectors * lanes * 4

    @llvm_intrinsic()
    def plane_tile(table, offsets, depth, weights, target):
        def read(r):
            _keep_order(table.builder)
            return table.word(r)

        if vectors > 1 and rows > _MOST_PIXELS:
            pixels = [partial(read, r) for r in range(rows)]
        else:
            pixels = _fixed([table.word(r) for r in range(rows)])

        def body(places, totals):
            return _multiply_pixels(pixels, places[0].word(), places[1], vectors, lanes, totals)

        zeros = _zeros(rows * vectors, lanes, depth)
        _, sums = _counted_loop(depth, [offsets, weights], [8, width], zeros, body)
        _store_sums(target, sums, lanes, vectors, recipe)

    return plane_tile


def make_sum_tile(rows, outputs, lanes):
    """A tile of `rows` pixels x `outputs` channels whose vectors run along the input's channels.

    sum_tile(table, table_step, taps, channels, weights, target): the table is `make_pixel_tile`'s. `weights`
    are (tap, vector of channels, outputs, lanes); where `channels`, at least `lanes`, are no whole number of
    vectors, the last vector overlaps the previous one, with weights of 0 for what that has done. The
    sums go to `target`, (rows, outputs).
    """
    kind = ir.VectorType(_SINGLE, lanes)
    width = outputs * lanes * 4

    @llvm_intrinsic()
    def sum_tile(table, table_step, taps, channels, weights, target):
        def add_tap(places, totals):
            pixels = [places[0].word(r) for r in range(rows)]

            def body(offset, right, sums):
                columns = right.read_row(kind, outputs)
                return add_products(((pixel + offset).read(kind) for pixel in pixels), columns, sums)

            step = 4 * lanes
            _, right, sums = _walk(taps.constant(0), whole, step, places[1], width, totals, body)
            return _walk(last, last_end, step, right, width, sums, body)[2]

        rest = channels % lanes
        whole = (channels - rest) * 4
        last = (channels - lanes) * 4
        last_end = last + rest
        steps = [table_step, (channels + (lanes - 1)) / lanes * width]
        zeros = _zeros(rows * outputs, lanes, taps)
        _, sums = _counted_loop(taps, [table, weights], steps, zeros, add_tap)
        for i, total in enumerate(sums):
            (target + 4 * i).write(_folded(total, lambda low, high: low + high))

    return sum_tile
