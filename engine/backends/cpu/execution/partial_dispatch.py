"""Partial dispatch on the CPU: one job per slice, with a timestamp between commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from time import perf_counter

import numpy as np

from engine.backends.cpu.execution.program import CPUProgram
from engine.backends.cpu.execution.timing import ObservedJob, TimestampedList
from engine.backends.partial_dispatch import CombinedTiming, Cut, PartialDispatch, TimeBounds, Timing
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
        self._all = [Cut(step, 0, self.units[step]) for step in steps]

    def enqueue(self, cuts: Sequence[Cut], timed: bool) -> Timing | None:
        """Enqueue parts as one job; a short complete plan runs inline."""
        if self._program.commands is None:
            raise DisposedError("this program was released")
        if self._program.is_short and len(cuts) == len(self._all) and list(cuts) == self._all:
            before = perf_counter()
            if self._run_here(self._program):
                return CombinedTiming(TimeBounds(0.0, perf_counter() - before)) if timed else None
        parts, blocks = [], []
        for cut in cuts:
            rows = self._rows_of[cut.step]
            if cut.end - cut.first < self.units[cut.step]:
                rows, block = self._cut(rows, cut)
                blocks.append(block)
            parts.append(rows)
        keep = (blocks, self._program.commands)
        commands = CommandList(np.concatenate(parts), keep)
        if not (timed or instrumentation.installed):
            self._submit(commands)
            return None
        stamped = TimestampedList(commands, each=True)
        timing = ObservedJob(stamped, self._submit(stamped.commands))
        if instrumentation.installed:
            instrumentation.later(timing)
        return timing if timed else None

    def _cut(self, rows: np.ndarray, cut: Cut) -> tuple[np.ndarray, np.ndarray]:
        """The rows of a part of a step, and words that they point to."""
        if rows[0, 0] == BEGIN:
            return some_runs(rows, cut.first, cut.end)
        function, args, _, grain = rows[0].tolist()
        block = np.array([function, args, cut.first], np.int64)
        count = cut.end - cut.first
        part = (self._part, block.ctypes.data, count, min(grain, max(1, -(-count // _CHUNKS))))
        return np.array([part], np.int64), block
