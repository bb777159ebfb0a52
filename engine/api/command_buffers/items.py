"""Recorded commands of a command buffer, and the sources of their inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import get_ident
from typing import Any

import numpy as np

from engine.api.job_arguments import BoundArguments
from engine.api.jobs import Job
from engine.api.worker import Worker
from engine.backends.base import DeviceBuffer
from engine.backends.host import HostBackend, HostBuffer, HostPart
from engine.backends.tensor_data import CPUTensorData
from engine.runtime.binding import Feed, bind, can_bind
from engine.runtime.device_tensor_data import BufferTensorData
from engine.runtime.fast_path import FastPath
from engine.runtime.outputs import data_at
from engine.runtime.tensor import Tensor


@dataclass(frozen=True)
class WorkerOutput:
    """A reference to a worker's output, resolved when a command executes; see `CommandBuffer.output`.

    Attributes:
        worker: The worker.
        name: Name of the output; None for the first.
    """

    worker: Worker
    name: str | None

    def tensor(self) -> Any:
        """Return the worker's current output."""
        return self.worker.peek_output(self.name)


@dataclass
class ScheduleCommand:
    """A recorded schedule of a worker, with the fast path of its latest execution."""

    worker: Worker
    given: dict[str, Any]
    fast_path: FastPath | None = None
    waited: bool = False
    """Whether its plan was still being made: with that, it may go out with others."""

    def execute(self) -> None:
        """Schedule the worker without replay."""
        self.worker.schedule({n: now(value) for n, value in self.given.items()})
        self.fast_path, self.waited = self.worker._plain_path(), self.worker._waits_for_plan


@dataclass
class JobCommand:
    """A recorded user job."""

    job: Job
    arguments: tuple[Any, ...]
    count: int | None
    grain: int | None

    def execute(self) -> None:
        """Schedule the job on its own."""
        self.job.schedule(*map(now, self.arguments), count=self.count, grain=self.grain)

    def bound(self) -> BoundArguments:
        """Bind the current values of the arguments."""
        return self.job.bound([now(argument) for argument in self.arguments])


@dataclass
class PlainCommand:
    """Any other call: `execute` is the given function."""

    execute: Callable[[], object]


Command = ScheduleCommand | JobCommand | PlainCommand


def now(value: Any) -> Any:
    """Resolve a `WorkerOutput` to its current tensor; other values are returned unchanged."""
    return value.tensor() if isinstance(value, WorkerOutput) else value


@dataclass(slots=True)
class InputSlot:
    """An input of a recorded schedule: a user's array, a CPU tensor or a worker's output.

    Attributes:
        buffer: The buffer of the plan that it goes to.
        shape: Its shape.
        dtype: Its type.
        is_tensor: Whether it is a tensor on the CPU.
        output: The worker's output that it is.
        output_fast_path: What schedules that worker.
        source: The storage of that output.
        recorded: The memory that recorded commands copy to `buffer`; None for what is bound each time.
    """

    buffer: DeviceBuffer
    shape: tuple[int, ...]
    dtype: np.dtype
    is_tensor: bool = False
    output: WorkerOutput | None = None
    output_fast_path: FastPath | None = None
    source: BufferTensorData | None = None
    recorded: np.ndarray | None = None

    @classmethod
    def of(
        cls, value: Any, fast_path: FastPath, number: int, latest: dict[int, FastPath]
    ) -> InputSlot | None:
        """Return a slot for an input's current value, or None if it cannot be replayed."""
        buffer = fast_path.targets[number]
        shape, dtype = fast_path.shapes[number], fast_path.dtypes[number]
        if buffer is None:
            return None
        slot = cls(buffer, shape, dtype, type(value) is Tensor)
        if isinstance(value, WorkerOutput):
            other = latest.get(id(value.worker)) or value.worker._plain_path()
            if other is not None:
                other.fix_outputs()
            found = None if other is None else other.fixed_output(value.name)
            source = None if found is None else data_at(found)
            if not isinstance(source, BufferTensorData) or not can_bind(source, fast_path.backend):
                return None
            if source.dtype != dtype or source.storage.elements != buffer.elements:
                return None
            slot.output, slot.output_fast_path, slot.source = value, other, source
        return None if slot.feed(value) is None else slot

    def feed(self, value: Any) -> Feed | None:
        """Return the value to bind, or None if its type or shape differs from the recorded one."""
        if self.output is not None:
            return self.source if value == self.output else None
        if self.is_tensor:
            data = value.elements_on_cpu if type(value) is Tensor else None
            if data is None or data.shape_or_none != self.shape or data.dtype != self.dtype:
                return None
            if self.recorded is not None and self.recorded is not data.elements:
                return None
            return data.elements if data.fence is None else data
        is_alike = type(value) is np.ndarray and value.shape == self.shape and value.dtype == self.dtype
        return value if is_alike else None


