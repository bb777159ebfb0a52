"""Partial dispatch on OpenCL: kernels whose first group or element is set before each dispatch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import prod
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.backends.gpu.grid_ranges import Grid, box_at, fitting
from engine.backends.opencl.codegen.printer import GenericSource
from engine.backends.opencl.codegen.tuned_kernel import FIRST_GROUP, TunedKernel
from engine.backends.opencl.execution.dispatches import (
    CLProgram,
    Command,
    Repetition,
    command_count,
    most_groups,
)
from engine.backends.opencl.execution.timing import ObservedEvents
from engine.backends.partial_dispatch import PartialDispatch, StepRange, TimedInterval, Timing
from engine.base import instrumentation
from engine.base.errors import DeviceError, DisposedError
from engine.compiler.plan import Plan, Step
from engine.device.cl.device import CLDevice

if TYPE_CHECKING:
    from engine.backends.opencl.backend import OpenCLBackend


class _Events:
    """Device times of the enqueued ranges, from event profiling."""

    def __init__(self, device: CLDevice, events: list[list[Any]]) -> None:
        self._device = device
        self._events = events

    def result(self) -> list[float] | None:
        """Seconds of each cut, once the last is done. Never waits."""
        if not self._device.is_complete(self._events[-1][-1]):
            return None
        return [
            sum(event.profile.end - event.profile.start for event in events) * 1e-9 for events in self._events
        ]


class _Iterations:
    """Some runs of a step that repeats others; a unit is a run."""

    def __init__(self, repetition: Repetition) -> None:
        self._repetition = repetition
        self.units = repetition.count

    def fitting(self, first: int, count: int) -> int:
        return count

    def commands(self, first: int, count: int) -> Iterator[Command]:
        """Each to be enqueued before the next is taken."""
        return self._repetition.commands(range(first, first + count))


class _RecordedDispatches:
    """A step that is enqueued as it was recorded: a unit is one of its dispatches."""

    def __init__(self, commands: Sequence[Command]) -> None:
        self._commands = commands
        self.units = len(commands)

    def fitting(self, first: int, count: int) -> int:
        return 1

    def aim(self, first: int, count: int) -> Command:
        return self._commands[first]

    def restore(self) -> None:
        pass


class _RangedKernel:
    """A step whose kernel takes the start of a sub-range as arguments, from position `at` on.

    The kernel is that of the step's first recorded dispatch, so these become what they were after each part.
    """

    units: int

    def __init__(self, command: Command, at: int, whole: Sequence[int], most: int) -> None:
        self._kernel, self._work, self._local = command
        self._at = at
        self._whole = tuple(np.int32(n) for n in whole)
        self._most = most
        self._is_aimed = False

    def _aimed(self, numbers: Sequence[int], work: tuple[int, ...]) -> Command:
        for k, number in enumerate(numbers):
            self._kernel.set_arg(self._at + k, np.int32(number))
        self._is_aimed = True
        return self._kernel, work, self._local

    def restore(self) -> None:
        """Have the kernel do what was recorded again."""
        if self._is_aimed:
            for k, number in enumerate(self._whole):
                self._kernel.set_arg(self._at + k, number)
            self._is_aimed = False


class _Elements(_RangedKernel):
    """A generic kernel over some of its groups."""

    def __init__(self, command: Command, source: GenericSource, step: Step, most: int) -> None:
        self._total = prod(step.space)
        at = source.signature.inputs + 1 + len(source.kernel.params)
        super().__init__(command, at, (min(self._total, most * source.local[0]), 0), most)
        self.units = -(-self._total // self._local[0])

    def fitting(self, first: int, count: int) -> int:
        return min(count, self._most)

    def aim(self, first: int, count: int) -> Command:
        if count == self.units:
            return self._kernel, self._work, self._local
        size = self._local[0]
        return self._aimed((min((first + count) * size, self._total), first * size), (count * size,))


class _Groups(_RangedKernel):
    """A tuned kernel over a box of its grid."""

    def __init__(self, command: Command, tuned: TunedKernel, step: Step, most: int) -> None:
        signature = tuned.signature
        at = signature.inputs + 1 + len(signature.arguments) - len(FIRST_GROUP)
        super().__init__(command, at, (0, 0, 0), most)
        self._grid: Grid = (step.space[0], step.space[1], step.space[2])
        self.units = prod(self._grid)

    def fitting(self, first: int, count: int) -> int:
        return fitting(self._grid, first, min(count, self._most))

    def aim(self, first: int, count: int) -> Command:
        if count == self.units:
            return self._kernel, self._work, self._local
        begin, size = box_at(self._grid, first, count)
        return self._aimed(begin, tuple(n * items for n, items in zip(size, self._local, strict=True)))


_Part = _Iterations | _RecordedDispatches | _Elements | _Groups


class CLPartialDispatch(PartialDispatch):
    """The dispatches of a program; a unit is a group."""

    def __init__(self, backend: OpenCLBackend, program: CLProgram, plan: Plan) -> None:
        self._backend = backend
        self._program = program
        self._latest: TimedInterval | None = None
        commands = iter(program.commands)
        self._parts: list[_Part] = []
        for step in plan.steps:
            count = command_count(backend.programs, step)
            self._parts.append(self._part(step, [next(commands) for _ in range(count)]))
        self.units = [part.units for part in self._parts]

    def fitting(self, step: int, first: int, count: int) -> int:
        """Groups that one dispatch covers."""
        return self._parts[step].fitting(first, count)

    def _part(self, step: Step, commands: Sequence[Command | Repetition]) -> _Part:
        if commands and isinstance(commands[0], Repetition):
            return _Iterations(commands[0])
        own = [command for command in commands if not isinstance(command, Repetition)]
        if not own:
            return _RecordedDispatches(own)
        compiled = self._backend.programs.get(step.kernel)
        source = compiled.source
        if source.signature.in_buffer:
            return _RecordedDispatches(own)
        most = most_groups(compiled, step)
        if isinstance(source, GenericSource):
            return _Elements(own[0], source, step, most)
        assert isinstance(source, TunedKernel)
        return _Groups(own[0], source, step, most)

    def enqueue(self, cuts: Sequence[StepRange], timed: bool) -> Timing | None:
        """Enqueue one dispatch per range."""
        if not self._program.commands:
            raise DisposedError("this program was released")
        device, started = self._backend.device, perf_counter()
        events: list[list[Any]] = []
        enqueue, queue = device.cl.enqueue_nd_range_kernel, device.queue
        try:
            self._program.activate()
            for cut in cuts:
                part = self._parts[cut.step]
                if isinstance(part, _Iterations):
                    commands = part.commands(cut.first, cut.end - cut.first)
                    events.append([enqueue(queue, *command) for command in commands])
                    continue
                events.append([enqueue(queue, *part.aim(cut.first, cut.end - cut.first))])
                part.restore()
        except device.cl.Error as error:
            raise DeviceError(f"{device.info.name} does not take a command: {error}") from error
        if instrumentation.installed and device.keeps_times:
            everything = [event for own in events for event in own]
            instrumentation.later(ObservedEvents(device, everything, started))
        if not (timed and events):
            return None
        if device.keeps_times:
            return _Events(device, events)
        self._latest = TimedInterval(partial(device.is_complete, events[-1][-1]), started, self._latest)
        return self._latest
