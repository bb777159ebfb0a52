"""Splits long loops into several kernels, for drivers that limit the iterations of a shader's loops.

`rounds_of` counts what a formula takes for one element. `split` turns a formula that takes too many into
several, each of which stays below the limit: reductions over chunks and then over their results, sequential
loops as a chain in which each kernel continues from the carried values that the previous ones stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf, isqrt, prod

import numpy as np

from engine.compiler.plan import Compute
from engine.kernels.expr import (
    LOOPS,
    Expr,
    arg,
    cast,
    fold,
    index,
    lit,
    maximum,
    minimum,
    nodes,
    rebuild,
    reduce,
    substitute,
)
from engine.kernels.size import largest, smallest, whole
from engine.kernels.value import Value

Temporary = Callable[[tuple[int, ...], np.dtype], Value]
"""Makes a tensor of a shape and type that lives within one layer."""

Range = tuple[float, float]

MOST_KERNELS = 4096
"""A longer chain of kernels costs more than moving the layer elsewhere."""

_AMPLE = 1 << 16
"""Results of chunks, in elements, that cost next to nothing; more chunks mean more work at once."""

_UNKNOWN: Range = (-inf, inf)


class _CannotSplitError(Exception):
    """An iteration is too long and depends on the previous one, or there are too many kernels."""


class Extents:
    """The most iterations that the loops of formulas take over an index space.

    An extent that depends on data counts as 1.
    """

    def __init__(self, space: Sequence[int], *formulas: Expr) -> None:
        self._space = space
        self._ranges: dict[Expr, Range] = {}
        self._loops: dict[Expr, frozenset[Expr]] = {}
        self._rounds: dict[Expr, int] = {}
        self._extents: dict[str, Expr] = {}
        for node in nodes(*formulas):
            if node.op in LOOPS:
                var = node.attr[1] if node.op == "reduce" else node.attr[0]
                self._extents[var] = node.args[0]

    def outermost(self, *formulas: Expr) -> frozenset[Expr]:
        """The loops that are not nested in another loop."""
        return frozenset().union(*map(self._outermost, formulas))

    def _outermost(self, x: Expr) -> frozenset[Expr]:
        if x not in self._loops:
            found = self.outermost(*x.args)
            if x.op in LOOPS:
                # Printers put what does not change inside a loop before it.
                found = (found - self.inside(x)) | {x}
            self._loops[x] = found
        return self._loops[x]

    def inside(self, loop: Expr) -> frozenset[Expr]:
        """The loops nested directly in a loop."""
        bound = {loop.attr[1]} if loop.op == "reduce" else {loop.attr[0], *loop.attr[1]}
        return frozenset(x for x in self.outermost(*loop.args) if not bound.isdisjoint(x.free))

    def rounds(self, *formulas: Expr) -> int:
        """Total number of iterations of all loops."""
        return sum(map(self._rounds_of, self.outermost(*formulas)))

    def _rounds_of(self, loop: Expr) -> int:
        if loop not in self._rounds:
            # A loop finds out in a round of its own that it is over.
            self._rounds[loop] = self.most(loop) * self.each(loop) + 1
        return self._rounds[loop]

    def each(self, loop: Expr) -> int:
        """The cost of one iteration of a loop."""
        return 1 + sum(map(self._rounds_of, self.inside(loop)))

    def most(self, loop: Expr) -> int:
        """The largest number of iterations of one loop."""
        high = self._range(loop.args[0])[1]
        return 1 if high == inf else largest(whole(high), 0)

    def is_exact(self, loop: Expr) -> bool:
        """Whether a loop takes `most` rounds for every element."""
        low, high = self._range(loop.args[0])
        return low == high

    def _range(self, x: Expr) -> Range:
        if x not in self._ranges:
            self._ranges[x] = self._new_range(x)
        return self._ranges[x]

    def _new_range(self, x: Expr) -> Range:
        if x.dtype not in ("index", "int32", "int64"):
            return _UNKNOWN
        match x.op:
            case "const":
                return x.attr, x.attr
            case "param":
                return x.attr.value, x.attr.value
            case "index":
                return 0, self._space[x.attr] - 1
            case "flat":
                return 0, prod(self._space) - 1
            case "loopvar":
                return 0, largest(self._range(self._extents[x.attr])[1] - 1, 0)
            case "cast" if x.args[0].dtype == "bool":
                return 0, 1
            case "cast":
                return self._range(x.args[0])
            case "select":
                a, b = map(self._range, x.args[1:])
                return smallest(a[0], b[0]), largest(a[1], b[1])
            case "add" | "sub" | "min" | "max" | "mul" | "div" | "rem":
                a, b = map(self._range, x.args)
                return _combined(x.op, a, b)
        return _UNKNOWN


def _combined(op: str, a: Range, b: Range) -> Range:
    if op == "add":
        return a[0] + b[0], a[1] + b[1]
    if op == "sub":
        return a[0] - b[1], a[1] - b[0]
    if op == "min":
        return smallest(a[0], b[0]), smallest(a[1], b[1])
    if op == "max":
        return largest(a[0], b[0]), largest(a[1], b[1])
    if smallest(a[0], b[0]) < 0:
        return _UNKNOWN
    if op == "mul":
        return a[0] * b[0], inf if inf in (a[1], b[1]) else a[1] * b[1]
    if op == "div":
        low = 0 if b[1] == inf else a[0] // largest(b[1], 1)
        return low, a[1] if a[1] == inf else a[1] // largest(b[0], 1)
    return 0, smallest(a[1], largest(b[1] - 1, 0))


def rounds_of(formula: Expr, space: Sequence[int]) -> int:
    """Rounds of all loops together for one element, those inside others included."""
    return Extents(space, formula).rounds(formula)


def split(compute: Compute, most: int, temporary: Temporary) -> list[Compute] | None:
    """Split a formula into ones of at most `most` iterations per element; the last yields the output.

    None where a loop cannot be split: one round of it is too long, and needs what the round before made.
    """
    formula = compute.formula()
    if rounds_of(formula, compute.space) <= most:
        return [compute]
    splitter = _Splitter(compute, most, temporary)
    try:
        body = splitter.shortened(formula, compute.space)
    except _CannotSplitError:
        return None
    return [*splitter.made, Compute(compute.output, compute.space, body, compute.layer, compute.op_type)]


class _Splitter:
    """Splits the formula of one layer into several kernels."""

    def __init__(self, compute: Compute, most: int, temporary: Temporary) -> None:
        self.compute = compute
        self.most = most
        self.temporary = temporary
        self.made: list[Compute] = []

    def stored(self, body: Expr, space: tuple[int, ...]) -> Value:
        """A tensor of its own for a formula."""
        short = self.shortened(body, space)
        value = self.temporary(space, kept_type(short))
        self.made.append(Compute(value, space, short, self.compute.layer, self.compute.op_type))
        if len(self.made) >= MOST_KERNELS:
            raise _CannotSplitError
        return value

    def shortened(self, formula: Expr, space: tuple[int, ...]) -> Expr:
        """Replace loops by loads of what other kernels compute, until the formula is short enough."""
        while (extents := Extents(space, formula)).rounds(formula) > self.most:
            loop = max(extents.outermost(formula), key=lambda x: (extents.rounds(x), repr(x.attr)))
            place = _LoopSite(loop, space)
            replace = self._reduction if loop.op == "reduce" else self._chain
            formula = substitute(formula, replace(place, extents).get)
        return formula

    def _plain(self, x: Expr, place: _LoopSite) -> Expr:
        """A formula in the space of a loop, without loops of its own."""
        moved = place.moved(x)
        if not Extents(place.space, moved).outermost(moved):
            return moved
        return _loaded(self.stored(moved, place.space), place.inner, x.dtype)

    def _reduction(self, place: _LoopSite, extents: Extents) -> dict[Expr, Expr]:
        """A reduction over chunks, whose results are reduced in turn."""
        loop = place.loop
        kind, var = loop.attr
        extent, body = loop.args
        most = extents.most(loop)
        longest = (self.most - 1) // extents.each(loop)
        body, around = place.moved(body), len(place.space)
        if longest <= 1:
            if not extents.is_exact(loop):
                raise _CannotSplitError
            chunks = most
            terms = _with(body, {var: index(around)})
        else:
            least = -(-most // longest)
            ample = _AMPLE // max(prod(place.space), 1)
            # As many chunks as rounds in each, where that takes little memory: most work at once.
            chunk = -(-most // max(least, min(isqrt(most), ample)))
            chunks = -(-most // chunk)
            first = index(around) * arg(chunk)
            rest = minimum(self._plain(extent, place) - first, arg(chunk))

            def term(r: Expr) -> Expr:
                # On some targets all elements iterate as often as the longest: reads must stay in bounds.
                at = first + r if most % chunk == 0 else minimum(first + r, arg(most - 1))
                return _with(body, {var: at})

            terms = reduce(kind, maximum(rest, lit(0)), term)
        partial = self.stored(terms, (*place.space, chunks))

        def total(at: Sequence[Expr]) -> Expr:
            return reduce(kind, chunks, lambda r: _loaded(partial, (*at, r), loop.dtype))

        if place.is_whole:
            return {loop: total(place.own)}
        whole = self.stored(total(place.inner), place.space)
        return {loop: _loaded(whole, place.own, loop.dtype)}

    def _chain(self, place: _LoopSite, extents: Extents) -> dict[Expr, Expr]:
        """A sequential loop as a chain of shorter ones."""
        loop = place.loop
        var, names = loop.attr
        count = len(names)
        extent, initial, after = loop.args[0], loop.args[1 : count + 1], loop.args[count + 1 :]
        most = extents.most(loop)
        longest = (self.most - 1) // extents.each(loop)
        if longest < 1:
            ahead = self._ahead(place, extents)
            shorter = rebuild(loop, tuple(substitute(x, ahead.get) for x in loop.args))
            after = shorter.args[count + 1 :]
            longest = (self.most - 1) // Extents(place.outer, shorter).each(shorter)
        if longest < 1 or count * -(-most // longest) > MOST_KERNELS:
            raise _CannotSplitError
        rounds, *states = [self._plain(x, place) for x in (extent, *initial)]
        values: list[Value] = []
        for start in range(0, most, longest):
            first = arg(start)
            rest = maximum(minimum(rounds - first, arg(longest)), lit(0))

            def step(r: Expr, *carried: Expr, first: Expr = first) -> list[Expr]:
                known = {var: first + r, **dict(zip(names, carried, strict=True))}
                return [_with(place.moved(x), known) for x in after]

            values = [self.stored(result, place.space) for result in fold(rest, states, step)]
            states = [_loaded(v, place.inner, x.dtype) for v, x in zip(values, after, strict=True)]
        return {
            Expr("result", x.dtype, (loop,), k): _loaded(v, place.own, x.dtype)
            for k, (v, x) in enumerate(zip(values, after, strict=True))
        }

    def _ahead(self, place: _LoopSite, extents: Extents) -> dict[Expr, Expr]:
        """Precompute loops nested in a sequential loop for each iteration, if they need no carried value."""
        loop = place.loop
        if not extents.is_exact(loop):
            raise _CannotSplitError
        var, names = loop.attr
        found: dict[Expr, Expr] = {}
        for inside in extents.inside(loop):
            if inside.op != "reduce" or inside.free & set(names):
                continue
            around = len(place.space)
            body = _with(place.moved(inside), {var: index(around)})
            value = self.stored(body, (*place.space, extents.most(loop)))
            at = Expr("loopvar", "index", attr=var, free=frozenset({var}))
            found[inside] = _loaded(value, (*place.own, at), inside.dtype)
        return found


class _LoopSite:
    """A loop in the index space around it, and the axes of that which it depends on."""

    def __init__(self, loop: Expr, outer: tuple[int, ...]) -> None:
        self.loop = loop
        self.outer = outer
        is_flat = "flat" in loop.free
        axes = [a for a in range(len(outer)) if is_flat or a in loop.free]
        self.space = tuple(outer[a] for a in axes)
        self.own = [index(a) for a in axes]
        """The indices of its result, in the space around it."""
        self.inner = [index(k) for k in range(len(axes))]
        """The same in `space`."""
        self._indices = dict(zip(axes, self.inner, strict=True))

    @property
    def is_whole(self) -> bool:
        """Whether it has another value for each element around it."""
        return len(self.space) == len(self.outer)

    def moved(self, x: Expr) -> Expr:
        """A formula of the space around, in `space`."""
        flat: Expr = lit(0)
        for size, at in zip(self.space, self.inner, strict=True):
            flat = flat * arg(size) + at

        def replaced(node: Expr) -> Expr | None:
            if node.op == "index":
                return self._indices.get(node.attr)
            return flat if node.op == "flat" else None

        return substitute(x, replaced)


def _with(x: Expr, known: dict[str, Expr]) -> Expr:
    """A formula with loop variables and carried values replaced."""
    return substitute(x, lambda node: known.get(node.attr) if node.op in ("loopvar", "carried") else None)


def kept_type(x: Expr) -> np.dtype:
    """The type in which a formula's values are kept between kernels."""
    return np.dtype(np.int32 if x.dtype == "index" else x.dtype)


def _loaded(value: Value, at: Iterable[Expr], dtype: str) -> Expr:
    return cast(value[tuple(at)], dtype)  # type: ignore[arg-type]
