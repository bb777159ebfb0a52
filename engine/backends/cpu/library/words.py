# mypy: allow-untyped-defs, allow-incomplete-defs
"""Runs of narrow elements interleaved into words."""

from llvmlite import ir

from engine.backends.cpu.library.instruction import instruction
from engine.backends.cpu.library.products import _ELEMENTS, _NUMBER, _multiplied
from engine.backends.cpu.library.vectors import _counted_loop, _spread, _vector_at, _word


def _interleaved(builder, found, lanes):
    """Vectors of `lanes` elements as one: the first elements of all, then the second ones..."""

    def mask(count):
        # Two vectors of groups of elements, group by group.
        half = count // 2
        step = half // lanes
        order = [j * step + e + half * side for j in range(lanes) for side in (0, 1) for e in range(step)]
        return ir.Constant(ir.VectorType(ir.IntType(32), count), order)

    while len(found) > 1:
        pairs = zip(found[::2], found[1::2], strict=True)
        found = [builder.shuffle_vector(x, y, mask(2 * x.type.count)) for x, y in pairs]
    return found[0]


def make_interleave(parts, bits, lanes):
    """interleave(target, a, b, c, d): word j of `lanes` words has elements j of the first `parts` runs.

    Addresses are bytes; `bits` is the size of an element.
    """
    kind = ir.VectorType(ir.IntType(bits), lanes)

    @instruction()
    def interleave(builder, target, a, b, c, d):
        pointers = [_vector_at(builder, source, _word(0), kind) for source in (a, b, c, d)[:parts]]
        found = [builder.load(pointer, align=1) for pointer in pointers]
        words = _interleaved(builder, found, lanes)
        builder.store(words, _vector_at(builder, target, _word(0), words.type), align=1)

    return interleave


def make_plane_tile(form, elements, element_size, stride, lanes):
    """A run of `elements` / `stride` times `lanes` sums of a plane's windows.

    plane_tile(source, offsets, weights, taps, target): tap t is the word weights[t], whose elements meet
    neighbours from `offsets[t]` bytes behind the window's start on. Every `elements`th window is a lane.
    """
    element, word = _ELEMENTS.get(form, (_NUMBER, 4))
    kind = ir.VectorType(element, lanes)
    starts = range(0, elements, stride)

    @instruction()
    def plane_tile(builder, source, offsets, weights, taps, target):
        def body(places, totals):
            offset = builder.load(builder.inttoptr(places[0], ir.IntType(64).as_pointer()), align=8)
            weight = builder.load(builder.inttoptr(places[1], element.as_pointer()), align=4)
            left, start = _spread(builder, weight, lanes), builder.add(source, offset)
            sums = []
            for first, total in zip(starts, totals, strict=True):
                pointer = _vector_at(builder, start, _word(first * element_size), kind)
                right = builder.load(pointer, align=1)
                sums.append(_multiplied(builder, form, left, right, total))
            return sums

        zero = ir.Constant(kind, [0.0 if form in ("float32", "float64") else 0] * lanes)
        steps = [_word(8), _word(word)]
        _, totals = _counted_loop(builder, taps, [offsets, weights], steps, [zero] * len(starts), body)
        sums = _interleaved(builder, totals, lanes)
        builder.store(sums, _vector_at(builder, target, _word(0), sums.type), align=4)

    return plane_tile
