"""If, Loop and SequenceMap: layers that run other layers.

A loop whose number of runs is known has one run in the plan, which is repeated (`RolledLoop`), or as many
copies of its body where the backend or the body does not allow that. Where each run decides whether there is
another, runs continue as if there were one, and keep the old state if not (`SpeculativeRuns`): after some of
them the plan stops to ask. So a loop waits for its own data once in a while, not at every turn.
"""

from __future__ import annotations

from operator import and_
from sys import maxsize

import numpy as np

from engine.base.dtypes import INT64, TEXT
from engine.graph.model import Model
from engine.kernels.expr import Expr, run_number
from engine.kernels.value import Entry, ListValue, Value
from engine.operators.bodies import (
    LONGEST,
    MOST_RUNS,
    always_goes_on,
    is_light,
    nothing_from,
    slice_at,
    stacked,
    tensor_of,
)
from engine.operators.builder import REPEATED, Builder
from engine.operators.control import Body, ControlFlow
from engine.operators.loop_rolling import RolledLoop, alike
from engine.operators.registry import operator
from engine.operators.speculative_runs import SpeculativeRuns, Stack, chosen, first_runs, one_more

CHUNK = REPEATED
"""Fewest runs of a body made in advance of knowing whether they are due: wasted work against waiting."""

SHARE = 4
"""Of so many runs that were due, one more is made in advance."""


def truth(k: Builder, condition: Value) -> bool | None:
    """A condition's value, where it is known."""
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

    def next_run(self, k: Builder) -> Body | None:
        if self.runs_both:
            done = len(self.outputs)
            return Body(self.branches[done], (), str(done), tentative=True) if done < 2 else None
        return None if self.outputs else Body(self.branches[0 if truth(k, self.condition) else 1], ())

    def took(self, k: Builder, outputs: tuple[Entry, ...]) -> None:
        self.outputs.append(outputs)

    def gave_up(self) -> None:
        self.runs_both = False
        self.outputs = []

    def results(self, k: Builder) -> tuple[Entry, ...]:
        if not self.runs_both:
            return self.outputs[0]
        found = truth(k, self.condition)
        if found is not None:
            return self.outputs[0 if found else 1]
        flag = k.alias(self.condition, ())
        return tuple(chosen(k, flag, a, b) for a, b in zip(*self.outputs, strict=True))

    def holds(self) -> tuple[Entry, ...]:
        return (self.condition, *(x for outputs in self.outputs for x in outputs))


