"""Loops with known trip counts: Scan, SequenceMap, and Loop if no condition ends it early.

A plan has one run that stands for all (`RolledLoop`), or as many copies of the body where the backend or the
body does not allow that.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from engine.graph.model import Model
from engine.kernels.expr import Expr, iteration_number
from engine.kernels.value import Entry, Value
from engine.operators.builder import Builder
from engine.operators.control_flow_interface import Body, ControlFlow
from engine.operators.loop_bodies import nothing_from, stacked
from engine.operators.loop_rolling import RolledLoop


class CountedIterations(ControlFlow):
    """A loop with a known trip count: carries states, and stacks results or collects them in sequences."""

    first_state = 0
    """The position of the first state among the body's outputs."""

    def __init__(self, body: Model, count: int, states: Sequence[Entry], looks_for_all: bool = True) -> None:
        """`looks_for_all`: whether one run may stand for all."""
        self.body = body
        self.count = count
        self.states = tuple(states)
        self.first_result = self.first_state + len(self.states)
        self.stacks: list[tuple[Value, ...]] = []
        # What a run would yield where there is none, for its shapes; empty where that is not known.
        self.sample: tuple[Value, ...] | None = None
        self.rolled: RolledLoop | None = None
        self.looks_for_all = looks_for_all

    @abstractmethod
    def inputs(self, k: Builder, number: int | Expr, states: Sequence[Entry]) -> tuple[Entry, ...]:
        """What the body takes in a run, whose number kernels know where it is a formula."""

    def next_iteration(self, k: Builder) -> Body | None:
        if self.looks_for_all:
            self.looks_for_all = False
            self.rolled = RolledLoop.begin(k, self.count, self.states)
            if self.rolled is not None:
                taken = self.inputs(k, iteration_number(), self.rolled.before)
                return Body(self.body, taken, "each", True, self.first_result, stands_for_all=True)
        step = len(self.stacks)
        is_sampled = self.sample is not None or self.first_result == len(self.body.outputs)
        if self.rolled is not None or (step >= self.count and (self.count or is_sampled)):
            return None
        taken = self.inputs(k, step, self.states)
        return Body(self.body, taken, str(step), not self.count, exact_from=self.first_result)

    def receive(self, k: Builder, outputs: tuple[Entry, ...]) -> None:
        after, kept = outputs[self.first_state : self.first_result], outputs[self.first_result :]
        if self.rolled is not None:
            if not self.rolled.receive(k, after, kept):
                self.rolled = None
            return
        results = tuple(x for x in kept if isinstance(x, Value))
        if len(results) < len(kept):
            k.error("what its runs yield besides states must be tensors; carry sequences as states instead")
        if not self.count:
            self.sample = results
            return
        self.states = after
        self.stacks.append(results)

    def iterations_left(self) -> int:
        return self.count - len(self.stacks) if self.rolled is None else 0

    def abandon_iteration(self) -> None:
        if self.rolled is None:
            self.sample = ()
        self.rolled = None

    def last_states(self, k: Builder) -> tuple[Entry, ...]:
        """The states after the last run."""
        return self.states if self.rolled is None else self.rolled.states(k)

    def stacked(self, k: Builder, number: int, axis: int = 0, is_reversed: bool = False) -> Value:
        """The results of all runs along a new axis."""
        if self.rolled is not None:
            return self.rolled.stack(k, number, axis, is_reversed)
        slices = [results[number] for results in self.stacks]
        if slices:
            return stacked(k, slices[::-1] if is_reversed else slices, axis)
        sample = self.sample[number] if self.sample else None
        return nothing_from(k, self.body, self.first_result + number, sample, axis)

    def results(self, k: Builder) -> tuple[Entry, ...]:
        numbers = range(len(self.body.outputs) - self.first_result)
        return (*self.last_states(k), *(self.stacked(k, number) for number in numbers))

    def live_values(self) -> tuple[Entry, ...]:
        return (*self.states, *(x for results in self.stacks for x in results))
