# mypy: allow-untyped-defs, allow-incomplete-defs
"""NHWC windows: a vector of channels, for several pixels at a time."""

from llvmlite import ir
from numba import types

from engine.backends.cpu.library.epilogue import EpilogueWriter
from engine.backends.cpu.library.llvm_intrinsic import llvm_intrinsic
from engine.backends.cpu.library.vectors import _counted_loop, find_largest


def make_pixel_tile(kind, pixels, vectors, lanes, recipe=None):
    """pixel_tile(source, step, places, taps, weights, factor, target): windows over channel vectors.

    `pixels` of them begin `step` bytes apart. `places` has two words per tap: where it reads, in bytes from
    where a window begins, and where its weights lie. Results follow each other at `target`, those of a window
    together: sums of products with weights ("taps"), the largest elements ("max"), or sums times `factor`
    ("average"). With a recipe they are finished in registers, and `target` is the address of the ends that
    `EpilogueWriter` wants.
    """
    vector = ir.VectorType(ir.FloatType(), lanes)

    @llvm_intrinsic(*[types.int64] * 5, types.float32, types.int64)
    def pixel_tile(source, step, places, taps, weights, factor, target):
        sources = [source]
        for _ in range(pixels - 1):
            sources.append(sources[-1] + step)

        def at(starts, offset):
            places = [offset + 4 * lanes * v for v in range(vectors)]
            return [(start + place).read(vector) for start in starts for place in places]

        def elements_of(now):
            return at(sources, now[0].word())

        def add_weighted(now, totals):
            row = at([weights], now[0].word(1)) * pixels
            trio = zip(elements_of(now), row, totals, strict=True)
            return [element.times_plus(weight, total) for element, weight, total in trio]

        def add(now, totals):
            return [total + element for element, total in zip(elements_of(now), totals, strict=True)]

        def run(body, first):
            return _counted_loop(taps, [places], [16], first, body)[1]

        def finish(totals):
            if recipe is None:
                target.write_row(totals)
            else:
                EpilogueWriter(recipe, target, lanes).store(totals, vectors)

        first = [source.of(vector, 0.0)] * pixels * vectors
        if kind == "taps":
            finish(run(add_weighted, first))
        elif kind == "average":
            share = factor.spread(lanes)
            finish([total * share for total in run(add, first)])
        else:
            lowest = source.of(vector, float("-inf"))
            find_largest(lowest, len(first), run, elements_of, finish)

    return pixel_tile
