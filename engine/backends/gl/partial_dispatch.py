"""Partial dispatch on OpenGL: a list of calls for each step, whose range is set before it is issued."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from time import perf_counter
from typing import TYPE_CHECKING, Literal, Protocol

from engine.backends.gl.commands import CallList, Setting
from engine.backends.gl.record import GLProgram, GLRecorder
from engine.backends.gl.timing import ObservedCommands
from engine.backends.partial_dispatch import KnownTiming, PartialDispatch, StepRange, TimedInterval, Timing
from engine.base import instrumentation
from engine.compiler.plan import Plan, Step
from engine.device.gl.device import GLDevice
from engine.device.gl.fence import Fence

if TYPE_CHECKING:
    from engine.backends.gl.backend import GLBackend

Clock = Literal["calls", "stamps", "fences"]
"""What tells how long work took: the calls themselves, where the driver computes in them; timestamps; or
fences behind it, where timestamps would wait for the work, and every draw for the previous one (llvmpipe)."""


class StepCalls(Protocol):
    """The calls of one step, independent of prior state."""

    @property
    def commands(self) -> CallList:
        """The calls."""
        ...

    def set_range(self, first: int, end: int) -> None:
        """Set the calls to units `first` to `end`, without affecting earlier issues."""
        ...


class RepeatedCalls:
    """Some runs of a step that repeats others; a unit is a run."""

    def __init__(self, step: Step, recorder: GLRecorder, add: Callable[[Step], Sequence[Setting]]) -> None:
        recorder.repeat(step, add)
        recorder.commands.finish()
        self.commands = recorder.commands
        self._count = step.space[0]

    def set_range(self, first: int, end: int) -> None:
        """Set iterations `first` to `end`, and the commands after the last one."""
        body, last = self.commands.repetitions
        count = self._count
        self.commands.repetitions = [
            replace(body, runs=range(first, end)), replace(last, runs=range(count, count + (end == count))),
        ]  # fmt: skip


class StampedTiming:
    """Times of consecutive work, from GPU timestamps around each piece."""

    def __init__(self, device: GLDevice, stamps: Sequence[int]) -> None:
        self._device = device
        self._times: list[float] | None = None
        device.timer.request(stamps, self._receive)

    def _receive(self, times: list[float]) -> None:
        self._times = times

    def result(self) -> list[float] | None:
        """Seconds of each; None while they have not come. Never waits."""
        if self._times is None:
            with self._device.current(flush=False):
                self._device.timer.collect()
        if self._times is None:
            return None
        return [after - before for before, after in pairwise(self._times)]


class GLPartialDispatch(PartialDispatch, ABC):
    """The steps of a program; each one's calls are made when it is first enqueued."""

    def __init__(self, backend: GLBackend, program: GLProgram, plan: Plan, clock: Clock) -> None:
        self._backend = backend.name
        self._device = backend.device
        self._replayer = backend.replayer
        self._program = program
        self._steps = plan.steps
        self._clock = clock
        self._made: dict[int, StepCalls] = {}
        self._latest: TimedInterval | None = None
        self.is_synchronous = clock != "stamps"

    @abstractmethod
    def step_calls(self, step: int) -> StepCalls:
        """The calls of a step; the device's context is current."""

    def enqueue(self, parts: Sequence[StepRange], timed: bool) -> Timing | None:
        """Issue the calls of each."""
        if self._program.is_released:
            self._program.check()
        with self._device.current():
            if not instrumentation.installed:
                return self._enqueue(parts, timed)
            watched = ObservedCommands(self._device, self._backend)
            timing = self._enqueue(parts, timed)
            watched.end()
            return timing

    def _enqueue(self, parts: Sequence[StepRange], timed: bool) -> Timing | None:
        if self._clock == "fences":
            return self._issue_before_fence(parts)
        if not timed:
            for part in parts:
                self._issue(part)
            return None
        if self._clock == "stamps":
            stamps = [self._device.timer.stamp()]
            for part in parts:
                self._issue(part)
                stamps.append(self._device.timer.stamp())
            return StampedTiming(self._device, stamps)
        times = [perf_counter()]
        for part in parts:
            self._issue(part)
            times.append(perf_counter())
        return KnownTiming([after - before for before, after in pairwise(times)])

    def _issue_before_fence(self, parts: Sequence[StepRange]) -> Timing:
        # Most often the renderer first waits for work before this, at least for what comes before the latest.
        was_busy = self.is_busy
        started = perf_counter()
        for part in parts:
            self._issue(part)
        fence = Fence(self._device)
        if self._latest is not None and was_busy:
            self._latest.look(has_waited=True)
        self._latest = TimedInterval(fence.is_open, started, self._latest if was_busy else None)
        return self._latest

    @property
    def is_busy(self) -> bool:
        """Whether work before the last fence is still running, so that issuing more may block."""
        return self._latest is not None and self._latest.look() is None

    def _issue(self, part: StepRange) -> None:
        calls = self._made.get(part.step)
        if calls is None:
            calls = self._made[part.step] = self.step_calls(part.step)
        calls.set_range(part.first, part.end)
        self._replayer.run(calls.commands)