class Item:
    """A schedule with its slots, by name of the input."""

    def __init__(self, command: ScheduleCommand, fast_path: FastPath, slots: dict[str, InputSlot]) -> None:
        self.command = command
        self.fast_path = fast_path
        self.slots = slots
        given = [slot.source or command.given.get(name) for name, slot in slots.items()]
        # The inputs, if they are what was given and only their elements may change.
        self.fixed: list[Any] | None = given if all(map(_is_fixed, given)) else None

    def feeds(self) -> Sequence[Feed] | None:
        """Return the current inputs, or None if any differs from what was recorded."""
        values = self.command.worker._inputs.completed(self.command.given)
        if values is None:
            return None
        feeds: list[Feed] = []
        for value, slot in zip(values, self.slots.values(), strict=True):
            feed = slot.feed(value)
            if feed is None or not (type(feed) is np.ndarray or can_bind(feed, self.fast_path.backend)):
                return None
            feeds.append(feed)
        return feeds

    def bind(self, feeds: Sequence[Feed]) -> None:
        """Bind the inputs that no recorded command copies."""
        backend = self.fast_path.backend
        for slot, feed in zip(self.slots.values(), feeds, strict=True):
            if slot.recorded is None:
                bind(feed, backend, slot.buffer)

    def part(self, feeds: Sequence[Feed], used_by_jobs: Sequence[np.ndarray]) -> HostPart:
        """The program for a joined job, and copies of inputs that programs and jobs before it write.

        Args:
            feeds: The inputs.
            used_by_jobs: Memory of the jobs before it.
        """
        backend, program = self.fast_path.backend, self.fast_path.program
        assert isinstance(backend, HostBackend)
        arrays: list[tuple[np.ndarray, HostBuffer]] = []
        copies: list[tuple[np.ndarray, HostBuffer]] = []
        reads: set[HostBackend] = set()
        for slot, feed in zip(self.slots.values(), feeds, strict=True):
            assert isinstance(slot.buffer, HostBuffer)
            if slot.source is not None:
                assert isinstance(slot.source.storage, HostBuffer)
                assert isinstance(slot.source.backend, HostBackend)
                slot.recorded = slot.source.storage.array
                reads.add(slot.source.backend)
            elif slot.is_tensor:
                memory = feed.elements if isinstance(feed, CPUTensorData) else feed
                slot.recorded = next((used for used in used_by_jobs if used is memory), None)
            if slot.recorded is not None:
                copies.append((slot.recorded, slot.buffer))
            elif self.fixed is not None:
                arrays.append((feed, slot.buffer))  # type: ignore[arg-type]
        return HostPart(backend, program, arrays, copies, reads)


def _is_fixed(given: Any) -> bool:
    is_array = type(given) is np.ndarray and given.flags.c_contiguous
    return is_array or isinstance(given, BufferTensorData)


def are_ready(schedules: Sequence[tuple[Worker, FastPath]]) -> bool:
    """Whether schedules need nothing but their commands; `schedule` reports other errors."""
    here = get_ident()
    for worker, fast_path in schedules:
        # Read for every worker in every frame: attribute access without a property.
        if worker._latest_path is None or fast_path.recorded.fast_path is not fast_path:
            return False
        if fast_path.has_own:
            return False
        if worker._thread != here:
            return False
    return True


def outside_outputs(items: Sequence[Item]) -> list[tuple[Worker, FastPath]]:
    """The workers whose earlier outputs the items read, each with the plan that computed it."""
    found: dict[int, tuple[Worker, FastPath]] = {}
    scheduled: set[int] = set()
    for item in items:
        for slot in item.slots.values():
            if slot.output is not None and slot.output_fast_path is not None:
                worker = slot.output.worker
                if id(worker) not in scheduled:
                    found[id(worker)] = worker, slot.output_fast_path
        scheduled.add(id(item.command.worker))
    return list(found.values())


def are_latest(outputs: Sequence[tuple[Worker, FastPath]]) -> bool:
    """Whether each worker's latest schedule wrote the buffers of that plan, and no others."""
    return all(worker._latest_path is path and not path.has_own for worker, path in outputs)
