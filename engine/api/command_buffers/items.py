"""What a command buffer holds: schedules, jobs and calls, and where a schedule's inputs come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import get_ident
from typing import Any, Protocol

import numpy as np

from engine.api.job_arguments import Bound
from engine.api.jobs import Job
from engine.api.worker import Worker
from engine.backends.base import DeviceBuffer
from engine.runtime.binding import Feed, can_bind
from engine.runtime.device_tensor_data import BufferTensorData
from engine.runtime.fast_path import FastPath
from engine.runtime.outputs import data_at
from engine.runtime.tensor import Tensor


@dataclass(frozen=True)
class WorkerOutput:
    """An output of a worker as it will be when a command gets there; see `CommandBuffer.output`.

    Attributes:
        worker: The worker.
        name: Name of the output; None for the first.
    """

    worker: Worker
    name: str | None

    def tensor(self) -> Any:
        """The output as it is now."""
        return self.worker.peek_output(self.name)


@dataclass
class ScheduleCommand:
    """A worker's schedule, and what it came down to when it was last scheduled the usual way."""

    worker: Worker
    given: dict[str, Any]
    fast_path: FastPath | None = None

    def execute(self) -> None:
        """Schedule it the usual way."""
        self.worker.schedule({n: now(value) for n, value in self.given.items()})
        self.fast_path = self.worker._plain_path()


@dataclass
class JobCommand:
    """A job of one's own."""

    job: Job
    arguments: tuple[Any, ...]
    count: int | None
    grain: int | None

    def execute(self) -> None:
        """Schedule it by itself."""
        self.job.schedule(*map(now, self.arguments), count=self.count, grain=self.grain)

    def bound(self) -> Bound:
        """Its arguments as they are now."""
        return self.job.bound([now(argument) for argument in self.arguments])


@dataclass
class PlainCommand:
    """Anything else."""

    call: Callable[[], object]

    def execute(self) -> None:
        """Call it."""
        self.call()


Command = ScheduleCommand | JobCommand | PlainCommand


def now(value: Any) -> Any:
    """A value, or the output that it stands for as it is now."""
    return value.tensor() if isinstance(value, WorkerOutput) else value


class Segment(Protocol):
    """Consecutive commands that go out together."""

    stays: bool
    """Whether the next execution may find it as it is, although it could not go out now."""

    @property
    def commands(self) -> Sequence[Command]:
        """The commands."""
        ...

    @property
    def count(self) -> int:
        """How many commands that are."""
        ...

    def replay(self) -> bool:
        """Enqueue them; False, with nothing done, where they have to be executed one by one."""
        ...


class PlainSegment:
    """A command that goes out by itself."""

    count = 0

    def __init__(self, command: Command) -> None:
        self.commands = (command,)
        # With its plan, a schedule may go out with others.
        self.stays = not (isinstance(command, ScheduleCommand) and command.worker._waits_for_plan)

    def replay(self) -> bool:
        """Never."""
        return False


@dataclass(slots=True)
class Slot:
    """Where an input of a schedule comes from: an array of one's own, a CPU tensor, a worker's output."""

    buffer: DeviceBuffer
    shape: tuple[int, ...]
    dtype: np.dtype
    is_tensor: bool = False
    output: WorkerOutput | None = None
    output_fast_path: FastPath | None = None
    source: BufferTensorData | None = None

    @classmethod
    def of(cls, value: Any, fast_path: FastPath, number: int, latest: dict[int, FastPath]) -> Slot | None:
        """A slot for what an input is now; None where it cannot be replayed."""
        buffer = fast_path.targets[number]
        shape, dtype = fast_path.inputs[number]
        if buffer is None:
            return None
        slot = cls(buffer, shape, dtype)
        if isinstance(value, WorkerOutput):
            other = latest.get(id(value.worker)) or value.worker._plain_path()
            found = None if other is None else other.outputs.get(value.name)
            source = None if found is None else data_at(found[1])
            if not isinstance(source, BufferTensorData) or not can_bind(source, fast_path.backend):
                return None
            if source.dtype != dtype or source.storage.elements != buffer.elements:
                return None
            slot.output, slot.output_fast_path, slot.source = value, other, source
            return slot
        if type(value) is Tensor:
            slot.is_tensor = True
            return slot if slot.fits(value) else None
        return slot if _is_array(value, shape, dtype) else None

    def feed(self, value: Any) -> Feed:
        """What to bind for an input that fits."""
        if self.source is not None:
            return self.source
        found: Feed = value.elements_on_cpu if self.is_tensor else value
        return found

    def fits(self, value: Any) -> bool:
        """Whether an input is of the kind that was recorded."""
        if self.output is not None:
            return bool(value == self.output)
        if self.is_tensor:
            data = value.elements_on_cpu if type(value) is Tensor else None
            return data is not None and data.shape_or_none == self.shape and data.dtype == self.dtype
        return _is_array(value, self.shape, self.dtype)


def _is_array(value: Any, shape: tuple[int, ...], dtype: np.dtype) -> bool:
    return type(value) is np.ndarray and value.shape == shape and value.dtype == dtype


@dataclass
class Item:
    """A schedule with its slots."""

    command: ScheduleCommand
    fast_path: FastPath
    slots: list[Slot]

    def fixed_arrays(self) -> list[np.ndarray | None] | None:
        """The arrays that the buffer was given (None for outputs), where nothing else may be meant later."""
        found: list[np.ndarray | None] = []
        for name, slot in zip(self.command.worker._inputs.names, self.slots, strict=True):
            value = self.command.given.get(name)
            if slot.output is None and not (type(value) is np.ndarray and value.flags.c_contiguous):
                return None
            found.append(value if slot.output is None else None)
        return found

    def values(self) -> list[Any] | None:
        """The inputs as they are now; None where something is not as it was recorded."""
        worker, fast_path = self.command.worker, self.fast_path
        if not is_ready(worker, fast_path):
            return None
        values = worker._inputs.completed(self.command.given)
        if values is None:
            return None
        for value, slot in zip(values, self.slots, strict=True):
            if not slot.fits(value):
                return None
        return values


def is_ready(worker: Worker, fast_path: FastPath) -> bool:
    """Whether a schedule needs nothing but its commands; `schedule` reports other errors."""
    # Asked for every worker in every frame, so without the detour of a property.
    is_alike = worker._latest_path is not None and fast_path.recorded.fast_path is fast_path
    return is_alike and worker._thread == get_ident()


def outside_outputs(items: Sequence[Item]) -> list[tuple[Worker, FastPath]]:
    """The workers whose outputs the items read as they were before the first item ran, and the plan that
    made each.
    """
    found: dict[int, tuple[Worker, FastPath]] = {}
    scheduled: set[int] = set()
    for item in items:
        for slot in item.slots:
            if slot.output is not None and slot.output_fast_path is not None:
                worker = slot.output.worker
                if id(worker) not in scheduled:
                    found[id(worker)] = worker, slot.output_fast_path
        scheduled.add(id(item.command.worker))
    return list(found.values())


def are_latest(outputs: Sequence[tuple[Worker, FastPath]]) -> bool:
    """Whether each worker's latest schedule wrote the buffers of that plan, and not those of another size."""
    return all(worker._latest_path is fast_path for worker, fast_path in outputs)
