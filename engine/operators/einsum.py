"""Einsum: sums of products over named axes, contracted two operands at a time by the product of `linear`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise, product
from math import prod

import numpy as np

from engine.kernels.expr import Expr, arg, lit, reduce
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.operators.linear import matmul
from engine.operators.registry import operator

Labels = tuple[str, ...]
"""The names of axes: letters, and for those under an ellipsis their number counted from the right."""


@dataclass(frozen=True)
class Term:
    """A tensor and the names of its axes."""

    value: Value
    labels: Labels

    def stride(self, label: str) -> int:
        """The stride of a label, which may stand for several axes (a diagonal)."""
        return sum(self.value.stride(axis) for axis, own in enumerate(self.labels) if own == label)

    def follows(self, label: str, before: str) -> bool:
        """Whether two axes are adjacent in memory, so that they can be walked as one."""
        single = self.labels.count(label) == self.labels.count(before) == 1
        return single and self.labels.index(label) == self.labels.index(before) + 1

    def is_run(self, labels: Sequence[str]) -> bool:
        """Whether axes can be walked as one, in this order."""
        return all(self.follows(b, a) for a, b in pairwise(labels))


class Equation:
    """An equation over given operands: their terms, the output's labels, the size of each label."""

    def __init__(self, k: Builder, equation: str, values: Sequence[Value]) -> None:
        self.k = k
        left, arrow, right = equation.replace(" ", "").partition("->")
        inputs = left.split(",")
        if len(inputs) != len(values):
            k.error(f"{equation!r} names {len(inputs)} operands; the layer has {len(values)}")
        self.terms = [Term(v, self.labels(text, v.rank)) for text, v in zip(inputs, values, strict=True)]
        self.sizes = self._sizes()
        hidden = sorted({x for t in self.terms for x in t.labels if x.isdigit()}, key=int, reverse=True)
        if not arrow:
            every = [x for text in inputs for x in text if x.isalpha()]
            right = "..." + "".join(sorted(x for x in set(every) if every.count(x) == 1))
        if hidden and "..." not in right:
            k.error(f"{equation!r} loses the axes under the ellipsis; write '...' after '->' too")
        self.output = self.labels(right, len(hidden) + len(right.replace("...", "")))
        if len(set(self.output)) < len(self.output) or not set(self.output) <= set(self.sizes):
            k.error(f"the output of {equation!r} may name each axis of the operands once, and no other")

    def labels(self, text: str, rank: int) -> Labels:
        """The names of a term's axes."""
        before, dots, after = text.partition("...")
        letters = before + after
        hidden = rank - len(letters)
        if not (letters.isascii() and (letters.isalpha() or not letters)):
            self.k.error(f"{text!r} is not a term: it may have letters and one '...'")
        if hidden < 0 or (hidden and not dots):
            self.k.error(f"{text!r} does not name the axes of a tensor of rank {rank}")
        return (*before, *(str(i) for i in reversed(range(hidden))), *after)

    def _sizes(self) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for term in self.terms:
            own: dict[str, int] = {}
            for label, size in zip(term.labels, term.value.shape, strict=True):
                if own.setdefault(label, size) != size or 1 != sizes.get(label, size) != size != 1:
                    shapes = ", ".join(str(list(t.value.shape)) for t in self.terms)
                    self.k.error(f"the axes called {label!r} have different sizes in {shapes}")
            for label, size in own.items():
                sizes[label] = size if sizes.get(label, 1) == 1 else sizes[label]
        return sizes

    def squeezed(self, term: Term) -> Term:
        """The term without axes of constant size 1 or broadcast axes."""
        x = term.value
        kept = [
            axis for axis, label in enumerate(term.labels)
            if not x.always_one(axis) and x.shape[axis] == self.sizes[label]
        ]  # fmt: skip
        return Term(self.k.alias(x, [x.shape[a] for a in kept]), tuple(term.labels[a] for a in kept))


