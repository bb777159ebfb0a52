# mypy: allow-untyped-defs, allow-incomplete-defs
"""Winograd's minimal filtering of 3 x 3 windows: the transforms of tiles, and products of transformed tiles.

A tile of m x m results is made from (m + 2) x (m + 2) inputs: V = B'dB, then a product per frequency with the
transformed weights, then Y = A'MA (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks",
2015). F(2 x 2) interpolates at 0, 1, -1 and infinity; F(4 x 4) at 0, the square roots of 1/2 and 2 with both
signs, and infinity, whose rounding errors were the least of those tried. All vectors run along the channels.
"""

from contextlib import nullcontext

from llvmlite import ir

from engine.backends.cpu.library.epilogue import EpilogueWriter
from engine.backends.cpu.library.llvm_intrinsic import llvm_intrinsic
from engine.backends.cpu.library.vectors import _SINGLE, _counted_loop, add_products, prefetch_line

_LOW, _HIGH = 0.5**0.5, 2.0**0.5


def _inputs_2(d):
    """B'd for four inputs in a row."""
    return [d[0] - d[2], d[1] + d[2], d[2] - d[1], d[3] - d[1]]


def _outputs_2(m):
    """A'm for four products in a row."""
    return [m[0] + m[1] + m[2], m[1] - m[2] + m[3]]


def _inputs_4(d):
    """B'd for six inputs in a row."""
    low_even, low_odd = d[2].times_plus(-2.0, d[4]), d[1].times_plus(-2.0, d[3])
    high_even, high_odd = d[2].times_plus(-0.5, d[4]), d[1].times_plus(-0.5, d[3])
    return [
        d[2].times_plus(-2.5, d[0] + d[4]),
        low_odd.times_plus(_LOW, low_even),
        low_odd.times_plus(-_LOW, low_even),
        high_odd.times_plus(_HIGH, high_even),
        high_odd.times_plus(-_HIGH, high_even),
        d[3].times_plus(-2.5, d[1] + d[5]),
    ]


def _outputs_4(m):
    """A'm for six products in a row."""
    low_sum, low_difference = m[1] + m[2], m[1] - m[2]
    high_sum, high_difference = m[3] + m[4], m[3] - m[4]
    return [
        m[0] + (low_sum + high_sum),
        high_difference.times_plus(_HIGH, low_difference * _LOW),
        high_sum.times_plus(2.0, low_sum * 0.5),
        high_difference.times_plus(_HIGH**3, low_difference.times_plus(_LOW**3, m[5])),
    ]


def _both_axes(rows, step):
    """`step` along the columns of a square, then along its rows."""
    columns = [step(list(column)) for column in zip(*rows, strict=True)]
    return [step(list(row)) for row in zip(*columns, strict=True)]


def _store_square(square, target, step):
    """Values of a square in order, `step` bytes apart."""
    for row in square:
        for value in row:
            target.write(value)
            target += step


def make_input_tile(results, lanes):
    """input_tile(source, row_step, column_step, target, step): V of `lanes` channels of a tile.

    Steps are bytes: between the tile's rows and columns, and between the frequencies of V.
    """
    kind = ir.VectorType(_SINGLE, lanes)
    size, transform = results + 2, {2: _inputs_2, 4: _inputs_4}[results]

    @llvm_intrinsic()
    def input_tile(source, row_step, column_step, target, step):
        offsets = [column_step * j for j in range(size)]
        rows = [source + row_step * i for i in range(size)]
        square = [[(row + offset).read(kind) for offset in offsets] for row in rows]
        _store_square(_both_axes(square, transform), target, step)

    return input_tile


