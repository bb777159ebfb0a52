"""Rolled loops: the plan contains a loop's body once and repeats it."""

from __future__ import annotations

from collections.abc import Sequence

from engine.base.dtypes import INT64, arithmetic_type
from engine.kernels.expr import Expr, arg, cast, iteration_number, lit
from engine.kernels.value import Entry, Value
from engine.operators.builder import REPEATED, Builder, Part, Repeated

MOST_COUNTED = 256
"""How many runs of a loop are made one by one so that integers stay known."""


def alike(new: Entry, old: Entry) -> bool:
    """Whether a carried value has kept its type and shape, so that the old one can stand in for it."""
    return new is old or (
        isinstance(new, Value)
        and isinstance(old, Value)
        and (new.shape, new.dtype, new.bound, old.bound) == (old.shape, old.dtype, None, None)
    )


def number_of_run(k: Builder, begin: int = 0) -> Value:
    """The number of a repeated run, which the first one has as `begin`: int64, without axes."""
    return k.compute((), INT64, lambda: cast(iteration_number() + arg(begin), arithmetic_type(INT64)))


class RolledLoop:
    """A loop whose runs are a repeat; `before` are the states that its body takes."""

    def __init__(self, count: int, first: Sequence[Value], before: Sequence[Value]) -> None:
        self.count = count
        self.first = first
        self.before = before
        self._kept: Sequence[Value] = ()
        self._repeated: Repeated | None = None

    @classmethod
    def begin(
        cls, k: Builder, count: int, states: Sequence[Entry], may_be_sizes: bool = True
    ) -> RolledLoop | None:
        """Start a rolled loop; None if iterations must be unrolled: few of them, or states that are sizes.

        Integers that are known before the first run may be known after all of them, and shapes may depend on
        them: such runs are made one by one as long as there are not too many, if their states `may_be_sizes`.
        """
        first = [s for s in states if isinstance(s, Value) and s.bound is None and s.dtype.kind != "O"]
        # One plan for all numbers, but for a single run, which takes no copies of states.
        fewest = 2 if k.varies(count) else REPEATED
        if len(first) < len(states) or count < fewest:
            return None
        are_known = any(s.known is not None and s.dtype.kind in "iub" for s in first)
        if may_be_sizes and are_known and count < MOST_COUNTED:
            return None
        before = k.before_iterations(first)
        return None if before is None else cls(count, first, before)

    def receive(self, k: Builder, after: Sequence[Entry], kept: Sequence[Entry]) -> bool:
        """Receive an iteration's states and stacked values; returns False if the loop cannot be rolled."""
        states = [v for v in after if isinstance(v, Value)]
        self._kept = [v for v in kept if isinstance(v, Value) and v.bound is None]
        if len(self._kept) < len(kept) or not all(map(alike, after, self.before)):
            return False
        self._repeated = k.repeated(self.count, self.first, self.before, states, self._kept)
        return self._repeated is not None

    def states(self, k: Builder) -> tuple[Value, ...]:
        """The states after the last iteration."""
        assert self._repeated is not None
        return tuple(
            self._part(k, part, before.shape, before.shape)
            for before, part in zip(self.before, self._repeated.last, strict=True)
        )

    def stack(self, k: Builder, number: int, axis: int = 0, is_reversed: bool = False) -> Value:
        """The stacked values of all iterations."""
        assert self._repeated is not None
        shape, part = self._kept[number].shape, self._repeated.kept[number]
        axis = k.axis(axis, len(shape) + 1)
        return self._part(k, part, (*shape[:axis], self.count, *shape[axis:]), shape, axis, is_reversed)

    def _part(
        self,
        k: Builder,
        part: Part,
        shape: tuple[int, ...],
        inner: tuple[int, ...],
        axis: int | None = None,
        is_reversed: bool = False,
    ) -> Value:
        values, start, stride = part
        strides = [1] * len(inner)
        for a in range(len(inner) - 1, 0, -1):
            strides[a - 1] = strides[a] * inner[a]

        def formula(*at: Expr) -> Expr:
            position: Expr = arg(start)
            indices = list(at)
            if axis is not None:
                run = indices.pop(axis)
                position = position + (arg(self.count - 1) - run if is_reversed else run) * arg(stride)
            for i, step in zip(indices, strides, strict=True):
                position = position + i * (lit(1) if step is strides[-1] else arg(step))
            return values.at(position)

        return k.compute(shape, values.dtype, formula)
