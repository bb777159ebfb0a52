# mypy: allow-untyped-defs, allow-incomplete-defs
"""Sums, products and extremes over rows or along a run, several vectors of partial results at a time."""

from llvmlite import ir
from numba import types

from engine.backends.cpu.library.instruction import instruction
from engine.backends.cpu.library.lane import Lane
from engine.backends.cpu.library.vectors import _counted_loop, _spread, _vector_at, _word

_NEUTRAL = {"sum": 0.0, "prod": 1.0, "max": float("-inf"), "min": float("inf")}


def _joined(kind, total, element):
    """One more element; an extreme is NaN once an element is."""
    if kind == "sum":
        return total + element
    if kind == "prod":
        return total * element
    further = total.compare(">" if kind == "max" else "<", element)
    return total.where(total.differs(total), total.where(further, element))


def _passed(term, element, center):
    """The contribution of an element to a reduction."""
    if term == "deviation":
        element = element - center
    if term == "magnitude":
        return (element.bits() & 0x7FFFFFFF).as_float32()
    return element if term == "element" else element * element


def _tree(builder, kind, vectors):
    """Neighbours joined until one is left."""
    while len(vectors) > 1:
        pairs = zip(vectors[0::2], vectors[1::2], strict=False)
        odd = vectors[len(vectors) // 2 * 2 :]
        vectors = [_joined(kind, a, b) for a, b in pairs] + odd
    return vectors[0]


def make_column_tile(kind, term, vectors, lanes, unroll):
    """column_tile(source, step, rows, center, target): `vectors` * `lanes` columns reduced over `rows` rows.

    Rows are `step` bytes apart. The results go to `target`; `center` has one number per column.
    """
    vector = ir.VectorType(ir.FloatType(), lanes)

    @instruction()
    def column_tile(builder, source, step, rows, center, target):
        def at(address, v):
            pointer = _vector_at(builder, address, _word(4 * lanes * v), vector)
            return Lane(builder, builder.load(pointer, align=4))

        centers = [at(center, v) if term == "deviation" else None for v in range(vectors)]

        def turns(count):
            def body(places, totals):
                following, place = [], places[0]
                for u in range(count):
                    for v in range(vectors):
                        element = _passed(term, at(place, v), centers[v])
                        total = Lane(builder, totals[u * vectors + v])
                        following.append(_joined(kind, total, element).value)
                    place = builder.add(place, step)
                return following

            return body

        neutral = ir.Constant(vector, [_NEUTRAL[kind]] * lanes)
        whole, rest = builder.sdiv(rows, _word(unroll)), builder.srem(rows, _word(unroll))
        starts = [neutral] * (vectors * unroll)
        far = [builder.mul(step, _word(unroll))]
        places, totals = _counted_loop(builder, whole, [source], far, starts, turns(unroll))
        _, first = _counted_loop(builder, rest, places, [step], totals[:vectors], turns(1))
        totals = [*first, *totals[vectors:]]
        for v in range(vectors):
            found = _tree(builder, kind, [Lane(builder, total) for total in totals[v::vectors]])
            builder.store(found.value, _vector_at(builder, target, _word(4 * lanes * v), vector), align=4)

    return column_tile


def make_run_tile(kind, term, vectors, lanes):
    """run_tile(source, count, center): a run of `count` float32s reduced to one.

    Whole vectors are read, so up to `lanes` - 1 elements behind the run too; `center` is one number.
    """
    vector = ir.VectorType(ir.FloatType(), lanes)
    numbers = ir.VectorType(ir.IntType(32), lanes)

    @instruction(types.int64, types.int64, types.float32, result=types.float32)
    def run_tile(builder, source, count, center):
        middle = Lane(builder, _spread(builder, center, lanes))

        def at(place, v=0):
            pointer = _vector_at(builder, place, _word(4 * lanes * v), vector)
            return _passed(term, Lane(builder, builder.load(pointer, align=4)), middle)

        def body(places, totals):
            pairs = enumerate(Lane(builder, total) for total in totals)
            return [_joined(kind, total, at(places[0], v)).value for v, total in pairs]

        neutral = ir.Constant(vector, [_NEUTRAL[kind]] * lanes)
        wide, slim = _word(vectors * lanes), _word(lanes)
        whole, rest = builder.sdiv(count, wide), builder.srem(count, wide)
        steps, starts = [_word(4 * lanes * vectors)], [neutral] * vectors
        places, totals = _counted_loop(builder, whole, [source], steps, starts, body)
        some, rest = builder.sdiv(rest, slim), builder.srem(rest, slim)
        places, first = _counted_loop(builder, some, places, [_word(4 * lanes)], totals[:1], body)
        # Of the last vector only the first `rest` elements count.
        place = ir.Constant(numbers, list(range(lanes)))
        left = builder.trunc(rest, ir.IntType(32))
        inside = builder.icmp_signed("<", place, _spread(builder, left, lanes))
        last = at(places[0]).where(Lane(builder, inside), Lane(builder, neutral))
        totals = [Lane(builder, total) for total in (*first, *totals[1:])]
        found = _tree(builder, kind, [*totals, last])
        width = lanes
        while width > 1:
            width //= 2
            mask = ir.Constant(ir.VectorType(ir.IntType(32), width), list(range(width)))
            other = ir.Constant(mask.type, list(range(width, 2 * width)))
            halves = [builder.shuffle_vector(found.value, found.value, m) for m in (mask, other)]
            found = _joined(kind, *(Lane(builder, half) for half in halves))
        return builder.extract_element(found.value, ir.Constant(ir.IntType(32), 0))

    return run_tile
