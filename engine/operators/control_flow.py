"""If, Loop, Scan and SequenceMap: layers that run other layers.

A loop whose number of runs is known becomes that many copies of its body in the command list. Where each run
decides whether there is another, runs go on as if there were one, and keep the old state if not: after
`CHUNK` of them the plan stops to ask. So a loop waits for its own data once in a while, not at every turn.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Sequence
from math import prod
from operator import and_
from sys import maxsize
from typing import Self

import numpy as np

from engine.base.dtypes import INT64
from engine.graph.model import Model
from engine.kernels.expr import cast, select
from engine.kernels.value import Entry, ListValue, Value
from engine.operators.bodies import always_goes_on, is_light
from engine.operators.builder import Builder
from engine.operators.control import Body, ControlFlow
from engine.operators.movement import chained
from engine.operators.registry import control_operator

LONGEST = 20_000
"""Most runs of one loop: each becomes a copy of the body in the plan, and one without an end fills memory."""

CHUNK = 8
"""Runs of a body made in advance of knowing whether they are due: wasted work against waiting."""


STACKED_AT_ONCE = 3
"""How many results one step joins: few, so that loops made when loading have joins of all kinds."""


def truth(k: Builder, condition: Value) -> bool | None:
    """A condition's value, where it is known."""
    if condition.size != 1:
        k.error(f"its condition must have one element, not the shape {list(condition.shape)}")
    found = k.elements(condition)
    return None if found is None else bool(found.reshape(-1)[0])


def stacked(k: Builder, slices: Sequence[Value], axis: int = 0) -> Value:
    """Tensors of one shape along a new axis, by the same kernels however many there are."""
    rank = slices[0].rank + 1
    axis = k.axis(axis, rank)
    for x in slices:
        if x.shape != slices[0].shape:
            k.error(f"its runs yield {list(slices[0].shape)} and {list(x.shape)}, which do not stack")
        if x.dtype != slices[0].dtype:
            k.error(f"its runs yield {slices[0].dtype.name} and {x.dtype.name}, which do not stack")
    shape = slices[0].shape
    rows = [k.alias(x, (prod(shape[:axis]), prod(shape[axis:]))) for x in slices]
    return k.alias(chained(k, rows, STACKED_AT_ONCE), (*shape[:axis], len(slices), *shape[axis:]))


def slice_at(k: Builder, x: Value, axis: int, position: int) -> Value:
    """The slice of a tensor at a position along an axis, without that axis; zeros where there is none."""
    if not x.shape[axis]:
        return k.constant(np.zeros((*x.shape[:axis], *x.shape[axis + 1 :]), x.dtype))
    outer, inner = prod(x.shape[:axis]), prod(x.shape[axis + 1 :])
    rows = k.alias(x, (outer, x.shape[axis] * inner))
    taken = k.compute((outer, inner), x.dtype, lambda o, i: rows[o, i + position * inner])
    return k.alias(taken, (*x.shape[:axis], *x.shape[axis + 1 :]))


def nothing_from(k: Builder, body: Model, position: int, sample: Value | None, axis: int = 0) -> Value:
    """What the scan output at `position` of a body's outputs is after no run at all.

    A `sample` of what it would stack tells the shape; else what the body declares does.
    """
    declared = body.outputs[position]
    dims = [n if isinstance(n, int) else 0 for n in declared.shape or ()]
    dtype = np.dtype(np.float32) if declared.dtype is None else declared.dtype
    if sample is not None:
        dims, dtype = [*sample.shape], sample.dtype
    dims.insert(axis if axis >= 0 else len(dims) + 1 + axis, 0)
    return k.constant(np.zeros(dims, dtype))


@control_operator("If", since=1)
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

    def copy(self) -> If:
        other = copy.copy(self)
        other.outputs = list(self.outputs)
        return other


