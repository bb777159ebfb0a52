"""Recorded plans on OpenCL, and the dispatches of their steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from engine.backends.base import Program
from engine.backends.cost import loop_rounds
from engine.backends.gpu.size_functions import is_one_dispatch
from engine.backends.opencl.codegen.printer import GenericSource
from engine.backends.opencl.codegen.tuned_kernel import Dispatch, TunedKernel
from engine.backends.opencl.execution.programs import CompiledProgram, ProgramStore
from engine.compiler.plan import RepeatedSteps, Step
from engine.device.cl.device import CLDevice
from engine.device.cl.native_calls import DATA, ENQUEUE, new_rows, point
from engine.kernels.kernel import Kernel
from engine.kernels.size import deferred, largest, smallest

# PoCL compiles a kernel again for grids with more groups than this along an axis.
_MAX_GROUPS = 65535
# Loop rounds of one dispatch. Drivers reset devices whose dispatches take a second or two.
_MAX_WORK = 1 << 32
Command = tuple[Any, tuple[int, ...], tuple[int, ...]]
"""Kernel with its arguments, work-items, work-items in a group."""


SIZES, LOCALS = slice(DATA, DATA + 3), slice(DATA + 3, DATA + 6)
"""Words of a call that enqueues a command: its work-items, and those in a group."""

Setting = Callable[[int], None]
"""Sets the arguments of a kernel for a run."""


@dataclass(frozen=True)
class Repetition:
    """A repeated step: the dispatches of even and odd iterations, and those after the last."""

    count: int
    body: tuple[Sequence[Part], Sequence[Part]]
    last: Sequence[Part]

    def commands(self, runs: range) -> Iterator[Command]:
        """Commands of some iterations; each must be enqueued before the next is taken."""
        for run in runs:
            yield from _of_run(self.body[run % 2], run)
        if runs.stop == self.count:
            yield from _of_run(self.last, self.count)


Part = tuple[Command, Setting | None] | Repetition
"""Something repeated: a dispatch and what sets its arguments for a run, or a repetition of its own."""


def _of_run(parts: Sequence[Part], run: int) -> Iterator[Command]:
    for part in parts:
        if isinstance(part, Repetition):
            yield from part.commands(range(part.count))
            continue
        command, setting = part
        if setting is not None:
            setting(run)
        yield command


def each(commands: Sequence[Command | Repetition]) -> Iterator[Command]:
    """All commands, each to be enqueued before the next is taken."""
    for command in commands:
        if isinstance(command, Repetition):
            yield from command.commands(range(command.count))
        else:
            yield command


def command_rows(device: CLDevice, commands: Sequence[Command | Repetition]) -> np.ndarray:
    """Native call rows that enqueue commands (keep these alive), for `pointed`; zeros for repetitions."""
    rows = new_rows(ENQUEUE, len(commands))
    rows[:, 1] = device.queue.int_ptr
    for row, command in zip(rows, commands, strict=True):
        if isinstance(command, Repetition):
            row[0] = 0
            continue
        kernel, size, local = command
        row[2:4] = kernel.int_ptr, len(size)
        row[SIZES][: len(size)], row[LOCALS][: len(size)] = size, local
    return rows


def pointed(rows: np.ndarray) -> np.ndarray:
    """The calls, each with its own sizes, where they stay."""
    point(rows, 5, SIZES.start)
    point(rows, 6, LOCALS.start)
    return rows


class CLProgram(Program):
    """A recorded plan: commands in order, the temporaries, and the buffers with numbers of kernels."""

    _rows: np.ndarray | None = None

    def __init__(
        self, commands: list[Command | Repetition], temporaries: list[Any], numbers: list[Any]
    ) -> None:
        self.commands = commands
        self.memory = temporaries
        self._numbers = numbers

    def enqueue(self, device: CLDevice) -> None:
        """Enqueue the commands. Raises `pyopencl.Error`."""
        rows, queue, done = self._rows, device.queue, -1
        if rows is None:
            rows = self._rows = pointed(command_rows(device, self.commands))
        while (done := device.calls.run(rows, done + 1)) < len(rows):
            # A repetition, or what failed: pyopencl collects garbage and tries again where memory is short.
            for kernel, size, local in each(self.commands[done : done + 1]):
                device.cl.enqueue_nd_range_kernel(queue, kernel, size, local)

    def activate(self) -> None:
        """Set this program's arguments on kernels that programs share."""

    def temporaries(self) -> dict[int, int]:
        """The buffers, and their bytes."""
        return {id(mem): mem.size for mem in self.memory}

    def release(self) -> None:
        """Free the temporaries and the commands; OpenCL keeps both until what is enqueued has run."""
        self.commands.clear()
        self._rows = None
        for memory in (self.memory, self._numbers):
            for mem in memory:
                mem.release()
            memory.clear()


def command_count(programs: ProgramStore, step: Step) -> int:
    """How many of a program's commands are a step's."""
    if not prod(step.space):
        return 0
    return 1 if isinstance(step.kernel, RepeatedSteps) else len(dispatches(programs.get(step.kernel), step))


def dispatches(compiled: CompiledProgram, step: Step) -> list[Dispatch]:
    """The dispatches of a step, none of them too long for a driver's watchdog."""
    source, kernel = compiled.source, step.kernel
    if not isinstance(source, GenericSource):
        assert isinstance(kernel, TunedKernel)
        return kernel.dispatches(step.space, step.values, _MAX_GROUPS)
    assert isinstance(kernel, Kernel)
    total, local = prod(step.space), source.local[0]
    limit = most_groups(compiled, step) * local
    parts: list[Dispatch] = []
    for first in range(0, total, limit):
        count = min(limit, total - first)
        parts.append((source.values(step.values, step.space, first, count), (-(-count // local) * local,)))
    return parts


def most_groups(compiled: CompiledProgram, step: Step) -> int:
    """How many groups a dispatch of the step may have, for drivers' watchdogs; at least 1."""
    kernel = step.kernel
    if isinstance(kernel, TunedKernel):
        return kernel.most_groups(step.values, _MAX_GROUPS)
    assert isinstance(kernel, Kernel)
    local = compiled.source.local[0]
    budget = _MAX_WORK // loop_rounds(kernel.body, step.values) // local
    most: int = largest(1, smallest(_MAX_GROUPS, budget))
    return most


def largest_dispatch(compiled: CompiledProgram, step: Step) -> int:
    """The most elements, or groups of a tuned kernel, that one dispatch of the step may have."""
    kernel = step.kernel
    if isinstance(kernel, TunedKernel):
        return kernel.most_groups(step.values)
    return most_groups(compiled, step) * compiled.source.local[0]


def work_items(compiled: CompiledProgram, step: Step) -> Sequence[int]:
    """The work-items of a step along three axes, if it `is_one` dispatch."""
    local = (*compiled.source.local, 1, 1)[:3]
    if isinstance(compiled.source, GenericSource):
        return -(-prod(step.space) // local[0]) * local[0], 1, 1
    groups = (*step.space, 1, 1)[:3]
    # No more than 32 bits hold: what is larger is several dispatches.
    return [smallest(size, _MAX_GROUPS) * count for size, count in zip(groups, local, strict=True)]


def is_one(compiled: CompiledProgram, step: Step) -> int:
    """1 if a step is known to be a single dispatch; for others, see `dispatches`."""
    widest = 1 if isinstance(compiled.source, GenericSource) else largest(*step.space)
    most = largest_dispatch(compiled, step)
    return deferred(is_one_dispatch, prod(step.space), most, widest, _MAX_GROUPS)[0]
