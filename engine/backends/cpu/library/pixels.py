# mypy: allow-untyped-defs, allow-incomplete-defs
"""Windows over pixels with the channels last: a vector of channels, for several pixels at a time."""

from llvmlite import ir
from numba import types

from engine.backends.cpu.library.epilogue import Finish
from engine.backends.cpu.library.instruction import instruction
from engine.backends.cpu.library.lane import Lane
from engine.backends.cpu.library.vectors import (
    _counted_loop,
    _spread,
    _vector_at,
    _word,
    find_largest,
)


def make_pixel_tile(kind, pixels, vectors, lanes, recipe=None):
    """pixel_tile(source, step, places, taps, weights, factor, target): windows over several vectors
    of channels.

    `pixels` of them begin `step` bytes apart. `places` has two words per tap: where it reads, in bytes from
    where a window begins, and where its weights lie. Results follow each other at `target`, those of a window
    together: sums of products with weights ("taps"), the largest elements ("max"), or sums times `factor`
    ("average"). With a recipe, sums of products are finished in registers, and `target` is the address of the
    ends that `Finish` wants.
    """
    vector = ir.VectorType(ir.FloatType(), lanes)

    @instruction(*[types.int64] * 5, types.float32, types.int64)
    def pixel_tile(builder, source, step, places, taps, weights, factor, target):
        sources = [source]
        for _ in range(pixels - 1):
            sources.append(builder.add(sources[-1], step))

        def word(address, position):
            place = builder.add(address, _word(8 * position))
            return builder.load(builder.inttoptr(place, ir.IntType(64).as_pointer()), align=8)

        def at(address, offset):
            places = (builder.add(offset, _word(4 * lanes * v)) for v in range(vectors))
            pointers = [_vector_at(builder, address, place, vector) for place in places]
            return [Lane(builder, builder.load(pointer, align=4)) for pointer in pointers]

        def elements_of(now):
            offset = word(now[0], 0)
            return [element for start in sources for element in at(start, offset)]

        def add_products(now, totals):
            row = at(weights, word(now[0], 1)) * pixels
            trio = zip(elements_of(now), row, totals, strict=True)
            return [element.times_plus(weight, Lane(builder, total)).value for element, weight, total in trio]

        def add(now, totals):
            pairs = zip(elements_of(now), totals, strict=True)
            return [(Lane(builder, total) + element).value for element, total in pairs]

        def run(body, first):
            return _counted_loop(builder, taps, [places], [_word(16)], first, body)[1]

        def store(totals):
            for k, total in enumerate(totals):
                pointer = _vector_at(builder, target, _word(4 * lanes * k), vector)
                builder.store(total, pointer, align=4)

        first = [ir.Constant(vector, [0.0] * lanes)] * pixels * vectors
        if recipe is not None:
            totals = run(add_products, first)
            Finish(builder, recipe, target, lanes).store(totals, vectors)
        elif kind == "taps":
            store(run(add_products, first))
        elif kind == "average":
            share = Lane(builder, _spread(builder, factor, lanes))
            store([(Lane(builder, total) * share).value for total in run(add, first)])
        else:
            find_largest(builder, len(first), lanes, run, elements_of, store)

    return pixel_tile