@control_operator("Loop", since=1, host=("trip_count", "condition"))
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
        self.stacks: list[tuple[Value, ...]] = []
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

    @property
    def _is_over(self) -> bool:
        return not self.going or self.runs >= self.limit

    def needs(self, k: Builder) -> tuple[Value, ...]:
        counted = (self.due,) if self.due is not None and self.stacks and self.stacks[0] else ()
        if self._is_over:
            return counted
        if self.active is not None and (self.ahead >= CHUNK or not (self.is_steady and self.looks_ahead)):
            return (self.active, *counted)
        return ()

    def next_run(self, k: Builder) -> Body | None:
        active = None if self.active is None else truth(k, self.active)
        if self.due is not None and (count := k.elements(self.due)) is not None:
            self.stacks = self.stacks[: int(count.reshape(-1)[0])]
            self.due = None
        if active is not None:
            self.going = active
            self.active, self.ahead = None, 0
            self.due = None if active else self.due
        stacks_nothing = not self.runs and len(self.body.outputs) > len(self.carried) + 1
        if self._is_over and not (stacks_nothing and self.sample is None):
            return None
        if self.runs >= LONGEST or (self.is_counted and self.limit > LONGEST):
            is_known = self.is_counted and not self.is_endless
            runs = f"{self.limit:,} times" if is_known else "on without an end"
            k.error(
                f"runs {runs}, and a loop may run {LONGEST:,} times; give it a smaller trip count, or a"
                " condition that ends it"
            )
        number = k.constant(np.array(self.runs, INT64))
        tentative = self._is_over or self.active is not None
        inputs = (number, k.constant(np.array(True)), *self.carried)
        return Body(self.body, inputs, str(self.runs), tentative, exact_from=len(self.carried) + 1)

    def runs_left(self) -> int:
        return self.limit - self.runs if self.is_counted and not self._is_over else 0

    def gave_up(self) -> None:
        if self._is_over:
            self.sample = ()
        self.looks_ahead = False

    def took(self, k: Builder, outputs: tuple[Entry, ...]) -> None:
        condition, after = outputs[0], outputs[1 : len(self.carried) + 1]
        stacks = tuple(x for x in outputs[len(self.carried) + 1 :] if isinstance(x, Value))
        if not isinstance(condition, Value) or len(stacks) + len(self.carried) + 1 < len(outputs):
            k.error("its condition and what it stacks must be tensors; carry sequences instead")
        if self._is_over:
            self.sample = stacks
            return
        found = truth(k, condition)
        self.is_steady = all(map(alike, after, self.carried))
        if self.active is not None:
            if not self.is_steady:
                # Old and new cannot stand in for one another: this run waits until it is due.
                return
            active = self.active
            after = tuple(chosen(k, active, new, old) for new, old in zip(after, self.carried, strict=True))
            before = k.constant(np.array(self.runs, INT64)) if self.due is None else self.due
            self.due = k.elementwise(lambda n, a: n + cast(a, "int64"), before, active)
        self.carried = after
        self.stacks.append(stacks)
        self.runs += 1
        if found is False:
            self.going, self.active = False, None
        elif found is None:
            flag = k.alias(condition, ())
            self.active = flag if self.active is None else k.elementwise(and_, self.active, flag)
            self.ahead += 1

    def results(self, k: Builder) -> tuple[Entry, ...]:
        first = len(self.carried) + 1
        found = []
        for position in range(len(self.body.outputs) - first):
            slices = [stack[position] for stack in self.stacks]
            if slices:
                found.append(stacked(k, slices))
            else:
                sample = self.sample[position] if self.sample else None
                found.append(nothing_from(k, self.body, first + position, sample))
        return (*self.carried, *found)

    def holds(self) -> tuple[Entry, ...]:
        return (*self.carried, *(x for stack in self.stacks for x in stack), self.active, self.due)

    def copy(self) -> Loop:
        other = copy.copy(self)
        other.stacks = list(self.stacks)
        return other


def alike(new: Entry, old: Entry) -> bool:
    """Whether a carried value has kept its type and shape, so that the old one can stand in for it."""
    return new is old or (
        isinstance(new, Value)
        and isinstance(old, Value)
        and (new.shape, new.dtype, new.bound, old.bound) == (old.shape, old.dtype, None, None)
    )


def chosen(k: Builder, active: Value, new: Entry, old: Entry) -> Entry:
    """The new value where a run was due, else the old one."""
    if new is old or not isinstance(new, Value) or not isinstance(old, Value):
        return new
    return k.elementwise(select, active, new, old, dtype=new.dtype)


