"""Scan: a body run over the slices of tensors, with a state that it hands on."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Sequence
from typing import Self

import numpy as np

from engine.graph.model import Model
from engine.kernels.expr import Expr, arg, run_number
from engine.kernels.value import Entry, Value
from engine.operators.bodies import LONGEST, nothing_from, slice_at, stacked, tensor_of
from engine.operators.builder import Builder
from engine.operators.control import Body, ControlFlow
from engine.operators.registry import control_operator
from engine.operators.stand_in import StandIn


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
        sizes = [x.shape[a] for x, a in zip(self.scanned, self.axes, strict=True)]
        if any(n != sizes[0] for n in sizes):
            k.error(f"its inputs have different lengths {sorted(set(sizes))} along the axes to scan")
        self.states = [tuple(inputs[:first])]
        self._prepare(k, 1, sizes[:1])
        # The run that stands for all, and whether there may be one.
        self.stand_in: StandIn | None = None
        self.looks_for_all = True

    def next_run(self, k: Builder) -> Body | None:
        if self.looks_for_all:
            self.looks_for_all = False
            self.stand_in = StandIn.begin(k, self.lengths[0], self.states[0])
            if self.stand_in is not None:
                inputs = (*self.stand_in.before, *self.slices(k, 0, run_number()))
                return Body(self.body, inputs, "each", True, len(self.states[0]), stands_for_all=True)
        return None if self.stand_in is not None else super().next_run(k)

    def took(self, k: Builder, outputs: tuple[Entry, ...]) -> None:
        if self.stand_in is None:
            super().took(k, outputs)
            return
        count = len(self.states[0])
        if not self.stand_in.took(k, outputs[:count], outputs[count:]):
            self.stand_in = None

    def runs_left(self) -> int:
        return super().runs_left() if self.stand_in is None else 0

    def gave_up(self) -> None:
        if self.stand_in is None:
            super().gave_up()
        self.stand_in = None

    def slices(self, k: Builder, batch: int, step: int | Expr) -> tuple[Value, ...]:
        last = arg(self.lengths[0] - 1) if isinstance(step, Expr) else self.lengths[0] - 1
        at = [last - step if reverse else step for reverse in self.reverse]
        return tuple(slice_at(k, x, a, p) for x, a, p in zip(self.scanned, self.axes, at, strict=True))

    def results(self, k: Builder) -> tuple[Entry, ...]:
        state = self.states[0]
        found = []
        if self.stand_in is not None:
            ways = zip(self.output_axes, self.output_reverse, strict=True)
            stacks = (self.stand_in.stack(k, n, axis, bool(back)) for n, (axis, back) in enumerate(ways))
            return (*self.stand_in.states(k), *stacks)
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
        found = [stacked(k, [tensor_of(k, state[i]) for state in self.states]) for i in range(count)]
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
