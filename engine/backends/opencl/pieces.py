"""A recorded plan on OpenCL in pieces: kernels whose first group or element is set before each dispatch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from engine import observing
from engine.backends.boxes import Grid, box_at, fitting
from engine.backends.opencl.dispatches import CLProgram, Command, dispatches, most_groups
from engine.backends.opencl.printer import GenericSource
from engine.backends.opencl.timing import ObservedEvents
from engine.backends.opencl.tuned import FIRST_GROUP, TunedKernel
from engine.backends.pieces import Between, Cut, Pieces, Timing
from engine.compiler.plan import Plan, Step
from engine.devices.cl import CLDevice
from engine.errors import DeviceError, DisposedError

if TYPE_CHECKING:
    from engine.backends.opencl.backend import OpenCLBackend


class _Events:
    """What dispatches took, by their events: to the nanosecond where the queue keeps times."""

    def __init__(self, device: CLDevice, events: list[Any], started: float) -> None:
        self._device = device
        self._events = events
        self._started = self._latest = started

    def result(self) -> list[float] | Between | None:
        """Seconds of each dispatch, or bounds for all, once the last is done. Never waits."""
        now = perf_counter()
        if not self._device.is_complete(self._events[-1]):
            self._latest = now
            return None
        if not self._device.keeps_times:
            return Between(self._latest - self._started, now - self._started)
        return [(event.profile.end - event.profile.start) * 1e-9 for event in self._events]


class _Whole:
    """A step that is enqueued as it was recorded: a unit is one of its dispatches."""

    def __init__(self, commands: Sequence[Command]) -> None:
        self._commands = commands
        self.units = len(commands)

    def fitting(self, first: int, count: int) -> int:
        return 1

    def aim(self, first: int, count: int) -> Command:
        return self._commands[first]


class _Elements:
    """A generic kernel over some of its groups."""

    def __init__(self, make: Make, source: GenericSource, step: Step, most: int) -> None:
        self._make = make
        self._kernel: Any = None
        self._local = source.local
        self._total = prod(step.space)
        self._at = source.signature.inputs + 1 + len(source.kernel.params)
        self._most = most
        self.units = -(-self._total // self._local[0])

    def fitting(self, first: int, count: int) -> int:
        return min(count, self._most)

    def aim(self, first: int, count: int) -> Command:
        self._kernel = self._kernel or self._make()
        begin = first * self._local[0]
        self._kernel.set_arg(self._at, np.int32(min(begin + count * self._local[0], self._total)))
        self._kernel.set_arg(self._at + 1, np.int32(begin))
        return self._kernel, (count * self._local[0],), self._local


class _Groups:
    """A tuned kernel over a box of its grid."""

    def __init__(self, make: Make, tuned: TunedKernel, step: Step, most: int) -> None:
        self._make = make
        self._kernel: Any = None
        self._local = tuned.local
        self._grid: Grid = (step.space[0], step.space[1], step.space[2])
        signature = tuned.signature
        self._at = signature.inputs + 1 + len(signature.arguments) - len(FIRST_GROUP)
        self._most = most
        self.units = prod(self._grid)

    def fitting(self, first: int, count: int) -> int:
        return fitting(self._grid, first, min(count, self._most))

    def aim(self, first: int, count: int) -> Command:
        self._kernel = self._kernel or self._make()
        begin, size = box_at(self._grid, first, count)
        for axis, group in enumerate(begin):
            self._kernel.set_arg(self._at + axis, np.int32(group))
        work = tuple(groups * items for groups, items in zip(size, self._local, strict=True))
        return self._kernel, work, self._local


Make = Callable[[], Any]
"""Makes a kernel with its arguments set."""

_Part = _Whole | _Elements | _Groups


class CLPieces(Pieces):
    """The dispatches of a program; a unit is a group."""

    def __init__(self, backend: OpenCLBackend, program: CLProgram, plan: Plan) -> None:
        self._backend = backend
        self._program = program
        commands = iter(program.commands)
        self._parts: list[_Part] = []
        for step in plan.steps:
            count = len(dispatches(backend.programs.get(step.kernel), step)) if prod(step.space) else 0
            self._parts.append(self._part(step, [next(commands) for _ in range(count)]))
        self.units = [part.units for part in self._parts]

    def fitting(self, step: int, first: int, count: int) -> int:
        """Groups that one dispatch covers."""
        return self._parts[step].fitting(first, count)

    def _part(self, step: Step, commands: Sequence[Command]) -> _Part:
        compiled = self._backend.programs.get(step.kernel)
        source = compiled.source
        if not commands or source.signature.in_buffer:
            return _Whole(commands)
        most = most_groups(compiled, step)
        if isinstance(source, GenericSource):
            values = source.values(step.values, step.space, 0, prod(step.space))
            return _Elements(partial(self._kernel, step, values), source, step, most)
        assert isinstance(source, TunedKernel)
        return _Groups(partial(self._kernel, step, [*step.values, 0, 0, 0]), source, step, most)

    def _kernel(self, step: Step, values: Sequence[int | float]) -> Any:
        compiled = self._backend.programs.get(step.kernel)
        operands = [self._program.bound[name] for name in (*step.inputs, step.output)]
        return compiled.new_kernel(operands, list(compiled.source.signature.numbers(values)))

    def enqueue(self, cuts: Sequence[Cut], timed: bool) -> Timing | None:
        """A dispatch for each."""
        if not self._program.commands:
            raise DisposedError("this program was released")
        device, started = self._backend.device, perf_counter()
        enqueue, queue = device.cl.enqueue_nd_range_kernel, device.queue
        try:
            events = [
                enqueue(queue, *self._parts[cut.step].aim(cut.first, cut.end - cut.first)) for cut in cuts
            ]
        except device.cl.Error as error:
            raise DeviceError(f"{device.info.name} does not take a command: {error}") from error
        if observing.installed and device.keeps_times:
            observing.later(ObservedEvents(device, events, started))
        return _Events(device, events, started) if timed else None
