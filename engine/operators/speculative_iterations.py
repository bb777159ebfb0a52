"""Speculative loop iterations: run before the loop's condition is known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import and_
from typing import NamedTuple

import numpy as np

from engine.base.dtypes import INT64
from engine.kernels.expr import cast, select
from engine.kernels.value import Entry, Value
from engine.operators.builder import Builder
from engine.operators.loop_rolling import RolledLoop, alike, number_of_run


class Stack(NamedTuple):
    """The stacked values of one iteration, or of several along an additional first axis."""

    tensors: tuple[Value, ...]
    runs: int | None = None


def first_iterations(stacks: Iterable[Stack], count: int) -> list[Stack]:
    """The stacked values of the first `count` iterations."""
    found = []
    for stack in stacks:
        if count <= 0:
            break
        if stack.runs is not None and stack.runs > count:
            stack = Stack(tuple([x.view((count, *x.shape[1:])) for x in stack.tensors]), count)
        found.append(stack)
        count -= 1 if stack.runs is None else stack.runs
    return found


def select_due(k: Builder, active: Value, new: Entry, old: Entry) -> Entry:
    """Select the new value if an iteration was due, else the old one."""
    if new is old or not isinstance(new, Value) or not isinstance(old, Value):
        return new
    return k.elementwise(select, active, new, old, dtype=new.dtype)


def one_more(k: Builder, due: Value, active: Value) -> Value:
    """How many runs were due, after one that was if `active` holds."""
    return k.elementwise(lambda n, a: n + cast(a, "int64"), due, active)


class SpeculativeIterations:
    """Speculative iterations as a repeat; states include whether an iteration is due, and how many were."""

    def __init__(self, rolled: RolledLoop, begin: int) -> None:
        self._rolled = rolled
        self.begin = begin
        self.count = rolled.count

    @classmethod
    def open(
        cls,
        k: Builder,
        begin: int,
        count: int,
        carried: Sequence[Entry],
        active: Value | None,
        due: Value | None,
    ) -> SpeculativeIterations | None:
        """Start `count` iterations from number `begin` on; None if they must be unrolled.

        active: whether the first one is due, None where it is. due: how many before it were, None for all.
        """
        states = (
            *carried,
            k.constant(np.array(True)) if active is None else active,
            k.constant(np.array(begin, INT64)) if due is None else due,
        )
        rolled = RolledLoop.begin(k, count, states, may_be_sizes=False)
        return None if rolled is None else cls(rolled, begin)

    def inputs(self, k: Builder) -> tuple[Value, ...]:
        """The body's inputs: iteration number, condition and states."""
        *carried, _, _ = self._rolled.before
        return (number_of_run(k, self.begin), k.constant(np.array(True)), *carried)

    def receive(self, k: Builder, condition: Value, after: Sequence[Entry], kept: Sequence[Entry]) -> bool:
        """Receive the body's results; returns False if the iterations cannot be rolled."""
        *carried, active, due = self._rolled.before
        if not all(map(alike, after, carried)):
            return False
        after = [select_due(k, active, new, old) for new, old in zip(after, carried, strict=True)]
        runs_while_halted = k.elementwise(and_, active, k.alias(condition, ()))
        return self._rolled.receive(k, (*after, runs_while_halted, one_more(k, due, active)), kept)

    def states(self, k: Builder) -> tuple[tuple[Value, ...], Value, Value]:
        """The states after the last run, whether another one is due, and how many were."""
        *carried, active, due = self._rolled.states(k)
        return tuple(carried), active, due

    def stack(self, k: Builder, count: int) -> Stack:
        """The stacked values, `count` tensors."""
        return Stack(tuple([self._rolled.stack(k, number) for number in range(count)]), self.count)