def contiguous_runs(term: Term, labels: Iterable[str]) -> list[Labels]:
    """The labels in order, those side by side in memory together."""
    runs: list[Labels] = []
    for label in labels:
        if runs and term.follows(label, runs[-1][-1]):
            runs[-1] += (label,)
        else:
            runs.append((label,))
    return runs


def arranged(k: Builder, term: Term, wanted: Labels, sizes: Mapping[str, int]) -> Term:
    """The term with the axes `wanted`: takes diagonals of repeated labels, and sums out missing ones."""
    x, labels = term.value, term.labels
    if labels == wanted:
        return term
    shape = [sizes[w] for w in wanted]
    if x.known is not None and sorted(labels) == sorted(wanted):
        order = [labels.index(w) for w in wanted]
        return Term(k.constant(np.ascontiguousarray(x.known.reshape(x.shape).transpose(order))), wanted)
    kept = contiguous_runs(term, wanted)
    summed = contiguous_runs(term, (label for label in dict.fromkeys(labels) if label not in wanted))

    def step(run: Labels) -> Expr:
        return lit(1) if labels.count(run[-1]) == 1 and run[-1] == labels[-1] else arg(term.stride(run[-1]))

    def formula(*at: Expr) -> Expr:
        start: Expr = lit(0)
        for i, run in zip(at, kept, strict=True):
            start = start + i * step(run)

        def nest(position: Expr, left: Sequence[Labels]) -> Expr:
            if not left:
                return x.at(position)
            extent = prod(sizes[label] for label in left[0])
            return reduce("sum", extent, lambda r: nest(position + r * step(left[0]), left[1:]))

        return nest(start, summed)

    groups = tuple(tuple(wanted.index(label) for label in run) for run in kept)
    return Term(k.compute(shape, x.dtype, formula, groups=groups), wanted)


def multiplied(k: Builder, a: Term, b: Term, wanted: Labels, sizes: Mapping[str, int]) -> Term:
    """The product of two terms that have nothing to sum."""

    def aligned(term: Term) -> Value:
        own = arranged(k, term, tuple(w for w in wanted if w in term.labels), sizes)
        return k.alias(own.value, [sizes[w] if w in own.labels else 1 for w in wanted])

    return Term(k.elementwise(lambda x, y: x * y, aligned(a), aligned(b)), wanted)


@dataclass(frozen=True)
class Contraction:
    """The batch, row, column and contracted axes of a matrix product of two terms, in order."""

    left: Term
    right: Term
    batch: Labels
    inner: Labels
    rows: Labels
    columns: Labels

    @property
    def output(self) -> Labels:
        """The labels of the product."""
        return (*self.batch, *self.rows, *self.columns)

    def left_fits(self) -> bool:
        """Whether the left term's memory has these axes as one each."""
        return all(map(self.left.is_run, (self.batch, self.rows, self.inner)))

    def right_fits(self) -> bool:
        """Whether the right term's memory has these axes as one each."""
        return all(map(self.right.is_run, (self.batch, self.inner, self.columns)))

    def copies(self, wanted: Labels | None) -> int:
        """How many tensors must be rearranged."""
        return (not self.left_fits()) + (not self.right_fits()) + (wanted not in (None, self.output))

    def run(self, k: Builder, sizes: Mapping[str, int]) -> Term:
        """Compute the product, after copying operands if needed."""
        a, b = self.left, self.right
        if not self.left_fits():
            a = arranged(k, a, (*self.batch, *self.rows, *self.inner), sizes)
        if not self.right_fits():
            b = arranged(k, b, (*self.batch, *self.inner, *self.columns), sizes)

        def count(labels: Labels) -> int:
            return prod(sizes[label] for label in labels)

        def strides(term: Term, *groups: Labels) -> tuple[int, int, int]:
            first, second, third = (term.stride(g[-1]) if g else 0 for g in groups)
            return first, second, third

        def merged(term: Term, *groups: Labels) -> Value:
            present = sorted((g for g in groups if g), key=lambda g: term.labels.index(g[0]))
            return k.alias(term.value, [count(g) for g in present])

        parts = (self.batch, self.rows, self.inner), (self.batch, self.inner, self.columns)
        made = matmul(
            k, merged(a, *parts[0]), merged(b, *parts[1]), [sizes[label] for label in self.output],
            (count(self.batch), count(self.rows), count(self.columns), count(self.inner)),
            strides(a, *parts[0]), strides(b, *parts[1]),
        )  # fmt: skip
        return Term(made, self.output)


