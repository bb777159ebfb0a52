"""If, Loop and SequenceMap: layers that run other layers.

Where each run of a loop decides whether there is another, runs continue as if there were one, and keep the
old state if not (`SpeculativeIterations`): after some of them the plan stops to ask. So a loop waits for its
own data once in a while, not in every iteration.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import and_
from sys import maxsize
from typing import NoReturn

import numpy as np

from engine.base.dtypes import INT64, TEXT
from engine.graph.model import Model
from engine.kernels.expr import Expr
from engine.kernels.value import Entry, ListValue, Value
from engine.operators.builder import REPEATED, Builder
from engine.operators.control_flow_interface import Body, ControlFlow
from engine.operators.counted_loops import CountedIterations
from engine.operators.loop_bodies import LONGEST, MOST_RUNS, is_light, never_ends_early, slice_at, stacked
from engine.operators.loop_rolling import alike, number_of_run
from engine.operators.registry import operator
from engine.operators.speculative_iterations import (
    SpeculativeIterations,
    Stack,
    first_iterations,
    one_more,
    select_due,
)

CHUNK = REPEATED
"""Fewest runs of a body made in advance of knowing whether they are due: wasted work against waiting."""

ENDLESS = maxsize + 1
"""More runs than any trip count."""

SHARE = 4
"""Of so many runs that were due, one more is made in advance."""


def truth(k: Builder, condition: Value) -> bool | None:
    """A condition's value if it is known."""
    if condition.size != 1:
        k.error(f"its condition must have one element, not the shape {list(condition.shape)}")
    found = k.elements(condition)
    return None if found is None else bool(found.reshape(-1)[0])


@operator("If", kind="control", since=1)
class If(ControlFlow):
    """One of two subgraphs, chosen by a condition.

    Where the condition is still being computed and both branches are a few light layers (what exporters make
    of `a and b`), both run and the result is selected: that is cheaper than asking. Otherwise the plan stops
    for the condition, and the other branch costs nothing.
    """

    def __init__(self, k: Builder, cond: Value, *, then_branch: Model, else_branch: Model) -> None:
        counts = [len(branch.outputs) for branch in (then_branch, else_branch)]
        if counts[0] != counts[1]:
            k.error(f"its branches yield {counts[0]} and {counts[1]} outputs; both have to yield the same")
        self.condition = cond
        self.branches = (then_branch, else_branch)
        self.runs_both = truth(k, cond) is None and all(map(is_light, self.branches))
        self.outputs: list[tuple[Entry, ...]] = []

    def needs(self, k: Builder) -> tuple[Value, ...]:
        if self.runs_both and (len(self.outputs) < 2 or all(map(alike, *self.outputs))):
            return ()
        return (self.condition,)

    def next_iteration(self, k: Builder) -> Body | None:
        if self.runs_both:
            done = len(self.outputs)
            return Body(self.branches[done], (), str(done), tentative=True) if done < 2 else None
        return None if self.outputs else Body(self.branches[0 if truth(k, self.condition) else 1], ())

    def receive(self, k: Builder, outputs: tuple[Entry, ...]) -> None:
        self.outputs.append(outputs)

    def abandon_iteration(self) -> None:
        self.runs_both = False
        self.outputs = []

    def results(self, k: Builder) -> tuple[Entry, ...]:
        if not self.runs_both:
            return self.outputs[0]
        found = truth(k, self.condition)
        if found is not None:
            return self.outputs[0 if found else 1]
        flag = k.alias(self.condition, ())
        return tuple(select_due(k, flag, a, b) for a, b in zip(*self.outputs, strict=True))

    def live_values(self) -> tuple[Entry, ...]:
        return (self.condition, *(x for outputs in self.outputs for x in outputs))


