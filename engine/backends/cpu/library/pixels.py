# mypy: allow-untyped-defs, allow-incomplete-defs
"""Windows over pixels whose channels lie side by side: a vector of channels, for several pixels at a time."""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from engine.backends.cpu.library.lane import Lane
from engine.backends.cpu.library.vectors import _counted_loop, _larger, _spread, _vector_at, _word


def make_pixel_tile(kind, pixels, lanes):
    """pixel_tile(source, step, places, taps, weights, factor, target): `lanes` channels of `pixels` windows.

    Windows begin `step` bytes apart. `places` has two words per tap: where it reads, in bytes from where a
    window begins, and where its weights lie. Results follow each other at `target`: sums of products with
    weights ("taps"), the largest elements ("max"), or sums times `factor` ("average").
    """
    vector = ir.VectorType(ir.FloatType(), lanes)

    @intrinsic
    def pixel_tile(typing_context, source, step, places, taps, weights, factor, target):
        def generate(context, builder, signature, args):
            source, step, places, taps, weights, factor, target = args
            sources = [source]
            for _ in range(pixels - 1):
                sources.append(builder.add(sources[-1], step))

            def word(address, position):
                pointer = builder.inttoptr(
                    builder.add(address, _word(8 * position)), ir.IntType(64).as_pointer()
                )
                return builder.load(pointer, align=8)

            def at(address, offset):
                return Lane(builder, builder.load(_vector_at(builder, address, offset, vector), align=4))

            def body(now, totals):
                offset = word(now[0], 0)
                weight = at(weights, word(now[0], 1)) if kind == "taps" else None
                joined = []
                for start, total in zip(sources, totals, strict=True):
                    element, total = at(start, offset), Lane(builder, total)
                    if weight is not None:
                        total = element.times_plus(weight, total)
                    else:
                        total = _larger(total, element) if kind == "max" else total + element
                    joined.append(total.value)
                return joined

            first = ir.Constant(vector, [float("-inf") if kind == "max" else 0.0] * lanes)
            _, totals = _counted_loop(builder, taps, [places], [_word(16)], [first] * pixels, body)
            if kind == "average":
                share = Lane(builder, _spread(builder, factor, lanes))
                totals = [(Lane(builder, total) * share).value for total in totals]
            for p, total in enumerate(totals):
                pointer = _vector_at(builder, target, _word(4 * lanes * p), vector)
                builder.store(total, pointer, align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5, types.float32, types.int64), generate

    return pixel_tile
