"""Consecutive commands of a buffer as one submission: a job on the CPU, a replay on OpenGL."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from engine.api.command_buffers.items import (
    Command,
    InputSlot,
    Item,
    JobCommand,
    ScheduleCommand,
    WorkerOutput,
    are_latest,
    are_ready,
    outside_outputs,
)
from engine.backends.host import HostBackend, HostPart, JoinedJob
from engine.backends.tensor_data import JobMemory
from engine.device.jobs.command_list import CommandList
from engine.device.jobs.system import JobHandle, JobSystem
from engine.runtime.binding import Feed
from engine.runtime.fast_path import FastPath


def segments_of(commands: Sequence[Command]) -> list[Command | JoinedSegment]:
    """Group commands into segments that are submitted together from now on."""
    found: list[Command | JoinedSegment] = []
    together: list[Item | JobCommand] = []
    # The workers that these schedule, and whose outputs they read.
    scheduled: set[int] = set()
    read: set[int] = set()
    place: object = None
    latest: dict[int, FastPath] = {}

    def close() -> None:
        if len(together) > 1:
            found.append(JoinedSegment(together))
        else:
            found.extend(x.command if isinstance(x, Item) else x for x in together)
        for collected in (together, scheduled, read):
            collected.clear()

    for command in commands:
        item = _item(command, latest) if isinstance(command, ScheduleCommand) else None
        where = _where(item, command, place)
        if where is None or where != place or (item is not None and _breaks(item, scheduled, read)):
            close()
        place = where
        if isinstance(command, JobCommand) and where is not None:
            together.append(command)
            read |= _read(command)
        elif item is not None:
            together.append(item)
            scheduled.add(id(item.command.worker))
            read |= _read(item)
            latest[id(item.command.worker)] = item.fast_path
        else:
            found.append(command)
    close()
    return found


def _item(command: ScheduleCommand, latest: dict[int, FastPath]) -> Item | None:
    fast_path, values = command.fast_path, command.worker._inputs.completed(command.given)
    if fast_path is None or values is None or fast_path.is_released:
        return None
    slots: dict[str, InputSlot] = {}
    for number, (name, value) in enumerate(zip(command.worker._inputs.names, values, strict=True)):
        slot = InputSlot.of(value, fast_path, number, latest)
        if slot is None:
            return None
        slots[name] = slot
    fast_path.fix_outputs()
    return Item(command, fast_path, slots)


def _where(item: Item | None, command: Command, place: object) -> object:
    """Key of the device to which commands can be submitted together; None for a command by itself."""
    if isinstance(command, JobCommand):
        return place if isinstance(place, JobSystem) else None
    if item is None:
        return None
    backend = item.fast_path.backend
    return backend.owner if backend.is_host else (backend.name, id(backend.owner))


def _breaks(item: Item, scheduled: set[int], read: set[int]) -> bool:
    """Whether a schedule needs those before it to be enqueued, as its inputs are bound before any of them.

    On the CPU, outputs of workers are copied between the programs; on a GPU they are bound, too.
    """
    own = id(item.command.worker)
    if not item.fast_path.backend.is_host:
        return own in scheduled or bool(_read(item) & scheduled)
    # What reads its outputs comes before its inputs change, as an output may be an input.
    is_used = own in scheduled or own in read
    return is_used and any(slot.output is None for slot in item.slots.values())


def _read(item: Item | JobCommand) -> set[int]:
    """The workers whose outputs a schedule or a job reads."""
    if isinstance(item, JobCommand):
        return {id(value.worker) for value in item.arguments if isinstance(value, WorkerOutput)}
    return {id(slot.output.worker) for slot in item.slots.values() if slot.output is not None}


class JoinedSegment:
    """Schedules of several workers, and on the CPU the jobs between them, as one submission.

    Inputs are bound as a schedule of its own binds them. What is enqueued then is recorded once: the
    programs, and on the CPU the jobs, and the copies of inputs that programs and jobs before them write.
    """

    def __init__(self, items: Sequence[Item | JobCommand]) -> None:
        self.commands = [item.command if isinstance(item, Item) else item for item in items]
        self.count = len(items)
        self._items = list(items)
        self._jobs = [item for item in items if isinstance(item, JobCommand)]
        # The jobs' arguments as they were recorded.
        self._bound = [job.bound() for job in self._jobs]
        scheduled = [item for item in items if isinstance(item, Item)]
        self._outside = outside_outputs(scheduled)
        self._schedules = [(item.command.worker, item.fast_path) for item in scheduled]
        self._backend = scheduled[0].fast_path.backend
        self._fixed = [(item, item.fixed) for item in scheduled if item.fixed is not None]
        self._loose = [item for item in scheduled if item.fixed is None]
        self._shapes = [
            (feed, slot.shape)
            for item, feeds in self._fixed
            for feed, slot in zip(feeds, item.slots.values(), strict=True)
            if isinstance(feed, np.ndarray)
        ]
        self._run: JoinedJob | None = None

    def replay(self) -> bool:
        """Bind the inputs and enqueue, with one change of context."""
        if not (are_latest(self._outside) and are_ready(self._schedules)):
            return False
        for array, shape in self._shapes:
            if array.shape != shape:
                return False
        loose = [(item, feeds) for item in self._loose if (feeds := item.feeds()) is not None]
        if len(loose) < len(self._loose):
            return False
        memories: list[JobMemory] = []
        for job, before in zip(self._jobs, self._bound, strict=True):
            now = job.bound()
            if now.words != before.words or now.kinds != before.kinds:
                return False
            memories += now.memories
        run = self._run
        if run is None:
            run = self._run = self._record(dict([*self._fixed, *loose]))
        with self._backend.entered():
            for item, feeds in loose:
                item.bind(feeds)
            behind = [h for memory in memories for h in memory.before if isinstance(h, JobHandle)]
            handle = run(behind, self._bind_fixed)
            self._backend.flush()
        for memory in memories:
            memory.after(handle)
        for worker, fast_path in self._schedules:
            worker._note_schedule(fast_path)
        return True

    def _bind_fixed(self) -> None:
        for item, feeds in self._fixed:
            item.bind(feeds)

    def _record(self, given: Mapping[Item, Sequence[Feed]]) -> JoinedJob:
        """A function that enqueues everything, called once the remaining inputs are bound."""
        if isinstance(self._backend, HostBackend):
            return self._backend.join_parts(self._parts(given, self._backend.owner.thread_count))
        enqueue = self._backend.join([fast_path.program for _, fast_path in self._schedules])

        def run(behind: Sequence[JobHandle], bind: Callable[[], None]) -> None:
            bind()
            enqueue()

        return run

    def _parts(self, given: Mapping[Item, Sequence[Feed]], threads: int) -> list[HostPart | CommandList]:
        """What a job on the CPU runs: programs with the copies before them, and jobs."""
        parts: list[HostPart | CommandList] = []
        arguments = iter(self._bound)
        used_by_jobs: list[np.ndarray] = []
        for item in self._items:
            if isinstance(item, JobCommand):
                bound = next(arguments)
                used_by_jobs += [memory.array for memory in bound.memories]
                parts.append(item.job.commands(bound, item.count, item.grain, threads))
            else:
                parts.append(item.part(given[item], used_by_jobs))
        return parts
