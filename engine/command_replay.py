"""Commands of a buffer that go out together: one job for a stretch on the CPU, one replay on OpenGL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import get_ident
from time import perf_counter_ns
from typing import Any, Protocol

import numpy as np

from engine.aligned import allocate
from engine.backends.base import Backend, DeviceBuffer
from engine.backends.cpu.backend import CPUBackend
from engine.backends.cpu.cost import INLINE_NS, TRIALS
from engine.backends.cpu.memory import CPUBuffer
from engine.backends.cpu.program import CPUProgram
from engine.direct import Direct, DirectRun
from engine.jobs import CommandList, JobHandle, JobSystem
from engine.jobs_arguments import Bound
from engine.jobs_functions import Job
from engine.jobs_stock import stock_functions
from engine.tensor import CPUTensorData, Tensor
from engine.worker import Worker

_COPY_GRAIN = 1 << 18
_MOST_VARIANTS = 6
"""How many executions may be on their way before one is scheduled the usual way."""


@dataclass(frozen=True)
class WorkerOutput:
    """An output of a worker as it will be when a command gets there; see `CommandBuffer.output`."""

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
    direct: Direct | None = None

    def execute(self) -> None:
        """Schedule it the usual way."""
        self.worker.schedule({n: now(value) for n, value in self.given.items()})
        self.direct = self.worker.short_way


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


Row = tuple[int, int, int, int]
"""A native command: function, args, total, grain."""

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

    stays = True
    count = 0

    def __init__(self, command: Command) -> None:
        self.commands = (command,)

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
    output_direct: Direct | None = None
    source: DeviceBuffer | None = None

    @classmethod
    def of(cls, value: Any, direct: Direct, number: int, latest: dict[int, Direct]) -> Slot | None:
        """A slot for what an input is now; None where it cannot be replayed."""
        buffer = direct.targets[number]
        shape, dtype = direct.facts(number)
        if buffer is None:
            return None
        slot = cls(buffer, shape, dtype)
        if isinstance(value, WorkerOutput):
            other = latest.get(id(value.worker)) or value.worker.short_way
            source = None if other is None else other.outputs.get(value.name)
            if other is None or source is None or not _same_place(other.backend, direct.backend):
                return None
            if source.dtype != dtype or source.buffer.elements != buffer.elements:
                return None
            slot.output, slot.output_direct, slot.source = value, other, source.buffer
            return slot
        if type(value) is Tensor:
            slot.is_tensor = True
            return slot if slot.fits(value) else None
        return slot if _is_array(value, shape, dtype) else None

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


def _same_place(one: Backend, other: Backend) -> bool:
    return one.name == other.name and one.owner is other.owner


@dataclass
class Item:
    """A schedule with its slots."""

    command: ScheduleCommand
    direct: Direct
    slots: list[Slot]

    def fixed_arrays(self) -> list[np.ndarray | None] | None:
        """The arrays that the buffer was given (None for outputs), where nothing else may be meant later."""
        found: list[np.ndarray | None] = []
        for name, slot in zip(self.command.worker.inputs.names, self.slots, strict=True):
            value = self.command.given.get(name)
            if slot.output is None and not (type(value) is np.ndarray and value.flags.c_contiguous):
                return None
            found.append(value if slot.output is None else None)
        return found

    def values(self) -> list[Any] | None:
        """The inputs as they are now; None where something is not as it was recorded."""
        worker, direct = self.command.worker, self.direct
        if not _is_ready(worker, direct):
            return None
        values = worker.inputs.completed(self.command.given)
        if values is None:
            return None
        for value, slot in zip(values, self.slots, strict=True):
            if not slot.fits(value):
                return None
        return values


def _is_ready(worker: Worker, direct: Direct) -> bool:
    """Whether a schedule needs nothing but its commands; what else is wrong, `schedule` tells."""
    # Asked for every worker in every frame, so without the detour of a property.
    is_alike = worker._direct is not None and direct.part.short is direct
    return is_alike and worker.thread == get_ident()


def segments_of(commands: Sequence[Command]) -> list[Segment]:
    """How commands that were executed one by one go out together from now on."""
    found: list[Segment] = []
    together: list[Item | JobCommand] = []
    place: object = None
    latest: dict[int, Direct] = {}

    def close() -> None:
        if len(together) > 1:
            is_on_cpu = isinstance(place, JobSystem)
            found.append(CPUSegment(together, place) if is_on_cpu else StreamSegment(together))  # type: ignore[arg-type]
        else:
            found.extend(PlainSegment(x.command if isinstance(x, Item) else x) for x in together)
        together.clear()

    for command in commands:
        item = _item(command, latest) if isinstance(command, ScheduleCommand) else None
        where = _where(item, command, place)
        if where is None or where != place or (item is not None and _breaks(item, together)):
            close()
        place = where
        if isinstance(command, JobCommand) and where is not None:
            together.append(command)
        elif item is not None:
            together.append(item)
            latest[id(item.command.worker)] = item.direct
        else:
            found.append(PlainSegment(command))
    close()
    return found


def _item(command: ScheduleCommand, latest: dict[int, Direct]) -> Item | None:
    direct, values = command.direct, command.worker.inputs.completed(command.given)
    if direct is None or values is None or direct.part.short is not direct:
        return None
    slots = [Slot.of(value, direct, number, latest) for number, value in enumerate(values)]
    kept = [slot for slot in slots if slot is not None]
    return Item(command, direct, kept) if len(kept) == len(slots) else None


def _where(item: Item | None, command: Command, place: object) -> object:
    """With which others a command can go out; None for none. A job goes with the workers before it."""
    if isinstance(command, JobCommand):
        return place if isinstance(place, JobSystem) else None
    if item is None:
        return None
    backend = item.direct.backend
    return backend.owner if backend.name == "cpu" else (backend.name, id(backend.owner))


def _breaks(item: Item, together: Sequence[Item | JobCommand]) -> bool:
    """Whether a schedule on a GPU needs those before it to be enqueued: its inputs are uploaded first."""
    if item.direct.backend.name == "cpu":
        return False
    before = {id(other.command.worker) for other in together if isinstance(other, Item)}
    needed = {id(slot.output.worker) for slot in item.slots if slot.output is not None}
    return id(item.command.worker) in before or bool(needed & before)


class StreamSegment:
    """Schedules of several workers on one GPU: uploads, then all their commands in one replay."""

    stays = False

    def __init__(self, items: Sequence[Item]) -> None:
        self._items = list(items)
        self.commands = [item.command for item in items]
        self.count = len(items)
        self._backend = items[0].direct.backend
        self._run = self._backend.join([item.direct.program for item in items])

    def replay(self) -> bool:
        """Upload and run, with one change of context."""
        given = []
        for item in self._items:
            values = item.values()
            if values is None or any(_is_awaited(value) for value in values):
                return False
            given.append(values)
        with self._backend.entered():
            for item, values in zip(self._items, given, strict=True):
                backend = item.direct.backend
                for slot, value in zip(item.slots, values, strict=True):
                    if slot.source is not None:
                        backend.copy(slot.source, slot.buffer)
                    else:
                        backend.upload(
                            slot.buffer, value.elements_on_cpu.elements if slot.is_tensor else value
                        )
            self._run()
            self._backend.flush()
        for item in self._items:
            item.command.worker.took_short_way(item.direct)
        return True


def _is_awaited(value: Any) -> bool:
    data = value.elements_on_cpu if type(value) is Tensor else None
    return data is not None and data.fence is not None


@dataclass
class Variant:
    """One list of commands, with staging memory of its own, and the last job that ran it.

    `fill` copies the arrays that the buffer was given to their staging memory, `stagings` is for others.
    `sources` are the args of the commands that copy tensors, `arrays` what these lie in at present.
    """

    commands: CommandList
    fill: CommandList
    stagings: list[np.ndarray]
    sources: list[np.ndarray]
    arrays: list[np.ndarray]
    job: JobHandle | None = None


@dataclass
class _Making:
    """A variant in the making: rows, and what their args point to."""

    rows: list[Row] = field(default_factory=list)
    fill: list[Row] = field(default_factory=list)
    stagings: list[np.ndarray] = field(default_factory=list)
    sources: list[np.ndarray] = field(default_factory=list)
    keep: list[object] = field(default_factory=list)


class CPUSegment:
    """Schedules and jobs on one job system as one job: copies of the inputs, then every plan's commands.

    Short plans of several workers that need nothing of each other are one command, in which each is a chunk:
    so each runs on one thread, and all threads have some.
    """

    stays = False

    def __init__(self, parts: Sequence[Item | JobCommand], jobs: JobSystem) -> None:
        self._parts = list(parts)
        self._jobs = jobs
        self.commands = [part.command if isinstance(part, Item) else part for part in parts]
        self.count = len(parts)
        self._bound = {k: part.bound() for k, part in enumerate(parts) if isinstance(part, JobCommand)}
        self._variants: list[Variant] = []
        items = [part for part in parts if isinstance(part, Item)]
        streams: list[Backend] = [item.direct.backend for item in items]
        inside = {id(item.command.worker) for item in items}
        self._outside: list[tuple[Worker, Direct]] = []
        for slot in (slot for item in items for slot in item.slots):
            if slot.output is not None and slot.output_direct is not None:
                streams.append(slot.output_direct.backend)
                if id(slot.output.worker) not in inside:
                    self._outside.append((slot.output.worker, slot.output_direct))
        self._streams = [s for s in dict.fromkeys(streams) if isinstance(s, CPUBackend)]
        fixed = [(item, arrays) for item in items if (arrays := item.fixed_arrays()) is not None]
        self._fixed = {id(item): arrays for item, arrays in fixed}
        self._ready = [(item.command.worker, item.direct) for item, _ in fixed]
        self._shapes = [
            (array, slot.shape)
            for item, arrays in fixed
            for array, slot in zip(arrays, item.slots, strict=True)
            if array is not None
        ]
        self._loose = [item for item in items if id(item) not in self._fixed]
        self._taken = [(item.command.worker, item.direct) for item in items]
        self._last: JobHandle | None = None
        programs = [item.direct.program for item in items]
        estimate = sum(p.fastest_ns for p in programs if isinstance(p, CPUProgram) and p.is_short)
        is_short = all(isinstance(p, CPUProgram) and p.is_short for p in programs) and not self._bound
        self._runs_here = is_short and estimate < INLINE_NS
        self._trials, self._fastest = TRIALS, 0

    def replay(self) -> bool:
        """Take the inputs and submit; short work is done at once if nothing is in flight."""
        given: list[list[Any]] = []
        self.stays = False
        for worker, direct in self._outside:
            if worker.short_way is not direct or type(worker.latest) is not DirectRun:
                return False
        here = get_ident()
        for worker, direct in self._ready:  # as `_is_ready`
            if worker._direct is None or direct.part.short is not direct or worker.thread != here:
                return False
        for array, shape in self._shapes:
            if array.shape != shape:
                return False
        for item in self._loose:
            values = item.values()
            if values is None:
                return False
            given.append(values)
        if self._bound and not self._binds_alike():
            return False
        variant = self._free_variant()
        self.stays = variant is None
        if variant is None:
            return False
        read, before = self._take(variant, given)
        last = self._last if self._last is not None and self._last.is_completed else None
        for stream in self._streams:
            before += stream.before_joining(last)
        if self._runs_here and not before:
            self._run_here(variant)
        else:
            self._submit(variant, before, read)
        for worker, direct in self._taken:
            worker.took_short_way(direct)
        return True

    def _binds_alike(self) -> bool:
        """Whether the jobs' arguments lie where they did; takes note of what they wait for now."""
        for number, bound in self._bound.items():
            part = self._parts[number]
            assert isinstance(part, JobCommand)
            now = part.bound()
            if now.words != bound.words or now.kinds != bound.kinds:
                return False
            self._bound[number] = now
        return True

    def _take(
        self, variant: Variant, given: Sequence[list[Any]]
    ) -> tuple[list[CPUTensorData], list[JobHandle]]:
        """Copy arrays; which tensors the job will read, and what it has to wait for."""
        read: list[CPUTensorData] = []
        before = [
            handle
            for bound in self._bound.values()
            for memory in bound.memories
            for handle in memory.before
            if isinstance(handle, JobHandle)
        ]
        if variant.fill.count:
            self._jobs.run_inline(variant.fill)
        staging = iter(variant.stagings)
        arrays: list[np.ndarray] = []
        for item, values in zip(self._loose, given, strict=True):
            for slot, value in zip(item.slots, values, strict=True):
                if slot.is_tensor:
                    data = value.elements_on_cpu
                    read.append(data)
                    arrays.append(data.elements)
                    if data.fence is not None:
                        before.append(data.fence)
                elif slot.source is None:
                    np.copyto(next(staging), value)
        if len(arrays) != len(variant.arrays) or any(
            one is not other for one, other in zip(arrays, variant.arrays, strict=True)
        ):
            variant.arrays, variant.job = arrays, None
            for words, array in zip(variant.sources, arrays, strict=True):
                words[1] = array.__array_interface__["data"][0]
        return read, before

    def _run_here(self, variant: Variant) -> None:
        """Run on this thread, with an eye on the clock the first times."""
        if not self._trials:
            self._jobs.run_inline(variant.commands)
            return
        started = perf_counter_ns()
        self._jobs.run_inline(variant.commands)
        took = perf_counter_ns() - started
        self._fastest = took if self._trials == TRIALS else min(self._fastest, took)
        self._trials -= 1
        if not self._trials:
            self._runs_here = self._fastest < INLINE_NS

    def _submit(self, variant: Variant, before: list[JobHandle], read: Sequence[CPUTensorData]) -> None:
        unfinished = list(dict.fromkeys(h for h in before if not h.is_completed))
        job = None if unfinished or variant.job is None else self._jobs.again(variant.job)
        if job is None:
            job = self._jobs.submit(variant.commands, unfinished, keep_alive=variant.arrays)
        variant.job = self._last = job
        for stream in self._streams:
            stream.joined(job)
        for data in read:
            data.is_read_by(job)
        for bound in self._bound.values():
            for memory in bound.memories:
                memory.after(job)

    def _free_variant(self) -> Variant | None:
        """A list that is not on its way; None where too many are."""
        for variant in self._variants:
            if variant.job is None or variant.job.is_completed:
                return variant
        if len(self._variants) == _MOST_VARIANTS:
            return None
        self._variants.append(self._make())
        return self._variants[-1]

    # Making a list

    def _make(self) -> Variant:
        making = _Making()
        group: list[Item] = []
        for number, part in enumerate(self._parts):
            if isinstance(part, JobCommand):
                self._add_group(group, making)
                made = part.job.commands(self._bound[number], part.count, part.grain, self._jobs.thread_count)
                making.rows += _tuples(made.array)
                making.keep.append(made)
            elif not (isinstance(part.direct.program, CPUProgram) and part.direct.program.is_short):
                self._add_group(group, making)
                making.rows += self._rows(part, making)
            else:
                workers = {id(item.command.worker) for item in group}
                needed = {id(slot.output.worker) for slot in part.slots if slot.output is not None}
                if workers & {*needed, id(part.command.worker)}:
                    self._add_group(group, making)
                group.append(part)
        self._add_group(group, making)
        fill = CommandList(making.fill, making.keep)
        return Variant(CommandList(making.rows, making.keep), fill, making.stagings, making.sources, [])

    def _add_group(self, group: list[Item], making: _Making) -> None:
        """Short plans as one command, unless there is but one."""
        lists = [np.array(self._rows(item, making), np.int64).reshape(-1, 4) for item in group]
        group.clear()
        if len(lists) == 1:
            making.rows += _tuples(lists[0])
        elif lists:
            table = np.array([(rows.ctypes.data, len(rows)) for rows in lists], np.int64)
            making.keep += [lists, table]
            making.rows.append((stock_functions()["lists"], table.ctypes.data, len(lists), 1))

    def _rows(self, item: Item, making: _Making) -> list[Row]:
        """One schedule's commands: its inputs' copies, then the plan's."""
        program = item.direct.program
        assert isinstance(program, CPUProgram)
        assert program.commands is not None
        rows: list[Row] = []
        copy = stock_functions()["copy"]
        fixed = self._fixed.get(id(item), [None] * len(item.slots))
        for slot, given in zip(item.slots, fixed, strict=True):
            target = slot.buffer
            assert isinstance(target, CPUBuffer)
            source = 0
            if slot.source is not None:
                assert isinstance(slot.source, CPUBuffer)
                source = slot.source.address
                making.keep.append(slot.source.array)
            elif not slot.is_tensor:
                staging = allocate(target.array.nbytes).view(slot.dtype)
                source = staging.__array_interface__["data"][0]
                making.keep.append(staging)
                if given is None:
                    making.stagings.append(staging.reshape(slot.shape))
                else:
                    words = np.array([source, given.__array_interface__["data"][0]], np.int64)
                    making.keep += [words, given]
                    making.fill.append((copy, words.ctypes.data, given.nbytes, given.nbytes))
            words = np.array([target.address, source], np.int64)
            if slot.is_tensor:
                making.sources.append(words)
            making.keep += [words, target.array]
            rows.append((copy, words.ctypes.data, target.array.nbytes, _COPY_GRAIN))
        making.keep.append(program.commands)
        return rows + [row for row in _tuples(program.commands.array) if row[2]]


def _tuples(rows: np.ndarray) -> list[Row]:
    return [(a, b, c, d) for a, b, c, d in rows.tolist()]