class _Scan(ControlFlow):
    """Runs of a body over the slices of some tensors, one batch entry after another."""

    body: Model
    scanned: tuple[Value, ...]
    states: list[tuple[Entry, ...]]

    def _prepare(self, k: Builder, batches: int, lengths: Sequence[int]) -> None:
        self.batches = batches
        self.lengths = lengths
        self.batch = self.step = 0
        # What a run would stack where there is none, for its shapes; empty where that is not known.
        self.sample: tuple[Value, ...] | None = None
        self.stacks: list[list[tuple[Value, ...]]] = [[] for _ in range(batches)]

    @abstractmethod
    def slices(self, k: Builder, batch: int, step: int) -> tuple[Value, ...]:
        """What the body takes at a step besides the state."""

    def next_run(self, k: Builder) -> Body | None:
        while self.batch < self.batches and self.step >= self.lengths[self.batch]:
            self.batch, self.step = self.batch + 1, 0
        if self.batch >= self.batches:
            if not self.batches or any(self.lengths) or self.sample is not None:
                return None
            return self._run((*self.states[0], *self.slices(k, 0, 0)), "0", tentative=True)
        inputs = (*self.states[self.batch], *self.slices(k, self.batch, self.step))
        label = f"{self.batch}, {self.step}" if self.batches > 1 else str(self.step)
        return self._run(inputs, label)

    def _run(self, inputs: tuple[Entry, ...], label: str, tentative: bool = False) -> Body:
        return Body(self.body, inputs, label, tentative, exact_from=len(self.states[0]))

    def runs_left(self) -> int:
        return sum(self.lengths[self.batch :]) - self.step if self.batch < self.batches else 0

    def gave_up(self) -> None:
        self.sample = ()

    def took(self, k: Builder, outputs: tuple[Entry, ...]) -> None:
        count = len(self.states[0])
        stacks = tuple(x for x in outputs[count:] if isinstance(x, Value))
        if len(stacks) + count < len(outputs):
            k.error("its body may yield tensors only")
        if self.batch >= self.batches:
            self.sample = stacks
            return
        self.states[self.batch] = outputs[:count]
        self.stacks[self.batch].append(stacks)
        self.step += 1

    def holds(self) -> tuple[Entry, ...]:
        stacks = (x for runs in self.stacks for stack in runs for x in stack)
        return (*self.scanned, *(x for state in self.states for x in state), *stacks)

    def copy(self) -> Self:
        other = copy.copy(self)
        other.states = list(self.states)
        other.stacks = [list(runs) for runs in self.stacks]
        return other


def one_for_each(k: Builder, name: str, given: Sequence[int], count: int) -> Sequence[int]:
    """An attribute with an entry for each of `count` tensors; absent it is 0 for all."""
    if given and len(given) != count:
        k.error(f"its {name} has {len(given)} entries for {count} tensors")
    return given or (0,) * count


@control_operator("Scan", since=9)
class Scan(_Scan):
    """A body run over the slices of the last `num_scan_inputs` inputs, with a state that it hands on."""

    def __init__(
        self, k: Builder, *inputs: Value, body: Model, num_scan_inputs: int,
        scan_input_axes: Sequence[int] = (), scan_input_directions: Sequence[int] = (),
        scan_output_axes: Sequence[int] = (), scan_output_directions: Sequence[int] = (),
    ) -> None:  # fmt: skip
        first = len(inputs) - num_scan_inputs
        if num_scan_inputs < 1 or first < 0 or len(body.inputs) != len(inputs):
            k.error(f"its {len(inputs)} inputs do not fit num_scan_inputs {num_scan_inputs} and its body")
        self.body = body
        self.scanned = inputs[first:]
        axes = one_for_each(k, "scan_input_axes", scan_input_axes, num_scan_inputs)
        self.axes = [k.axis(a, x.rank) for a, x in zip(axes, self.scanned, strict=True)]
        self.reverse = one_for_each(k, "scan_input_directions", scan_input_directions, num_scan_inputs)
        outputs = len(body.outputs) - first
        self.output_axes = one_for_each(k, "scan_output_axes", scan_output_axes, outputs)
        self.output_reverse = one_for_each(k, "scan_output_directions", scan_output_directions, outputs)
        sizes = {x.shape[a] for x, a in zip(self.scanned, self.axes, strict=True)}
        if len(sizes) != 1:
            k.error(f"its inputs have different lengths {sorted(sizes)} along the axes to scan")
        self.states = [tuple(inputs[:first])]
        self._prepare(k, 1, [sizes.pop()])

    def slices(self, k: Builder, batch: int, step: int) -> tuple[Value, ...]:
        length = self.lengths[0]
        at = [length - 1 - step if reverse else step for reverse in self.reverse]
        return tuple(slice_at(k, x, a, p) for x, a, p in zip(self.scanned, self.axes, at, strict=True))

    def results(self, k: Builder) -> tuple[Entry, ...]:
        state = self.states[0]
        found = []
        for position, (axis, reverse) in enumerate(zip(self.output_axes, self.output_reverse, strict=True)):
            slices = [stack[position] for stack in self.stacks[0]]
            slices = slices[::-1] if reverse else slices
            if slices:
                found.append(stacked(k, slices, axis))
            else:
                sample = self.sample[position] if self.sample else None
                found.append(nothing_from(k, self.body, len(state) + position, sample, axis))
        return (*state, *found)


