"""Steps that run repeatedly: formulas that are planned once, however often they run.

`Repeat` is what a builder makes of a recurrent layer's time step; the planner makes one step of the plan of
it, whose kernel is `RepeatedSteps`. A run's number is an argument of its steps. States have two tensors each,
which change places after every run. A result that has to outlast a run goes to a part of a larger tensor,
by a step with a `Window`. Parts begin at multiples of `ALIGNMENT` elements, so that no texel or word is in
two of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from engine.compiler.plan import BufferSpec, Compute, RepeatedSteps, Step, Window
from engine.compiler.plan_memo import Tuned
from engine.kernels.expr import arg, clamp, index, lit, run_number
from engine.kernels.value import Value
from engine.operators.builder import Repeated

ALIGNMENT = 4


def aligned(elements: int) -> int:
    """How many elements a part takes."""
    return -(-elements // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True, eq=False)
class Kept:
    """A formula over the whole output, of which a run computes a part."""

    compute: Compute
    window: Window


@dataclass(frozen=True, eq=False)
class Repeat:
    """Formulas that run `count` times.

    before: those of the first states. body: those of a run. kept: what goes to the output in each run, and
    last: what does after all of them. states: the tensors of each state before a run and after it.
    """

    count: int
    before: tuple[Compute, ...]
    body: tuple[Compute, ...]
    kept: tuple[Kept, ...]
    last: tuple[Kept, ...]
    states: tuple[tuple[Value, Value], ...]

    @property
    def formulas(self) -> list[Compute]:
        """All of them."""
        return [*self.before, *self.body, *(kept.compute for kept in (*self.kept, *self.last))]

    @property
    def operands(self) -> tuple[Value, ...]:
        """What it reads of what others make."""
        own = {c.output for c in self.formulas} | {before for before, _ in self.states}
        return tuple(dict.fromkeys(v for c in self.formulas for v in c.reads if v not in own))


def part_of(output: Value, value: Value, start: int, stride: int, layer: tuple[str, str]) -> Kept:
    """Keep a tensor in the output, from `start + run * stride` on."""
    begin = run_number() * arg(stride) + arg(start)
    formula = value.at(clamp(index(0) - begin, lit(0), arg(value.size - 1)))
    return Kept(Compute(output, (output.size,), formula, *layer), Window(start, stride, aligned(value.size)))


def repeat_of(
    layer: tuple[str, str],
    output: Value,
    count: int,
    first: Sequence[Value],
    states: Sequence[tuple[Value, Value]],
    body: Sequence[Compute],
    kept: Sequence[Value],
    made: Repeated,
) -> Repeat:
    """The repeat of a body's formulas, whose output is as `made` says."""
    befores = [before for before, _ in states]
    copies = [
        Compute(before, (before.size,), given.at(index(0)), *layer)
        for given, before in zip(first, befores, strict=True)
    ]
    parts = [
        part_of(output, v, start, stride, layer) for v, (start, stride) in zip(kept, made.kept, strict=True)
    ]
    last = [part_of(output, v, start, 0, layer) for v, start in zip(befores, made.last, strict=True)]
    return Repeat(count, tuple(copies), tuple(body), tuple(parts), tuple(last), tuple(states))


def lower_repeat(
    compute: Compute, lower: Callable[[Compute], Tuned], windowed: Callable[[Step], Step]
) -> Tuned:
    """The steps of a repeat, and the buffers that they want.

    `lower` makes steps of one formula, `windowed` a generic step with a window one that the target can run.
    """
    assert compute.hint is not None
    repeat: Repeat = compute.hint.facts["repeat"]
    made = Tuned([], {}, [], {})
    for before, after in repeat.states:
        for value in (before, after):
            made.buffers[value.name] = BufferSpec(value.name, value.size, value.dtype, "temporary")

    def steps_of(computes: Sequence[Compute]) -> list[Step]:
        steps: list[Step] = []
        for part in computes:
            lowered = lower(part)
            value = part.output
            made.buffers[value.name] = BufferSpec(value.name, value.size, value.dtype, "temporary")
            made.buffers.update(lowered.buffers)
            made.constants.update(lowered.constants)
            made.packed.extend(lowered.packed)
            steps += lowered.steps
        return steps

    def step_of(kept: Kept) -> Step:
        return windowed(replace(kept.compute.numbered(), window=kept.window))

    made.steps.extend(steps_of(repeat.before))
    body = (*steps_of(repeat.body), *map(step_of, repeat.kept))
    last = tuple(map(step_of, repeat.last))
    names = [(before.name, after.name) for before, after in repeat.states]
    # After the last run a state is where that run left it: `last` reads what a next run would.
    swapped = {a: b for pair in names for a, b in (pair, pair[::-1])}
    touched = dict.fromkeys(n for step in (*body, *last) for n in (*step.inputs, step.output))
    touched |= dict.fromkeys(swapped)
    touched.pop(compute.output.name)
    values = tuple(size for step in body for size in step.space)
    kernel = RepeatedSteps(body, last, swapped)
    made.steps.append(
        Step(
            compute.layer, compute.op_type, kernel, (repeat.count,), values, (*touched,), compute.output.name
        )
    )
    return made