def make_edge_tile(results, lanes):
    """edge_tile(source, row_step, column_step, top, bottom, left, right, zeros, target, step): the same.

    Of a tile at an edge: `top` and `bottom` are its first row inside the input and the one behind the last,
    `left` and `right` such columns. For the others a vector of `zeros` is read.
    """
    kind = ir.VectorType(_SINGLE, lanes)
    size, transform = results + 2, {2: _inputs_2, 4: _inputs_4}[results]

    @llvm_intrinsic()
    def edge_tile(source, row_step, column_step, top, bottom, left, right, zeros, target, step):
        numbers = [source.constant(i) for i in range(size)]
        rows = [(number >= top) & (number < bottom) for number in numbers]
        columns = [(number >= left) & (number < right) for number in numbers]

        def read(i, j):
            place = source + row_step * i + column_step * j
            return place.where(rows[i] & columns[j], zeros).read(kind)

        square = [[read(i, j) for j in range(size)] for i in range(size)]
        _store_square(_both_axes(square, transform), target, step)

    return edge_tile


def make_output_tile(results, lanes, recipe=None):
    """output_tile(source, step, target, row_step, rows): `lanes` channels of a tile's results.

    `step` is bytes between frequencies of the products. The results go to `target`, `row_step` bytes from
    pixel to pixel, row by row. With a recipe they are finished in registers: `target` has the ends that
    `EpilogueWriter` wants, of pixels in a row, and the first `rows` rows lie `row_step` bytes apart.
    """
    kind = ir.VectorType(_SINGLE, lanes)
    size, transform = results + 2, {2: _outputs_2, 4: _outputs_4}[results]

    @llvm_intrinsic()
    def output_tile(source, step, target, row_step, rows):
        products = []
        for _ in range(size * size):
            products.append(source.read(kind))
            source += step
        square = _both_axes([products[i : i + size] for i in range(0, size * size, size)], transform)
        if recipe is None:
            _store_square(square, target, row_step)
            return
        if recipe[0] == "pooled":
            # The sums of a window follow each other.
            square = [
                [x for k in range(0, results, 2) for row in square[r : r + 2] for x in row[k : k + 2]]
                for r in range(0, results, 2)
            ]
        writer = EpilogueWriter(recipe, target, lanes)
        for r, row in enumerate(square):
            with target.builder.if_then((rows > r).value, likely=True) if r else nullcontext():
                writer.store(row, 1, row_step * r)

    return output_tile


def make_block_tile(rows, vectors, lanes):
    """A tile of `rows` x (`vectors` * `lanes`) sums of products, its left side in blocks of `lanes` depth.

    block_tile(a, a_block, b, k, c, c_row, next_b, next_step): c = A B. A is stored as blocks, `a_block` bytes
    apart, of rows of `lanes` numbers, so that all its rows are reached from one register; B is k groups of
    one vector row each. `c_row` is bytes. With each group, two cache lines of what is wanted next are asked
    for, one from `next_b` on, the other k * `next_step` bytes behind it.
    """
    kind = ir.VectorType(_SINGLE, lanes)
    width = vectors * lanes * 4

    @llvm_intrinsic()
    def block_tile(a, a_block, b, k, c, c_row, next_b, next_step):
        half = k * next_step

        def add_row(places, totals):
            a_place, b_place, next_place = places
            prefetch_line(next_place, 2)
            prefetch_line(next_place + half, 2)
            right = b_place.read_row(kind, vectors)
            lefts = ((a_place + 4 * r * lanes).read(_SINGLE).spread(lanes) for r in range(rows))
            return add_products(lefts, right, totals)

        def add_block(places, totals):
            *starts, left = places
            count = left.where(left < lanes, lanes)
            return _counted_loop(count, starts, [4, width, next_step], totals, add_row)[1]

        zeros = [k.of(kind, 0.0)] * (rows * vectors)
        steps = [a_block, width * lanes, next_step * lanes, -lanes]
        blocks = (k + (lanes - 1)) / lanes
        _, totals = _counted_loop(blocks, [a, b, next_b, k], steps, zeros, add_block)
        for r in range(rows):
            (c + c_row * r).write_row(totals[r * vectors : (r + 1) * vectors])

    return block_tile