def contracted(
    k: Builder, a: Term, b: Term, kept: frozenset[str], wanted: Labels | None, sizes: Mapping[str, int]
) -> Term:
    """The product of two terms, summed over the names that both have and no other term needs."""
    shared = {label for label in a.labels if label in b.labels}
    if shared <= kept:
        order = wanted or (*a.labels, *(label for label in b.labels if label not in shared))
        return multiplied(k, a, b, order, sizes)

    def of(term: Term, test: Callable[[str], bool]) -> Labels:
        return tuple(label for label in term.labels if test(label))

    plans = [
        Contraction(
            left, right,
            of(one, lambda x: x in shared and x in kept), of(other, lambda x: x in shared and x not in kept),
            of(left, lambda x: x not in shared), of(right, lambda x: x not in shared),
        )
        for left, right in ((a, b), (b, a))
        for one, other in product((a, b), (a, b))
    ]  # fmt: skip
    return min(plans, key=lambda p: p.copies(wanted)).run(k, sizes)


def cheapest_pair(terms: Sequence[Term], output: Labels, sizes: Mapping[str, int]) -> tuple[int, int]:
    """The two terms whose product grows least over what it replaces, then the one with the least work."""

    def elements(labels: Iterable[str]) -> int:
        return prod(sizes[label] for label in set(labels))

    def cost(pair: tuple[int, int]) -> tuple[int, int]:
        a, b = (terms[p].labels for p in pair)
        others = {x for p, t in enumerate(terms) if p not in pair for x in t.labels}
        left = [x for x in (*a, *b) if x in others or x in output]
        return elements(left) - elements(a) - elements(b), elements((*a, *b))

    return min(combinations(range(len(terms)), 2), key=cost)


@operator("Einsum", since=12)
def einsum(k: Builder, *inputs: Value, equation: str) -> Value:
    """Sums of products over the axes that the equation names on the left of '->' and not on its right."""
    found = Equation(k, equation, inputs)
    sizes, shape = found.sizes, [found.sizes[label] for label in found.output]
    dtype = inputs[0].dtype
    if not all(x.size for x in inputs):
        # Nothing to add up; without an axis of size 0 in the output its elements are empty sums.
        return k.compute(shape, dtype, lambda *_: lit(0, inputs[0].arithmetic))
    terms = [found.squeezed(term) for term in found.terms]
    # An axis of size 1 is in no term any more, so the output has it back at the end.
    output = tuple(x for x in found.output if any(x in t.labels for t in terms))

    def needed(without: Sequence[int]) -> frozenset[str]:
        return frozenset(output).union(*(t.labels for p, t in enumerate(terms) if p not in without))

    if len(terms) > 1:
        for position, term in enumerate(terms):
            kept = needed([position])
            order = tuple(x for x in dict.fromkeys(term.labels) if x in kept)
            terms[position] = arranged(k, term, order, sizes)
    while len(terms) > 1:
        i, j = cheapest_pair(terms, output, sizes)
        last = output if len(terms) == 2 else None
        made = contracted(k, terms[i], terms[j], needed([i, j]), last, sizes)
        terms = [*(t for p, t in enumerate(terms) if p not in (i, j)), made]
    return k.alias(arranged(k, terms[0], output, sizes).value, shape)