@control_operator("Scan", since=1, until=8, host=("sequence_lens",))
class Scan8(_Scan):
    """Scan over batches: axis 0 of every input is the batch, axis 1 of the last ones the sequence."""

    def __init__(
        self, k: Builder, sequence_lens: Value | None = None, *inputs: Value,
        body: Model, num_scan_inputs: int, directions: Sequence[int] = (),
    ) -> None:  # fmt: skip
        first = len(inputs) - num_scan_inputs
        if num_scan_inputs < 1 or first < 0 or any(x.rank < 1 + (i >= first) for i, x in enumerate(inputs)):
            k.error(f"its {len(inputs)} inputs do not fit num_scan_inputs {num_scan_inputs}")
        self.body = body
        self.scanned = inputs[first:]
        self.reverse = one_for_each(k, "directions", directions, num_scan_inputs)
        batches, self.longest = self.scanned[0].shape[:2]
        if not 0 < batches <= LONGEST or self.longest > LONGEST:
            k.error(f"takes 1 to {LONGEST:,} batch entries and steps, not {batches:,} and {self.longest:,}")
        lengths = [self.longest] * batches if sequence_lens is None else k.ints(sequence_lens)
        self.states = [tuple(slice_at(k, x, 0, b) for x in inputs[:first]) for b in range(batches)]
        self._prepare(k, batches, lengths)

    def slices(self, k: Builder, batch: int, step: int) -> tuple[Value, ...]:
        length = self.lengths[batch]
        at = [length - 1 - step if reverse else step for reverse in self.reverse]
        rows = (slice_at(k, x, 0, batch) for x in self.scanned)
        return tuple(slice_at(k, x, 0, p) for x, p in zip(rows, at, strict=True))

    def results(self, k: Builder) -> tuple[Entry, ...]:
        count = len(self.states[0])
        found = [stacked(k, [_tensor(k, state[i]) for state in self.states]) for i in range(count)]
        samples = [stack for runs in self.stacks for stack in runs] or [self.sample or ()]
        for position in range(len(self.body.outputs) - count):
            sample = samples[0][position] if samples[0] else None
            nothing = nothing_from(k, self.body, count + position, sample)
            zero = k.constant(np.zeros(nothing.shape[1:], nothing.dtype))
            rows = []
            for runs in self.stacks:
                slices = [stack[position] for stack in runs] + [zero] * (self.longest - len(runs))
                rows.append(stacked(k, slices) if slices else nothing)
            found.append(stacked(k, rows))
        return tuple(found)


def _tensor(k: Builder, entry: Entry) -> Value:
    if not isinstance(entry, Value):
        k.error("its state must be tensors")
    return entry


@control_operator("SequenceMap", since=17)
class SequenceMap(ControlFlow):
    """A body run for each element of a sequence (and of others as long); its outputs become sequences."""

    def __init__(self, k: Builder, sequence: ListValue, *others: Entry, body: Model) -> None:
        self.body = body
        self.inputs: tuple[Entry, ...] = (sequence, *others)
        self.length = len(sequence.items)
        if any(isinstance(x, ListValue) and len(x.items) != self.length for x in others):
            k.error("its sequences have different lengths")
        self.outputs: list[tuple[Entry, ...]] = []

    def next_run(self, k: Builder) -> Body | None:
        step = len(self.outputs)
        if step >= self.length:
            return None
        taken = tuple(x.items[step] if isinstance(x, ListValue) else x for x in self.inputs)
        return Body(self.body, taken, str(step))

    def took(self, k: Builder, outputs: tuple[Entry, ...]) -> None:
        self.outputs.append(outputs)

    def runs_left(self) -> int:
        return self.length - len(self.outputs)

    def results(self, k: Builder) -> tuple[Entry, ...]:
        found: list[Entry] = []
        for position, declared in enumerate(self.body.outputs):
            items = [_tensor(k, outputs[position]) for outputs in self.outputs]
            dtype = items[0].dtype if items else declared.dtype
            found.append(k.sequence(items, np.dtype(np.float32) if dtype is None else dtype))
        return tuple(found)

    def holds(self) -> tuple[Entry, ...]:
        return (*self.inputs, *(x for outputs in self.outputs for x in outputs))

    def copy(self) -> SequenceMap:
        other = copy.copy(self)
        other.outputs = list(self.outputs)
        return other
