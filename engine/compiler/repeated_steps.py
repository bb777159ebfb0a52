"""Repeated steps: formulas that are planned once and run any number of times.

`Repeat` is what a builder makes of a recurrent layer's time step; the planner makes one step of the plan of
it, whose kernel is `RepeatedSteps`. A run's number is an argument of its steps. States have two tensors each,
which change places after every run. A result that has to outlast a run goes to a part of a larger tensor, by
a step with an `IterationWindow`: parts begin at multiples of `ALIGNMENT` elements, so that no texel or word
is in two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from engine.compiler.fusion import narrowed
from engine.compiler.plan import BufferSpec, Compute, IterationWindow, RepeatedSteps, Step
from engine.compiler.plan_memo import LoweredFormula
from engine.kernels.expr import (
    LOOPS,
    Expr,
    IterationNumber,
    arg,
    clamp,
    index,
    iteration_number,
    lit,
    nodes,
    substitute,
)
from engine.kernels.value import Value
from engine.operators.builder import Repeated

ALIGNMENT = 4


def align_up(elements: int) -> int:
    """Round a number of elements up to the alignment."""
    return -(-elements // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True, eq=False)
class StackedOutput:
    """A formula over the whole output, of which a run computes a part."""

    compute: Compute
    window: IterationWindow


@dataclass(frozen=True, eq=False)
class Repeat:
    """Formulas that run `count` times.

    outputs: what it makes, a tensor of each element type. before: the formulas of the first states. body:
    those of a run. kept: what goes to the outputs in each run, and last: what does after all of them. states:
    the tensors of each state before a run and after it.
    """

    outputs: tuple[Value, ...]
    count: int
    before: tuple[Compute, ...]
    body: tuple[Compute, ...]
    kept: tuple[StackedOutput, ...]
    last: tuple[StackedOutput, ...]
    states: tuple[tuple[Value, Value], ...]

    @property
    def formulas(self) -> list[Compute]:
        """All formulas."""
        return [*self.before, *self.body, *(kept.compute for kept in (*self.kept, *self.last))]

    @property
    def operands(self) -> tuple[Value, ...]:
        """The tensors that it reads from outside."""
        own = {c.output for c in self.formulas} | {before for before, _ in self.states}
        return tuple(dict.fromkeys(v for c in self.formulas for v in c.reads if v not in own))


def part_of(
    output: Value, start: int, stride: int, value: Value, layer: tuple[str, str], made: Compute | None = None
) -> StackedOutput:
    """Keep a tensor in the output, from `start + run * stride` on.

    `made` is the formula of the tensor where that can be computed into the output at once.
    """
    begin = iteration_number() * arg(stride) + arg(start)
    position = clamp(index(0) - begin, lit(0), arg(value.size - 1))
    formula = value.at(position) if made is None else _at(made, position)
    return StackedOutput(
        Compute(output, (output.size,), formula, *layer), IterationWindow(start, stride, align_up(value.size))
    )


def _at(made: Compute, position: Expr) -> Expr:
    """A formula's value at a row-major position."""
    indices: list[Expr] = []
    rest = position
    for size in reversed(made.space[1:]):
        indices.append(rest % arg(size))
        rest = rest // arg(size)
    indices.append(rest)

    def placed(x: Expr) -> Expr | None:
        return indices[-1 - x.attr] if x.op == "index" else position if x.op == "flat" else None

    return substitute(made.body, placed)


def _sole_makers(
    body: Sequence[Compute], states: Sequence[tuple[Value, Value]], kept: Sequence[Value]
) -> dict[Value, Compute]:
    """Formulas without loops whose output is read exactly once and is no state, by output."""
    read = Counter([v for c in body for v in c.reads] + [v.root for v in kept])
    elsewhere = {after for _, after in states}
    return {
        c.output: c
        for c in body
        if c.hint is None
        and c.epilogue is None
        and read[c.output] == 1
        and c.output not in elsewhere
        and not any(node.op in LOOPS for node in nodes(c.body))
    }


