"""Partial dispatch on fragment shaders: draws of some blocks of a step's area."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from engine.backends.gl.commands import CallList
from engine.backends.gl.partial_dispatch import Clock, GLPartialDispatch, RepeatedCalls, StepCalls
from engine.backends.gl.pixel.record import GLPixelProgram, drawn_texels
from engine.backends.gpu.grid_ranges import Grid, box_at, fitting
from engine.compiler.plan import Plan, RepeatedSteps
from engine.device.gl.functions import GL

if TYPE_CHECKING:
    from engine.backends.gl.pixel.backend import GLPixelBackend

# Rasterisers work on blocks of 4 by 4 fragments or more at once.
_COLUMNS, _ROWS = 16, 4


class _Boxes:
    """A draw over some blocks of its area."""

    def __init__(self, commands: CallList, grid: Grid, columns: int, rows: int) -> None:
        self.commands = commands
        self._grid = grid
        self._columns = columns
        self._rows = rows

    def set_range(self, first: int, end: int) -> None:
        """Blocks `first` to `end`."""
        (x, y, _), (width, height, _) = box_at(self._grid, first, end - first)
        left, low = x * _COLUMNS, y * _ROWS
        right = min(left + width * _COLUMNS, self._columns)
        high = min(low + height * _ROWS, self._rows)
        self.commands.table[-3, 1:5] = left, low, right - left, high - low


class GLPixelPartialDispatch(GLPartialDispatch):
    """The draws of a program; a unit is a block of fragments."""

    def __init__(self, backend: GLPixelBackend, program: GLPixelProgram, plan: Plan) -> None:
        clock: Clock = "fences" if backend.device.info.is_software else "stamps"
        super().__init__(backend, program, plan, clock)
        self._recorder = backend.recorder
        self._shader_of = backend.shader
        self._places = program.places
        self._grids = [self._grid(k) if prod(step.space) else (0, 0, 0) for k, step in enumerate(plan.steps)]
        self.units = [prod(grid) for grid in self._grids]

    def _grid(self, step: int) -> Grid:
        planned = self._steps[step]
        if isinstance(planned.kernel, RepeatedSteps):
            return planned.space[0], 1, 1
        layout = self._places[planned.output].layout
        columns, rows = layout.area(drawn_texels(self._shader_of(planned.kernel), planned.space))
        return -(-columns // _COLUMNS), -(-rows // _ROWS), 1

    def fitting(self, step: int, first: int, count: int) -> int:
        """Blocks that are a rectangle."""
        return fitting(self._grids[step], first, count)

    def step_calls(self, step: int) -> StepCalls:
        """The commands that prepare and draw a step."""
        planned = self._steps[step]
        recorder = self._recorder()
        if isinstance(planned.kernel, RepeatedSteps):
            return RepeatedCalls(planned, recorder, lambda inner: recorder.add_repeated(inner, self._places))
        inputs = [self._places[name] for name in planned.inputs]
        output = self._places[planned.output]
        columns, rows = recorder.bind(planned.kernel, planned.values, planned.space, inputs, output)
        recorder.call("glViewport", 0, 0, columns, rows)
        recorder.call("glDrawArrays", GL.TRIANGLES, 0, 3)
        # Software renderers begin then.
        recorder.call("glFlush")
        recorder.commands.finish()
        return _Boxes(recorder.commands, self._grids[step], columns, rows)
