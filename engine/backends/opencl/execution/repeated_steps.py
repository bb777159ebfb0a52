"""Repeated steps on OpenCL: kernels whose arguments are set per iteration as they are enqueued."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from engine.backends.opencl.codegen.printer import GenericSource
from engine.backends.opencl.execution.dispatches import Part, Repetition, Setting, dispatches
from engine.backends.opencl.execution.programs import CompiledProgram, ProgramStore, set_arguments
from engine.compiler.plan import RepeatedSteps, Step
from engine.kernels.expr import IterationNumber


class Repeater:
    """Creates repetitions of steps. `in_buffer` creates a buffer of a kernel's arguments."""

    def __init__(
        self, programs: ProgramStore, buffers: Mapping[str, Any], in_buffer: Callable[[np.ndarray], Any]
    ) -> None:
        self._programs = programs
        self._buffers = buffers
        self._in_buffer = in_buffer

    def repetition(self, step: Step) -> Repetition:
        """The repetition of a step."""
        kernel, count = step.kernel, step.space[0]
        assert isinstance(kernel, RepeatedSteps)
        even, odd = (self._parts(kernel.in_iteration(kernel.body, part)) for part in range(2))
        return Repetition(count, (even, odd), self._parts(kernel.in_iteration(kernel.last, count)))

    def _parts(self, steps: Sequence[Step]) -> list[Part]:
        return [part for step in steps if prod(step.space) for part in self._step(step)]

    def _step(self, step: Step) -> Iterator[Part]:
        if isinstance(step.kernel, RepeatedSteps):
            yield self.repetition(step)
            return
        compiled = self._programs.get(step.kernel)
        source = compiled.source
        operands = [self._buffers[name] for name in (*step.inputs, step.output)]
        places = [k for k, value in enumerate(step.values) if isinstance(value, IterationNumber)]
        if step.window is None:
            made = dispatches(compiled, step)
        else:
            assert isinstance(source, GenericSource)
            count, local = step.window.elements, source.local[0]
            made = [(source.values(step.values, step.space, 0, count), (-(-count // local) * local,))]
        for values, size in made:
            numbers: list[Any] = list(source.signature.numbers(values))
            if source.signature.in_buffer:
                numbers = [self._in_buffer(numbers[0])]
            kernel = compiled.new_kernel(operands, numbers)
            setting = None
            if places or step.window is not None:
                setting = self._setting(compiled, kernel, step, list(values), places)
            yield (kernel, size, source.local), setting

    def _setting(
        self, compiled: CompiledProgram, kernel: Any, step: Step, values: list[Any], places: Sequence[int]
    ) -> Setting:
        signature, window = compiled.source.signature, step.window
        begin = signature.inputs + 1
        behind = len(step.values)
        changed = [*places, *((behind, behind + 1) if window is not None else ())]

        def setting(run: int) -> None:
            for place in places:
                values[place] = run
            if window is not None:
                first = window.start + run * window.stride
                values[behind], values[behind + 1] = first + window.elements, first
            if signature.in_buffer:
                kernel.set_arg(begin, self._in_buffer(np.asarray(signature.numbers(values)[0])))
                return
            pairs = [item for k in changed for item in (begin + k, np.int32(values[k]))]
            set_arguments(kernel, (), tuple(pairs))

        return setting