def with_numbers_of_runs(body: Sequence[Compute], wanted: Iterable[Value]) -> list[Compute]:
    """Inline integers that depend on the iteration number only into the formulas that read them.

    `wanted` are tensors that are read otherwise.
    """
    read = {value.root for value in wanted}
    numbers: dict[Value, Expr] = {}
    found: list[Compute] = []
    for compute in body:
        if numbers and compute.hint is None:
            inner = substitute(compute.body, lambda x: numbers.get(x.attr) if x.op == "load" else None)
            compute = compute if inner is compute.body else replace(compute, body=inner)
        output = compute.output
        is_number = output.shape == () and output.dtype.kind == "i" and compute.hint is None
        if is_number and not compute.reads and not compute.body.free:
            numbers[output] = narrowed(compute.body, output)
        else:
            read.update(compute.reads)
        found.append(compute)
    return [compute for compute in found if compute.output not in numbers or compute.output in read]


def repeat_of(
    layer: tuple[str, str],
    outputs: Sequence[Value],
    count: int,
    first: Sequence[Value],
    states: Sequence[tuple[Value, Value]],
    body: Sequence[Compute],
    kept: Sequence[Value],
    made: Repeated,
) -> Repeat:
    """Create a repeat of a body's formulas, with outputs as described by `made`."""
    befores = [before for before, _ in states]
    copies = [
        Compute(before, (before.size,), given.at(index(0)), *layer)
        for given, before in zip(first, befores, strict=True)
    ]
    makers = _sole_makers(body, states, kept)
    parts = [
        part_of(*part, value, layer, makers.get(value.root))
        for value, part in zip(kept, made.kept, strict=True)
    ]
    last = [part_of(*part, value, layer) for value, part in zip(befores, made.last, strict=True)]
    return Repeat(tuple(outputs), count, tuple(copies), tuple(body), tuple(parts), tuple(last), tuple(states))


def _takes_run(compute: Compute) -> bool:
    """Whether a formula takes the number of the run."""
    params = (node for node in nodes(compute.formula()) if node.op == "param")
    return any(isinstance(node.attr.value, IterationNumber) for node in params)


def refusal_of(compute: Compute, refusal: Callable[[Compute], str | None]) -> str | None:
    """Why the backend cannot run a formula, or one of those that it repeats; None if it can.

    `refusal` says so of a single one.
    """
    found = refusal(compute)
    if found is None and compute.kind == "loop":
        repeat: Repeat = compute.attributes["repeat"]
        found = next(filter(None, (refusal_of(part, refusal) for part in repeat.formulas)), None)
    return found


class RepeatTarget(Protocol):
    """Protocol of a backend's support for repeated steps."""

    def restrict_to_window(self, step: Step) -> Step:
        """A generic step that computes the elements of its window only."""
        ...

    def merge_repeat(self, steps: Callable[[], Sequence[Step]]) -> tuple[Step, int] | None:
        """Merge generic steps and the repeat after them into one step; also 1 if that is faster, else 0."""
        ...

    def merge_steps(self, steps: Sequence[Step]) -> Sequence[Step]:
        """Merge steps of little work within an iteration."""
        ...