@operator("Loop", kind="control", since=1, host=("trip_count", "condition"))
class Loop(ControlFlow):
    """A body run up to `trip_count` times while a condition holds, with carried values and stacked outputs.

    The body takes the run's number, the condition and the carried values; it yields the next condition, the
    carried values, and what is stacked over the runs.
    """

    def __init__(
        self, k: Builder, trip_count: Value | None = None, condition: Value | None = None,
        *carried: Entry, body: Model,
    ) -> None:  # fmt: skip
        if len(body.inputs) != len(carried) + 2 or len(body.outputs) < len(carried) + 1:
            k.error(
                f"its body has {len(body.inputs)} inputs and {len(body.outputs)} outputs, which do not fit "
                f"{len(carried)} carried values"
            )
        self.body = body
        self.is_endless = trip_count is None
        self.limit = maxsize if trip_count is None else k.ints(trip_count)[0]
        self.going = condition is None or bool(truth(k, condition))
        self.is_counted = always_goes_on(body)
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
        # What a run would stack where none is due, for its shapes; empty where that is not known.
        self.sample: tuple[Value, ...] | None = None
        # The run that stands for all, and whether there may be one.
        self.rolled: RolledLoop | None = None
        self.looks_for_all = True
        # Runs made in advance of which one stands for all; whether data decides that, and whether it may.
        self.speculative: SpeculativeRuns | None = None
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

    def next_run(self, k: Builder) -> Body | None:
        active = None if self.active is None else truth(k, self.active)
        if self.due is not None and (count := k.elements(self.due)) is not None:
            self.stacks = first_runs(self.stacks, int(count.reshape(-1)[0]))
            self.due = None
        if active is not None:
            self.going = active
            self.active, self.ahead = None, 0
            self.due = None if active else self.due
        stacks_nothing = not self.runs and len(self.body.outputs) > len(self.carried) + 1
        if self._is_over and not (stacks_nothing and self.sample is None):
            return None
        if self.looks_for_all and self.is_counted and not self._is_over and self.limit <= MOST_RUNS:
            self.looks_for_all = False
            self.rolled = RolledLoop.begin(k, self.limit, self.carried) if self.carried else None
            if self.rolled is not None:
                taken = (self.rolled.number(k), k.constant(np.array(True)), *self.rolled.before)
                return Body(self.body, taken, "each", True, len(self.carried) + 1, stands_for_all=True)
        if self.rolled is not None:
            return None
        if self.runs >= LONGEST or (self.is_counted and self.limit > LONGEST):
            is_known = self.is_counted and not self.is_endless
            runs = f"{self.limit:,} times" if is_known else "on without an end"
            k.error(
                f"runs {runs}, and a loop may run {LONGEST:,} times; give it a smaller trip count, or a"
                " condition that ends it"
            )
        if self.data_decides and self.looks_for_ahead and not self._is_over:
            most = min(self.limit, LONGEST) - self.runs
            count_ahead = min(max(CHUNK, self.runs // SHARE), most)
            self.speculative = SpeculativeRuns.open(
                k, self.runs, count_ahead, self.carried, self.active, self.due
            )
            self.looks_for_ahead = self.speculative is not None
            if self.speculative is not None:
                label, first = f"{self.runs} on", len(self.carried) + 1
                return Body(self.body, self.speculative.inputs(k), label, True, first, stands_for_all=True)
        number = k.constant(np.array(self.runs, INT64))
        tentative = self._is_over or self.active is not None
        inputs = (number, k.constant(np.array(True)), *self.carried)
        return Body(self.body, inputs, str(self.runs), tentative, exact_from=len(self.carried) + 1)

    def runs_left(self) -> int:
        is_sure = self.is_counted and self.rolled is None and not self._is_over
        return self.limit - self.runs if is_sure else 0

    def gave_up(self) -> None:
        if self.rolled is not None:
            self.rolled = None
            return
        if self.speculative is not None:
            self.speculative, self.looks_for_ahead = None, False
            return
        if self._is_over:
            self.sample = ()
        self.looks_ahead = False

    def took(self, k: Builder, outputs: tuple[Entry, ...]) -> None:
        condition, after = outputs[0], outputs[1 : len(self.carried) + 1]
        if self.rolled is not None:
            if not self.rolled.took(k, after, outputs[len(self.carried) + 1 :]):
                self.rolled = None
            return
        stacks = tuple(x for x in outputs[len(self.carried) + 1 :] if isinstance(x, Value))
        if not isinstance(condition, Value) or len(stacks) + len(self.carried) + 1 < len(outputs):
            k.error("its condition and what it stacks must be tensors; carry sequences instead")
        if self._is_over:
            self.sample = stacks
            return
        found = truth(k, condition)
        if self.speculative is not None:
            self.looks_for_ahead = found is None and self.speculative.took(k, condition, after, stacks)
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
            after = tuple(chosen(k, active, new, old) for new, old in zip(after, self.carried, strict=True))
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
        first = len(self.carried) + 1
        if self.rolled is not None:
            numbers = range(len(self.body.outputs) - first)
            return (*self.rolled.states(k), *(self.rolled.stack(k, n) for n in numbers))
        found = []
        for position in range(len(self.body.outputs) - first):
            slices = [stack.tensors[position] for stack in self.stacks]
            if slices:
                found.append(stacked(k, slices, counts=[stack.runs for stack in self.stacks]))
            else:
                sample = self.sample[position] if self.sample else None
                found.append(nothing_from(k, self.body, first + position, sample))
        return (*self.carried, *found)

    def holds(self) -> tuple[Entry, ...]:
        stacked_ = (x for stack in self.stacks for x in stack.tensors)
        return (*self.carried, *stacked_, self.active, self.due)


@operator("SequenceMap", kind="control", since=17)
class SequenceMap(ControlFlow):
    """A body run for each element of a sequence (and of others as long); its outputs become sequences."""

    def __init__(self, k: Builder, sequence: ListValue, *others: Entry, body: Model) -> None:
        self.body = body
        self.inputs: tuple[Entry, ...] = (sequence, *others)
        self.length = len(sequence.items)
        if any(isinstance(x, ListValue) and len(x.items) != self.length for x in others):
            k.error("its sequences have different lengths")
        self.outputs: list[tuple[Entry, ...]] = []
        # The run that stands for all, and whether there may be one.
        self.rolled: RolledLoop | None = None
        self.looks_for_all = all(map(are_alike, self.inputs))

    def next_run(self, k: Builder) -> Body | None:
        if self.looks_for_all:
            self.looks_for_all = False
            self.rolled = RolledLoop.begin(k, self.length, ())
            if self.rolled is not None:
                taken = tuple([entry_of(k, x, run_number()) for x in self.inputs])
                return Body(self.body, taken, "each", True, 0, stands_for_all=True)
        step = len(self.outputs)
        if self.rolled is not None or step >= self.length:
            return None
        taken = tuple(x.items[step] if isinstance(x, ListValue) else x for x in self.inputs)
        return Body(self.body, taken, str(step))

    def took(self, k: Builder, outputs: tuple[Entry, ...]) -> None:
        if self.rolled is None:
            self.outputs.append(outputs)
        elif not self.rolled.took(k, (), outputs):
            self.rolled = None

    def runs_left(self) -> int:
        return self.length - len(self.outputs) if self.rolled is None else 0

    def gave_up(self) -> None:
        self.rolled = None

    def results(self, k: Builder) -> tuple[Entry, ...]:
        found: list[Entry] = []
        for position, declared in enumerate(self.body.outputs):
            if self.rolled is not None:
                rows = self.rolled.stack(k, position)
                items = [slice_at(k, rows, 0, step) for step in range(self.length)]
                found.append(k.sequence(items, rows.dtype, rows))
                continue
            items = [tensor_of(k, outputs[position]) for outputs in self.outputs]
            dtype = items[0].dtype if items else declared.dtype
            found.append(k.sequence(items, np.dtype(np.float32) if dtype is None else dtype))
        return tuple(found)

    def holds(self) -> tuple[Entry, ...]:
        return (*self.inputs, *(x for outputs in self.outputs for x in outputs))


def are_alike(entry: Entry) -> bool:
    """Whether all tensors of a sequence have one shape; a single one does."""
    items = entry.items if isinstance(entry, ListValue) else ()
    return all(x.shape == items[0].shape and x.bound is None and x.dtype != TEXT for x in items)


def entry_of(k: Builder, entry: Entry, number: Expr) -> Entry:
    """The tensor of a sequence with a number that a kernel knows; a tensor as it is."""
    if not isinstance(entry, ListValue):
        return entry
    return slice_at(k, stacked(k, entry.items) if entry.rows is None else entry.rows, 0, number)
