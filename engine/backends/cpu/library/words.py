# mypy: allow-untyped-defs, allow-incomplete-defs
"""Interleaving of narrow elements into words."""

from llvmlite import ir

from engine.backends.cpu.library.instruction import instruction
from engine.backends.cpu.library.products import _ELEMENTS, _NUMBER, _multiplied
from engine.backends.cpu.library.vectors import _counted_loop


def _interleaved(found, lanes):
    """Vectors of `lanes` elements as one: the first elements of all, then the second ones..."""

    def order(count):
        # Two vectors of groups of elements, group by group.
        half = count // 2
        step = half // lanes
        return [j * step + e + half * side for j in range(lanes) for side in (0, 1) for e in range(step)]

    while len(found) > 1:
        pairs = zip(found[::2], found[1::2], strict=True)
        found = [x.shuffled(y, order(2 * x.type.count)) for x, y in pairs]
    return found[0]


def make_interleave(parts, bits, lanes):
    """interleave(target, a, b, c, d): word j of `lanes` words has elements j of the first `parts` runs.

    Addresses are bytes; `bits` is the size of an element.
    """
    kind = ir.VectorType(ir.IntType(bits), lanes)

    @instruction()
    def interleave(target, a, b, c, d):
        found = [source.read(kind, align=1) for source in (a, b, c, d)[:parts]]
        target.write(_interleaved(found, lanes), align=1)

    return interleave


def make_plane_tile(form, elements, element_size, stride, lanes, vectors=1):
    """`vectors` runs of `elements` / `stride` times `lanes` sums of a plane's windows.

    plane_tile(source, offsets, weights, taps, target): tap t is the word weights[t], whose elements meet
    neighbours from `offsets[t]` bytes behind the window's start on. Every `elements`th window is a lane.
    """
    element, word = _ELEMENTS.get(form, (_NUMBER, 4))
    kind = ir.VectorType(element, lanes)
    firsts = range(0, elements, stride)
    starts = [(v * lanes * elements + first) * element_size for v in range(vectors) for first in firsts]

    @instruction()
    def plane_tile(source, offsets, weights, taps, target):
        def body(places, totals):
            start, left = source + places[0].word(), places[1].read(element).spread(lanes)
            pairs = zip(starts, totals, strict=True)
            return [_multiplied(form, left, (start + first).read(kind, 1), total) for first, total in pairs]

        zeros = [source.of(kind, 0)] * len(starts)
        _, totals = _counted_loop(taps, [offsets, weights], [8, word], zeros, body)
        runs = range(0, len(starts), len(firsts))
        target.write_row([_interleaved(totals[k : k + len(firsts)], lanes) for k in runs])

    return plane_tile