def lower_repeat(
    compute: Compute, lower: Callable[[Compute], LoweredFormula], target: RepeatTarget
) -> LoweredFormula:
    """Lower a repeat to steps and buffers; `lower` lowers one formula.

    Where sizes are open, the plan has the target's single step and the others, and one of them is empty.
    """
    repeat: Repeat = compute.attributes["repeat"]
    if any(part.hint is not None and part.hint.is_bound for part in repeat.formulas):
        return _repeating(compute, lower, target)
    plain = LoweredFormula([], {}, [], {})

    def generic_steps() -> Sequence[Step]:
        nonlocal plain
        plain = _repeating(compute, _generic)
        return plain.steps

    found = target.merge_repeat(generic_steps)
    is_fixed = all(part.output.is_static(axis) for part in repeat.body for axis in range(part.output.rank))
    if found is None:
        return _repeating(compute, lower, target, is_fixed)
    one, is_better = found
    if is_fixed:
        if is_better:
            plain.steps[:] = [one]
            return plain
        return _repeating(compute, lower, target, is_fixed)
    made = _repeating(compute, lower, target)
    made.buffers.update((name, spec) for name, spec in plain.buffers.items() if name not in made.buffers)
    last = made.steps[-1]
    made.steps[-1] = replace(last, space=(last.space[0] * (1 - is_better),))
    made.steps.append(replace(one, space=tuple([size * is_better for size in one.space])))
    return made


def _generic(part: Compute) -> LoweredFormula:
    return LoweredFormula([part.as_step()], {}, [], {})


def _repeating(
    compute: Compute,
    lower: Callable[[Compute], LoweredFormula],
    target: RepeatTarget | None = None,
    is_fixed: bool = False,
) -> LoweredFormula:
    """The steps before the first run and the one that repeats others, whose kernel is `RepeatedSteps`.

    Without a target, they are generic. `is_fixed` says that no size of a run depends on those of inputs.
    """
    repeat: Repeat = compute.attributes["repeat"]
    made = LoweredFormula([], {}, [], {})
    for value in (*repeat.outputs, *(value for pair in repeat.states for value in pair)):
        made.buffers[value.name] = BufferSpec(value.name, value.size, value.dtype, "temporary")

    def steps_of(computes: Sequence[Compute], wanted: set[str]) -> list[Step]:
        parts: list[list[Step]] = []
        # From the end: what a tuned kernel does without is not made.
        for part in reversed(computes):
            value = part.output
            if value.name not in wanted:
                continue
            lowered = lower(part)
            if part.hint is None or not part.hint.is_bound:
                assert _takes_run(part) == any(
                    type(x) is IterationNumber for s in lowered.steps for x in s.values
                )
            made.buffers[value.name] = BufferSpec(value.name, value.size, value.dtype, "temporary")
            made.buffers.update(lowered.buffers)
            made.constants.update(lowered.constants)
            made.packed.extend(lowered.packed)
            parts.append(lowered.steps)
            wanted.update(name for step in lowered.steps for name in step.inputs)
            if not lowered.steps:
                wanted.update(read.name for read in part.reads)
        return [step for steps in reversed(parts) for step in steps]

    def step_of(kept: StackedOutput) -> Step:
        step = replace(kept.compute.as_step(), window=kept.window)
        return step if target is None else target.restrict_to_window(step)

    kept, last = tuple(map(step_of, repeat.kept)), tuple(map(step_of, repeat.last))
    read = {name for step in (*kept, *last) for name in step.inputs}
    body = (*steps_of(repeat.body, read | {after.name for _, after in repeat.states}), *kept)
    if target is not None and is_fixed:
        body = tuple(target.merge_steps(body))
    made.steps.extend(steps_of(repeat.before, {before.name for before, _ in repeat.states}))
    names = [(before.name, after.name) for before, after in repeat.states]
    # After the last run a state is where that run left it: `last` reads what a next run would.
    swapped = {a: b for pair in names for a, b in (pair, pair[::-1])}
    touched = dict.fromkeys(n for step in (*body, *last) for n in (*step.inputs, step.output))
    touched |= dict.fromkeys((*swapped, *(value.name for value in repeat.outputs)))
    touched.pop(compute.output.name)
    values = tuple(size for step in body for size in step.space)
    kernel = RepeatedSteps(body, last, swapped)
    made.steps.append(
        Step(
            compute.layer, compute.op_type, kernel, (repeat.count,), values, (*touched,), compute.output.name
        )
    )
    return made
