"""Split reductions: distributes long reductions to few elements over several threads per element.

A graphics card computes tens of thousands of elements at once, and a reduction to a hundred leaves it idle.
`split_reductions` lets several lanes share an element: each takes every so many-th term, and a second kernel
adds up what they have found, always in the same order. Where neighbouring terms are neighbours in memory, so
are lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

from engine.compiler.loop_splitting import Extents, Temporary, kept_type
from engine.compiler.plan import Compute
from engine.kernels.expr import Expr, arg, cast, index, minimum, nodes, rebuild, reduce, substitute
from engine.kernels.size import deferrable, deferred, has_sizes
from engine.kernels.value import Signature

PART = 32
"""Terms that a lane takes at least."""


@dataclass(frozen=True)
class SplitThresholds:
    """Thresholds above which a device benefits from splitting a reduction.

    Attributes:
        threads: how many the device keeps busy.
        terms: of a reduction, at least.
        work: terms of all elements together, at least.
        with_open_spaces: whether reductions to a symbolic number of elements are spread, too. Where there are
            many of them, they run with one lane.
    """

    threads: int
    terms: int
    work: int
    with_open_spaces: bool


GRAPHICS = SplitThresholds(threads=1 << 14, terms=128, work=0, with_open_spaces=True)
"""Of a graphics card."""


def split_reductions(
    compute: Compute, width: SplitThresholds, fan_in: int, temporary: Temporary
) -> list[Compute]:
    """Split a step's reductions; the last of the returned formulas yields its output.

    Args:
        compute: the step.
        width: what is worth spreading.
        fan_in: tensors that a kernel may read.
        temporary: makes the tensors between kernels.

    Returns:
        The step alone where nothing in it is worth spreading.
    """
    spreader = _Spreader(compute, width, temporary)
    formula = spreader.split_reductions(compute.formula(), compute.space, compute.extents)
    last = replace(compute, body=formula, hint=None, epilogue=None)
    parts = [*spreader.made, last]
    return parts if spreader.made and all(len(part.reads) <= fan_in for part in parts) else [compute]


class _Spreader:
    """Splits the formula of one layer into several kernels."""

    def __init__(self, compute: Compute, width: SplitThresholds, temporary: Temporary) -> None:
        self.compute = compute
        self.width = width
        self.temporary = temporary
        self.made: list[Compute] = []

    def stored(self, body: Expr, space: tuple[int, ...]) -> Callable[[Sequence[Expr]], Expr]:
        """A tensor of its own for a formula; returns what loads an element by its indices."""
        value = self.temporary(space, kept_type(body))
        self.made.append(Compute(value, space, body, self.compute.layer, self.compute.op_type))
        return lambda at: cast(value[tuple(at)], body.dtype)

    def split_reductions(self, formula: Expr, space: tuple[int, ...], extents: Signature | None) -> Expr:
        """The formula with long reductions replaced by those over what lanes have found."""
        found: dict[Expr, Expr] = {}
        for loop in sorted(Extents(space, formula).outermost(formula), key=lambda x: repr(x.attr)):
            if loop.op != "reduce" or "flat" in loop.free:
                continue
            axes = [a for a in range(len(space)) if a in loop.free]
            shared = self._shared(loop, space, extents, axes)
            if shared is not None:
                found[loop] = shared
        return substitute(formula, found.get) if found else formula

    def _lanes(self, terms: int, elements: int, is_open: bool) -> int:
        """How many lanes share an element; 0 where that is not worth it."""
        if terms < self.width.terms:
            return 0
        if is_open:
            few = self.width.with_open_spaces
            return deferred(_lanes_for, self.width.threads, terms, elements) if few else 0
        lanes = _lanes_for(self.width.threads, terms, elements)
        return lanes if lanes > 1 and terms * elements >= self.width.work else 0

    def _shared(
        self, loop: Expr, space: tuple[int, ...], extents: Signature | None, axes: Sequence[int]
    ) -> Expr | None:
        """A reduction over what lanes have found; None where that is not worth it."""
        chain = _chain(loop)
        longest = max(chain, key=_terms)
        kind, var = longest.attr
        terms, is_along = _terms(longest), _is_along(longest.args[1], var)
        around = tuple(space[a] for a in axes)
        own = None if extents is None else tuple(extents[a] for a in axes)
        is_open = own is None or any(has_sizes(sizes) or len(set(sizes)) > 1 for sizes in own)
        lanes = self._lanes(terms, prod(around), is_open)
        if type(lanes) is int and not lanes:
            return None
        # Neighbouring threads read neighbouring elements: other terms, or other elements.
        shift, lane = (0, index(len(around))) if is_along else (1, index(0))
        is_even = not is_open and terms % lanes == 0
        rounds = arg(terms // lanes) if is_even else (arg(terms + lanes - 1) - lane) // arg(lanes)

        def term(r: Expr) -> Expr:
            at = r * arg(lanes) + lane
            # On some targets all elements iterate as often as the longest: reads must stay in bounds.
            at = at if is_even else minimum(at, arg(terms - 1))
            return substitute(moved, lambda x: at if x.op == "loopvar" and x.attr == var else None)

        places = {a: index(k + shift) for k, a in enumerate(axes)}

        def placed(x: Expr) -> Expr | None:
            return places.get(x.attr) if x.op == "index" else None

        moved = substitute(longest.args[1], placed)
        body = reduce(kind, rounds, term)
        for outer in reversed(chain[: chain.index(longest)]):
            body = rebuild(outer, (substitute(outer.args[0], placed), body))
        loaded = self.stored(body, (*around, lanes) if is_along else (lanes, *around))

        def total(at: Sequence[Expr]) -> Expr:
            count = arg(lanes, fixed=not is_open)
            return reduce(kind, count, lambda r: loaded((*at, r) if is_along else (r, *at)))

        if len(axes) == len(space):
            return self.split_reductions(total([index(a) for a in axes]), space, extents)
        # One for several elements is computed once.
        inner = self.split_reductions(total([index(k) for k in range(len(axes))]), around, own)
        return self.stored(inner, around)([index(a) for a in axes])


@deferrable
def _lanes_for(threads: int, terms: int, elements: int) -> int:
    """Lanes for an element: as many as keep the threads busy, and a divisor of the terms if one is near."""
    most = max(1, min(-(-terms // PART), threads // max(elements, 1)))
    return next((n for n in range(most, most // 2, -1) if terms % n == 0), most)


def _chain(loop: Expr) -> list[Expr]:
    """A reduction and those of its kind that are all that its terms consist of."""
    chain = [loop]
    while (inner := chain[-1].args[1]).op == "reduce" and inner.attr[0] == loop.attr[0]:
        chain.append(inner)
    return chain


def _terms(loop: Expr) -> int:
    """How many terms a reduction has, if that is the same for all input shapes; else 0."""
    extent = loop.args[0]
    return extent.attr.value if extent.op == "param" and extent.attr.is_fixed else 0


def _is_along(body: Expr, var: str) -> bool:
    """Whether the terms of a reduction are side by side in a tensor."""

    def is_step(x: Expr) -> bool:
        if x.op == "loopvar":
            return bool(x.attr == var)
        return (x.op == "add" and any(map(is_step, x.args))) or (x.op == "select" and is_step(x.args[1]))

    return any(node.op == "load" and is_step(node.args[0]) for node in nodes(body))
