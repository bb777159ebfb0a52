"""Partial dispatch on compute shaders: dispatches of some of a step's groups."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from engine.backends.gl.commands import CallList
from engine.backends.gl.compute.record import (
    GLComputeProgram,
    elements_per_group,
    fold_grid,
    grid_of,
    groups_of,
)
from engine.backends.gl.compute.shader import ShaderKernel
from engine.backends.gl.partial_dispatch import Clock, GLPartialDispatch, RepeatedCalls, StepCalls
from engine.backends.gpu.grid_ranges import box_at, fitting
from engine.compiler.plan import Plan, RepeatedSteps, Step
from engine.device.gl.limits import GLLimits
from engine.kernels.kernel import Kernel

if TYPE_CHECKING:
    from engine.backends.gl.compute.backend import GLComputeBackend


class _Elements:
    """A generic kernel's dispatch over the elements of some groups."""

    def __init__(self, commands: CallList, words: np.ndarray, step: Step, limits: GLLimits) -> None:
        assert isinstance(step.kernel, Kernel)
        self.commands = commands
        self._words = words
        self._begin = len(step.kernel.params)
        self._per_group = elements_per_group(step.kernel)
        self._count = prod(step.space)
        self._limits = limits

    def set_range(self, first: int, end: int) -> None:
        """Groups `first` to `end`."""
        self._words[self._begin] = first * self._per_group
        self._words[self._begin + 1] = min(end * self._per_group, self._count)
        self.commands.table[-1, 1:4] = fold_grid(end - first, self._limits)


class _Groups:
    """A tuned kernel's dispatch of some of its groups, which are a box of its grid."""

    def __init__(self, commands: CallList, words: np.ndarray, step: Step) -> None:
        assert isinstance(step.kernel, ShaderKernel)
        self.commands = commands
        self._words = words
        self._at = step.kernel.first_group
        self._is_folded = step.kernel.is_folded
        self._grid = grid_of(step)

    def set_range(self, first: int, end: int) -> None:
        """Groups `first` to `end`."""
        (x, y, z), size = box_at(self._grid, first, end - first)
        if self._is_folded:
            x, y = x + y * self._grid[0], 0
        self._words[self._at : self._at + 3] = x, y, z
        self.commands.table[-1, 1:4] = size


class GLComputePartialDispatch(GLPartialDispatch):
    """The dispatches of a program; a unit is a group."""

    def __init__(self, backend: GLComputeBackend, program: GLComputeProgram, plan: Plan) -> None:
        clock: Clock = "calls" if backend.device.info.is_software else "stamps"
        super().__init__(backend, program, plan, clock)
        self._recorder = backend.recorder
        self._places = program.places
        self.units = [self._units(step) if prod(step.space) else 0 for step in plan.steps]

    @staticmethod
    def _units(step: Step) -> int:
        return step.space[0] if isinstance(step.kernel, RepeatedSteps) else groups_of(step)

    def fitting(self, step: int, first: int, count: int) -> int:
        """Number of groups that form a box of the grid."""
        kernel = self._steps[step].kernel
        if isinstance(kernel, Kernel | RepeatedSteps):
            return count
        if isinstance(kernel, ShaderKernel) and kernel.is_alone:
            return 1
        return fitting(grid_of(self._steps[step]), first, count)

    def step_calls(self, step: int) -> StepCalls:
        """The commands that prepare and dispatch a step."""
        planned = self._steps[step]
        recorder = self._recorder()
        if isinstance(planned.kernel, RepeatedSteps):
            return RepeatedCalls(planned, recorder, lambda inner: recorder.add_repeated(inner, self._places))
        recorder.barrier()
        inputs = [self._places[name] for name in planned.inputs]
        words = recorder.bind(planned, self._places[planned.output], inputs)
        recorder.call("glDispatchCompute", 0, 0, 0)
        recorder.commands.finish()
        if isinstance(planned.kernel, Kernel):
            return _Elements(recorder.commands, words, planned, self._device.limits)
        return _Groups(recorder.commands, words, planned)
