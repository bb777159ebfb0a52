# mypy: allow-untyped-defs, allow-incomplete-defs
"""Sums, products and extremes over rows or along a run, several vectors of partial results at a time."""

from functools import partial

from llvmlite import ir
from numba import types

from engine.backends.cpu.library.llvm_intrinsic import llvm_intrinsic
from engine.backends.cpu.library.vectors import _counted_loop, _folded, first_lanes

_NEUTRAL = {"sum": 0.0, "prod": 1.0, "max": float("-inf"), "min": float("inf")}


def _joined(kind, total, element):
    """One more element; an extreme is NaN once an element is."""
    if kind == "sum":
        return total + element
    if kind == "prod":
        return total * element
    return total.extreme(">" if kind == "max" else "<", element)


def _passed(term, element, center):
    """The contribution of an element to a reduction."""
    if term == "deviation":
        element = element - center
    if term == "magnitude":
        return (element.bits() & 0x7FFFFFFF).as_float32()
    return element if term == "element" else element * element


def _tree(kind, vectors):
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

    @llvm_intrinsic()
    def column_tile(source, step, rows, center, target):
        centers = center.read_row(vector, vectors) if term == "deviation" else [None] * vectors

        def unrolled(count):
            def body(places, totals):
                following, place = [], places[0]
                for u in range(count):
                    for v in range(vectors):
                        element = _passed(term, (place + 4 * lanes * v).read(vector), centers[v])
                        following.append(_joined(kind, totals[u * vectors + v], element))
                    place += step
                return following

            return body

        whole, rest = rows / unroll, rows % unroll
        starts = [source.of(vector, _NEUTRAL[kind])] * (vectors * unroll)
        places, totals = _counted_loop(whole, [source], [step * unroll], starts, unrolled(unroll))
        _, first = _counted_loop(rest, places, [step], totals[:vectors], unrolled(1))
        totals = [*first, *totals[vectors:]]
        target.write_row([_tree(kind, totals[v::vectors]) for v in range(vectors)])

    return column_tile


def make_run_tile(kind, term, vectors, lanes):
    """run_tile(source, count, center): a run of `count` float32s reduced to one.

    Whole vectors are read, so up to `lanes` - 1 elements behind the run too; `center` is one number.
    """
    vector = ir.VectorType(ir.FloatType(), lanes)

    @llvm_intrinsic(types.int64, types.int64, types.float32, result=types.float32)
    def run_tile(source, count, center):
        middle = center.spread(lanes)

        def at(place, v=0):
            return _passed(term, (place + 4 * lanes * v).read(vector), middle)

        def body(places, totals):
            return [_joined(kind, total, at(places[0], v)) for v, total in enumerate(totals)]

        neutral = source.of(vector, _NEUTRAL[kind])
        wide = vectors * lanes
        whole, rest = count / wide, count % wide
        places, totals = _counted_loop(whole, [source], [4 * wide], [neutral] * vectors, body)
        some, rest = rest / lanes, rest % lanes
        places, first = _counted_loop(some, places, [4 * lanes], totals[:1], body)
        # Of the last vector only the first elements count.
        last = at(places[0]).where(first_lanes(rest, lanes), neutral)
        found = _tree(kind, [*first, *totals[1:], last])
        return _folded(found, partial(_joined, kind))

    return run_tile