@operator("Loop", kind="control", since=1, host=("trip_count", "condition"))
def loop(
    k: Builder, trip_count: Value | None = None, condition: Value | None = None, *carried: Entry, body: Model
) -> ControlFlow:
    """A body run up to `trip_count` times while a condition holds, with carried values and stacked outputs.

    The body takes the run's number, the condition and the carried values; it yields the next condition, the
    carried values, and what is stacked over the runs.
    """
    if len(body.inputs) != len(carried) + 2 or len(body.outputs) < len(carried) + 1:
        k.error(
            f"its body has {len(body.inputs)} inputs and {len(body.outputs)} outputs, which do not fit "
            f"{len(carried)} carried values"
        )
    limit = ENDLESS if trip_count is None else max(0, k.ints(trip_count)[0])
    if condition is not None and not truth(k, condition):
        limit = 0
    if never_ends_early(body) or not limit:
        return CountedLoop(body, limit, carried, looks_for_all=limit <= MOST_RUNS)
    return DataEndedLoop(body, limit, carried)


class CountedLoop(CountedIterations):
    """A loop whose condition its body never changes."""

    first_state = 1

    def inputs(self, k: Builder, number: int | Expr, states: Sequence[Entry]) -> tuple[Entry, ...]:
        if isinstance(number, Expr):
            value = number_of_run(k)
        elif self.count > LONGEST:
            refuse_long(k, f"{self.count:,} times" if self.count < ENDLESS else "on without an end")
        else:
            value = k.constant(np.array(number, INT64))
        return (value, k.constant(np.array(True)), *states)


def refuse_long(k: Builder, how: str) -> NoReturn:
    """Refuse a loop that would fill the plan."""
    k.error(
        f"runs {how}, and a loop may run {LONGEST:,} times; give it a smaller trip count, or a condition that"
        " ends it"
    )


