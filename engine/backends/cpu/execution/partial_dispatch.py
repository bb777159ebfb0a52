"""Partial dispatch on the CPU: one job per slice, with a timestamp between commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from time import perf_counter

import numpy as np

from engine.backends.cpu.execution.program import CPUProgram
from engine.backends.cpu.execution.timing import ObservedJob, TimestampedList
from engine.backends.partial_dispatch import CombinedTiming, PartialDispatch, StepRange, TimeBounds, Timing
from engine.base import instrumentation
from engine.base.errors import DisposedError
from engine.compiler.plan import Plan
from engine.device.jobs.builtin_commands import builtin_functions
from engine.device.jobs.command_list import CommandList
from engine.device.jobs.command_loops import BEGIN, count_runs, some_runs, units_of
from engine.device.jobs.system import JobHandle

_CHUNKS = 16
"""Into how many chunks a part of a command is cut at most, where it is not cut as the command is."""


class CPUPartialDispatch(PartialDispatch):
    """Commands of a program that can be run over parts of their ranges or iterations.

    submit: lets commands join the stream. run_here: runs the program on this thread if nothing is in flight
    and it is short; returns whether it did.
    """

    def __init__(
        self,
        program: CPUProgram,
        plan: Plan,
        submit: Callable[[CommandList], JobHandle],
        run_here: Callable[[CPUProgram], bool],
    ) -> None:
        assert program.commands is not None
        self._program = program
        self._submit = submit
        self._run_here = run_here
        self._part = builtin_functions()["part"]
        # Steps without elements have no commands.
        steps = [k for k, step in enumerate(plan.steps) if prod(step.space)]
        table = program.commands.array[: program.commands.count]
        starts = units_of(table)
        ends = [*starts[1:], len(table)]
        self._rows_of = {step: table[a:b] for step, a, b in zip(steps, starts.tolist(), ends, strict=False)}
        self.units = [0] * len(plan.steps)
        for step, rows in self._rows_of.items():
            self.units[step] = count_runs(rows) if rows[0, 0] == BEGIN else int(rows[0, 2])
        self._all = [StepRange(step, 0, self.units[step]) for step in steps]

    def enqueue(self, parts: Sequence[StepRange], timed: bool) -> Timing | None:
        """Enqueue parts as one job; a short complete plan runs inline."""
        if self._program.commands is None:
            raise DisposedError("this program was released")
        if self._program.is_short and len(parts) == len(self._all) and list(parts) == self._all:
            before = perf_counter()
            if self._run_here(self._program):
                return CombinedTiming(TimeBounds(0.0, perf_counter() - before)) if timed else None
        lists, blocks = [], []
        for part in parts:
            rows = self._rows_of[part.step]
            if part.end - part.first < self.units[part.step]:
                rows, block = self._rows_of_part(rows, part)
                blocks.append(block)
            lists.append(rows)
        keep = (blocks, self._program.commands)
        commands = CommandList(np.concatenate(lists), keep)
        if not (timed or instrumentation.installed):
            self._submit(commands)
            return None
        stamped = TimestampedList(commands, each=True)
        timing = ObservedJob(stamped, self._submit(stamped.commands))
        if instrumentation.installed:
            instrumentation.later(timing)
        return timing if timed else None

    def _rows_of_part(self, rows: np.ndarray, part: StepRange) -> tuple[np.ndarray, np.ndarray]:
        """The rows of a part of a step, and words that they point to."""
        if rows[0, 0] == BEGIN:
            return some_runs(rows, part.first, part.end)
        function, args, _, grain = rows[0].tolist()
        block = np.array([function, args, part.first], np.int64)
        count = part.end - part.first
        row = (self._part, block.ctypes.data, count, min(grain, max(1, -(-count // _CHUNKS))))
        return np.array([row], np.int64), block
