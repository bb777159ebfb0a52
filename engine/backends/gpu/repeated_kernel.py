"""Small repeated steps as one single-group kernel, instead of a dispatch per step and iteration.

A run of a recurrent layer, or of a loop over small tensors, computes less than the dispatches of its steps
cost. Threads of a group can wait for one another, those of different groups cannot.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod

from engine.backends.cost import loop_rounds
from engine.backends.gpu.size_functions import is_at_most
from engine.compiler.plan import AnyKernel, RepeatedSteps, Step
from engine.kernels.expr import LOOPS, IterationNumber, nodes
from engine.kernels.kernel import Kernel
from engine.kernels.size import deferred

MOST_STEPS = 32
"""Steps that become one kernel: more of them would take long to compile."""

RUNS = 64
"""Runs of a dispatch: an even number, so that states are where they were. No dispatch takes long."""


@dataclass(frozen=True)
class RepeatedKernel:
    """The parts of a repeated kernel: steps before the first iteration, in each, and after the last.

    Every step is generic. tensors: the names and storage types of all that they touch, the output last.
    """

    before: tuple[Step, ...]
    repeated: RepeatedSteps
    tensors: dict[str, str]

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps."""
        return (*self.before, *self.repeated.steps)

    def barriers(self) -> frozenset[int]:
        """The steps of an iteration that need a barrier before them.

        A step waits for those that made what it reads, and for those that read what it overwrites.
        """
        runs = [
            step
            for run in range(4)
            for step in enumerate(self.repeated.in_iteration(self.repeated.body, run))
        ]
        found: set[int] = set()
        while added := _waiting(runs, found) - found:
            found |= added
        return frozenset(found)

    def swaps(self) -> list[tuple[str, str]]:
        """The pairs of tensors that change places after a run."""
        swapped = self.repeated.swapped
        assert all(swapped[b] == a for a, b in swapped.items())
        return [(a, b) for k, (a, b) in enumerate(swapped.items()) if b not in list(swapped)[:k]]

    def as_step(self, step: Step, kernel: AnyKernel, values: Sequence[int | float]) -> Step:
        """The replacement of a step that repeats others: one group per dispatch."""
        *inputs, output = self.tensors
        grid = (-(-step.space[0] // RUNS), 1, 1)
        return replace(
            step, kernel=kernel, space=grid, values=tuple(values), inputs=tuple(inputs), output=output
        )

    @property
    def work(self) -> int:
        """How many rounds of loops a run takes, over all elements."""
        return sum(map(work_of, self.repeated.body))


def work_of(step: Step) -> int:
    """How many rounds of loops a generic step takes, over all elements."""
    assert isinstance(step.kernel, Kernel)
    elements = prod(step.space) if step.window is None else step.window.elements
    return elements * loop_rounds(step.kernel.body, step.values)


def neighbours(steps: Sequence[Step], most: int) -> list[list[Step]]:
    """Group consecutive steps of little work, up to `most` loop iterations.

    The first of several makes a whole tensor.
    """
    found: list[list[Step]] = []
    rest = 0
    for step in steps:
        is_plain = isinstance(step.kernel, Kernel) and _has_known_loops(step.kernel, step.values)
        work = work_of(step) if is_plain else most + 1
        if work <= rest and len(found[-1]) < MOST_STEPS and found[-1][0].window is None:
            found[-1].append(step)
            rest -= work
        else:
            found.append([step])
            rest = most - work
    return found


def waits_of(steps: Sequence[Step]) -> list[bool]:
    """Before which of some steps threads wait: see `RepeatedKernel.barriers`."""
    waiting = _waiting([*enumerate(steps)])
    return [place in waiting for place in range(len(steps))]


def _waiting(steps: Iterable[tuple[int, Step]], known: Container[int] = ()) -> set[int]:
    """The numbers of the steps before which threads wait, those that are known to among them."""
    found: set[int] = set()
    written: set[str] = set()
    read: set[str] = set()
    for place, step in steps:
        # What is kept goes to a place of its own in each run.
        overwrites = step.window is None and step.output in written | read
        if place in known or overwrites or written.intersection(step.inputs):
            found.add(place)
            written.clear()
            read.clear()
        written.add(step.output)
        read.update(step.inputs)
    return found


def tensors_of(steps: Sequence[Step], output: str) -> dict[str, str]:
    """The names and storage types of all tensors that generic steps touch, `output` last."""
    tensors: dict[str, str] = {}
    for step in steps:
        assert isinstance(step.kernel, Kernel)
        tensors |= dict(zip(step.inputs, step.kernel.buffers, strict=True))
        tensors[step.output] = step.kernel.dtype
    tensors[output] = tensors.pop(output)
    return tensors


def repeated_kernel(before: Sequence[Step], step: Step) -> RepeatedKernel | None:
    """The kernel of a step that repeats others and of those before it.

    None if they are many, or some are not generic, or have loops that are not as long in every run.
    """
    kernel = step.kernel
    assert isinstance(kernel, RepeatedSteps)
    steps = (*before, *kernel.steps)
    if len(steps) > MOST_STEPS:
        return None
    if not all(isinstance(x.kernel, Kernel) and _has_known_loops(x.kernel, x.values) for x in steps):
        return None
    return RepeatedKernel(tuple(before), kernel, tensors_of(steps, step.output))


def is_small(work: int, most: int) -> int:
    """1 if a single group is best for the work of an iteration, else 0; may be symbolic."""
    return deferred(is_at_most, work, most)[0]


def _has_known_loops(kernel: Kernel, values: Sequence[int | float]) -> bool:
    """Whether the extents of all loops are numbers that are the same in every run."""
    extents = [node.args[0] for node in nodes(kernel.body) if node.op in LOOPS]
    return all(
        x.op == "const" or (x.op == "param" and not isinstance(values[x.attr], IterationNumber))
        for x in extents
    )