class DataEndedLoop(ControlFlow):
    """A loop whose body decides whether to continue."""

    def __init__(self, body: Model, limit: int, carried: tuple[Entry, ...]) -> None:
        self.body = body
        self.limit = limit
        self.going = True
        self.carried = carried
        self.stacks: list[Stack] = []
        self.runs = 0
        # Where it is not known yet whether the next run is due: that, and how many of the runs so far were
        # (None: all of them).
        self.active: Value | None = None
        self.due: Value | None = None
        self.ahead = 0
        # Whether the last run kept the shapes of what is carried, and whether none made in advance failed.
        self.is_steady = self.looks_ahead = True
        # Runs made in advance of which one stands for all; whether data decides that, and whether it may.
        self.speculative: SpeculativeIterations | None = None
        self.data_decides = False
        self.looks_for_ahead = True

    @property
    def _is_over(self) -> bool:
        return not self.going or self.runs >= self.limit

    def needs(self, k: Builder) -> tuple[Value, ...]:
        counted = (self.due,) if self.due is not None and self.stacks and self.stacks[0].tensors else ()
        if self._is_over:
            return counted
        if self.active is not None and (self.ahead >= CHUNK or not (self.is_steady and self.looks_ahead)):
            return (self.active, *counted)
        return ()

    def next_iteration(self, k: Builder) -> Body | None:
        active = None if self.active is None else truth(k, self.active)
        if self.due is not None and (count := k.elements(self.due)) is not None:
            self.stacks = first_iterations(self.stacks, max(1, int(count.reshape(-1)[0])))
            self.due = None
        if active is not None:
            self.going = active
            self.active, self.ahead = None, 0
            self.due = None if active else self.due
        if self._is_over:
            return None
        if self.runs >= LONGEST:
            refuse_long(k, "on without an end")
        first = len(self.carried) + 1
        if self.data_decides and self.looks_for_ahead:
            most = min(self.limit, LONGEST) - self.runs
            count_ahead = min(max(CHUNK, self.runs // SHARE), most)
            self.speculative = SpeculativeIterations.open(
                k, self.runs, count_ahead, self.carried, self.active, self.due
            )
            self.looks_for_ahead = self.speculative is not None
            if self.speculative is not None:
                ahead = self.speculative.inputs(k)
                return Body(self.body, ahead, f"{self.runs} on", True, first, stands_for_all=True)
        inputs = (k.constant(np.array(self.runs, INT64)), k.constant(np.array(True)), *self.carried)
        return Body(self.body, inputs, str(self.runs), self.active is not None, exact_from=first)

    def abandon_iteration(self) -> None:
        if self.speculative is not None:
            self.speculative, self.looks_for_ahead = None, False
            return
        self.looks_ahead = False

    def receive(self, k: Builder, outputs: tuple[Entry, ...]) -> None:
        condition, after = outputs[0], outputs[1 : len(self.carried) + 1]
        stacks = tuple(x for x in outputs[len(self.carried) + 1 :] if isinstance(x, Value))
        if not isinstance(condition, Value) or len(stacks) + len(self.carried) + 1 < len(outputs):
            k.error("its condition and what it stacks must be tensors; carry sequences instead")
        found = truth(k, condition)
        if self.speculative is not None:
            self.looks_for_ahead = found is None and self.speculative.receive(k, condition, after, stacks)
            if self.looks_for_ahead:
                self.carried, self.active, self.due = self.speculative.states(k)
                self.stacks.append(self.speculative.stack(k, len(stacks)))
                self.runs += self.speculative.count
                self.ahead += self.speculative.count
            self.speculative = None
            return
        self.is_steady = all(map(alike, after, self.carried))
        if self.active is not None:
            if not self.is_steady:
                # Old and new cannot stand in for one another: this run waits until it is due.
                return
            active = self.active
            after = tuple(
                select_due(k, active, new, old) for new, old in zip(after, self.carried, strict=True)
            )
            before = k.constant(np.array(self.runs, INT64)) if self.due is None else self.due
            self.due = one_more(k, before, active)
        self.carried = after
        self.stacks.append(Stack(stacks))
        self.runs += 1
        if found is False:
            self.going, self.active = False, None
        elif found is None:
            self.data_decides = True
            flag = k.alias(condition, ())
            self.active = flag if self.active is None else k.elementwise(and_, self.active, flag)
            self.ahead += 1

    def results(self, k: Builder) -> tuple[Entry, ...]:
        columns = zip(*(stack.tensors for stack in self.stacks), strict=True)
        counts = [stack.runs for stack in self.stacks]
        return (*self.carried, *(stacked(k, slices, counts=counts) for slices in columns))

    def live_values(self) -> tuple[Entry, ...]:
        stacked_ = (x for stack in self.stacks for x in stack.tensors)
        return (*self.carried, *stacked_, self.active, self.due)


@operator("SequenceMap", kind="control", since=17)
class SequenceMap(CountedIterations):
    """A body run for each element of a sequence (and of others as long); its outputs become sequences."""

    def __init__(self, k: Builder, sequence: ListValue, *others: Entry, body: Model) -> None:
        self.given: tuple[Entry, ...] = (sequence, *others)
        length = len(sequence.items)
        if any(isinstance(x, ListValue) and len(x.items) != length for x in others):
            k.error("its sequences have different lengths")
        super().__init__(body, length, (), looks_for_all=all(map(are_alike, self.given)))
        self.sample = ()

    def inputs(self, k: Builder, number: int | Expr, states: Sequence[Entry]) -> tuple[Entry, ...]:
        if isinstance(number, Expr):
            return tuple([entry_of(k, x, number) for x in self.given])
        return tuple(x.items[number] if isinstance(x, ListValue) else x for x in self.given)

    def results(self, k: Builder) -> tuple[Entry, ...]:
        found: list[Entry] = []
        for number, declared in enumerate(self.body.outputs):
            if self.rolled is not None:
                rows = self.stacked(k, number)
                items = [slice_at(k, rows, 0, step) for step in range(self.count)]
                found.append(k.sequence(items, rows.dtype, rows))
                continue
            items = [results[number] for results in self.stacks]
            dtype = items[0].dtype if items else declared.dtype
            found.append(k.sequence(items, np.dtype(np.float32) if dtype is None else dtype))
        return tuple(found)

    def live_values(self) -> tuple[Entry, ...]:
        return (*self.given, *super().live_values())


def are_alike(entry: Entry) -> bool:
    """Whether all tensors of a sequence have one shape; a single one does."""
    items = entry.items if isinstance(entry, ListValue) else ()
    return all(x.shape == items[0].shape and x.bound is None and x.dtype != TEXT for x in items)


def entry_of(k: Builder, entry: Entry, number: Expr) -> Entry:
    """A tensor of a sequence by a run-time index; a tensor is returned unchanged."""
    if not isinstance(entry, ListValue):
        return entry
    return slice_at(k, stacked(k, entry.items) if entry.rows is None else entry.rows, 0, number)
