"""Consecutive schedules and jobs of a command buffer as one job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import get_ident
from time import perf_counter_ns
from typing import Any

import numpy as np

from engine.api.command_buffers.items import Item, JobCommand, are_latest, outside_outputs
from engine.backends.base import Backend
from engine.backends.host import INLINE_NS, TRIALS, HostBackend, HostBuffer, HostProgram
from engine.backends.tensor_data import CPUTensorData
from engine.base.memory.aligned import allocate
from engine.device.jobs.command_list import CommandList
from engine.device.jobs.stock import COPY_GRAIN, stock_functions
from engine.device.jobs.system import JobHandle, JobSystem, RepeatedJob

Row = tuple[int, int, int, int]
"""A native command: function, args, total, grain."""
_MOST_VARIANTS = 6
"""How many executions may be on their way before one is scheduled the usual way."""


@dataclass
class Variant:
    """One list of commands, with staging memory of its own, the last job that ran it, and the one that ran it
    behind nothing.

    `fill` copies the arrays that the buffer was given to their staging memory, `stagings` is for others.
    `sources` are the args of the commands that copy tensors, `arrays` what these lie in at present.
    """

    commands: CommandList
    fill: CommandList
    stagings: list[np.ndarray]
    sources: list[np.ndarray]
    arrays: list[np.ndarray]
    job: JobHandle | None = None
    repeated: RepeatedJob | None = None


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

    def __init__(self, items: Sequence[Item | JobCommand], jobs: JobSystem) -> None:
        self._items = list(items)
        self._jobs = jobs
        self.commands = [item.command if isinstance(item, Item) else item for item in items]
        self.count = len(items)
        self._bound = {k: item.bound() for k, item in enumerate(items) if isinstance(item, JobCommand)}
        self._variants: list[Variant] = []
        scheduled = [item for item in items if isinstance(item, Item)]
        backends: list[Backend] = [item.fast_path.backend for item in scheduled]
        self._outside = outside_outputs(scheduled)
        backends += [fast_path.backend for _, fast_path in self._outside]
        self._streams = [b.stream for b in dict.fromkeys(backends) if isinstance(b, HostBackend)]
        fixed = [(item, arrays) for item in scheduled if (arrays := item.fixed_arrays()) is not None]
        self._fixed = {id(item): arrays for item, arrays in fixed}
        self._ready = [(item.command.worker, item.fast_path) for item, _ in fixed]
        self._shapes = [
            (array, slot.shape)
            for item, arrays in fixed
            for array, slot in zip(arrays, item.slots, strict=True)
            if array is not None
        ]
        self._loose = [item for item in scheduled if id(item) not in self._fixed]
        self._taken = [(item.command.worker, item.fast_path) for item in scheduled]
        self._last: JobHandle | None = None
        programs = [item.fast_path.program for item in scheduled]
        estimate = sum(p.fastest_ns for p in programs if isinstance(p, HostProgram) and p.is_short)
        is_short = all(isinstance(p, HostProgram) and p.is_short for p in programs) and not self._bound
        self._runs_here = is_short and estimate < INLINE_NS
        self._trials, self._fastest = TRIALS, 0

    def replay(self) -> bool:
        """Take the inputs and submit; short work is done at once if nothing is in flight."""
        given: list[list[Any]] = []
        self.stays = False
        if not are_latest(self._outside):
            return False
        here = get_ident()
        for worker, fast_path in self._ready:  # as `is_ready`
            if (
                worker._latest_path is None
                or fast_path.recorded.fast_path is not fast_path
                or worker._thread != here
            ):
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
        for worker, fast_path in self._taken:
            worker._took(fast_path)
        return True

    def _binds_alike(self) -> bool:
        """Whether the jobs' arguments lie where they did; takes note of what they wait for now."""
        for number, bound in self._bound.items():
            item = self._items[number]
            assert isinstance(item, JobCommand)
            now = item.bound()
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
            variant.arrays, variant.job, variant.repeated = arrays, None, None
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
        job: JobHandle
        if unfinished or self._bound:  # who takes tensors that jobs write may keep the handle
            job = self._jobs.submit(variant.commands, unfinished, keep_alive=variant.arrays)
        else:
            earlier = variant.repeated
            variant.repeated = self._jobs.submit_repeated(earlier, variant.commands, variant.arrays)
            job = variant.repeated.handle
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
        for number, item in enumerate(self._items):
            if isinstance(item, JobCommand):
                self._add_group(group, making)
                made = item.job.commands(self._bound[number], item.count, item.grain, self._jobs.thread_count)
                making.rows += _tuples(made.array)
                making.keep.append(made)
            elif not (isinstance(item.fast_path.program, HostProgram) and item.fast_path.program.is_short):
                self._add_group(group, making)
                making.rows += self._rows(item, making)
            else:
                workers = {id(item.command.worker) for item in group}
                needed = {id(slot.output.worker) for slot in item.slots if slot.output is not None}
                if workers & {*needed, id(item.command.worker)}:
                    self._add_group(group, making)
                group.append(item)
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
        program = item.fast_path.program
        assert isinstance(program, HostProgram)
        assert program.commands is not None
        rows: list[Row] = []
        copy = stock_functions()["copy"]
        fixed = self._fixed.get(id(item), [None] * len(item.slots))
        for slot, given in zip(item.slots, fixed, strict=True):
            target = slot.buffer
            assert isinstance(target, HostBuffer)
            source = 0
            if slot.source is not None:
                assert isinstance(slot.source.storage, HostBuffer)
                source = slot.source.storage.address
                making.keep.append(slot.source.storage.array)
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
            rows.append((copy, words.ctypes.data, target.array.nbytes, COPY_GRAIN))
        making.keep.append(program.commands)
        return rows + [row for row in _tuples(program.commands.array) if row[2]]


def _tuples(rows: np.ndarray) -> list[Row]:
    return [(a, b, c, d) for a, b, c, d in rows.tolist()]
