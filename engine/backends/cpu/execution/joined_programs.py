"""Programs of several streams, and user jobs between them, as one job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from math import inf

import numpy as np

from engine.backends.cpu.execution.program import CPUProgram, MeasuredRate
from engine.backends.cpu.execution.stream import LEAST_SHARED
from engine.backends.host import INLINE_NS, HostBackend, HostBuffer, HostPart, JoinedJob
from engine.base.memory.aligned import address_of
from engine.device.jobs.builtin_commands import builtin_functions, copy_commands
from engine.device.jobs.command_list import NO_ROWS, CommandList
from engine.device.jobs.system import JobHandle, JobSystem, RepeatedJob


def join_parts(jobs: JobSystem, parts: Sequence[HostPart | CommandList]) -> JoinedJob:
    """A function that runs the parts in order, as one job that follows all streams that they use.

    Short programs that need nothing of each other are chunks of one command: each runs on one thread, and all
    threads have some.
    """
    programs = [part for part in parts if isinstance(part, HostPart)]
    has_calls = len(programs) < len(parts)
    is_short = not has_calls and all(_program(part).is_short for part in programs)
    nanoseconds = sum(_program(part).fastest_ns for part in programs)
    # Timed like any other program, to decide whether it takes longer than waking a thread.
    fits = is_short and nanoseconds < INLINE_NS
    joined = CPUProgram(_commands(parts), nanoseconds if fits else inf, jobs, {}, {}, MeasuredRate())
    commands = joined.commands
    assert commands is not None
    held: list[object] = []
    pairs = [pair for part in programs for pair in part.arrays]
    arrays = CommandList(_copies(pairs, held), held)
    is_large = sum(array.nbytes for array, _ in pairs) >= 2 * LEAST_SHARED
    used = dict.fromkeys(chain.from_iterable((part.backend, *part.reads) for part in programs))
    streams = [backend.stream for backend in used]
    last: JobHandle | None = None
    repeated: RepeatedJob | None = None

    def in_flight() -> list[JobHandle]:
        done = last if last is not None and last.is_completed else None
        found: list[JobHandle] = []
        for stream in streams:
            found += stream.before_joining(done)
        return found

    def run(before: Sequence[JobHandle], bind: Callable[[], None]) -> JobHandle | None:
        nonlocal last, repeated
        behind = in_flight()
        if behind or is_large:
            bind()
            behind = in_flight()
        else:
            jobs.run_inline(arrays)
        behind += [handle for handle in before if not handle.is_completed]
        if not behind and joined.is_short:
            joined.run_here()
            return None
        if behind or has_calls:  # who takes tensors that jobs write may keep the handle
            last = jobs.submit(commands, list(dict.fromkeys(behind)))
        else:
            repeated = jobs.submit_repeated(repeated, commands)
            last = repeated.handle
        for stream in streams:
            stream.joined(last)
        return last

    return run


def _program(part: HostPart) -> CPUProgram:
    assert isinstance(part.program, CPUProgram)
    return part.program


def _commands(parts: Sequence[HostPart | CommandList]) -> CommandList:
    rows: list[np.ndarray] = []
    held: list[object] = []
    group: list[HostPart] = []

    def close() -> None:
        """Add the group, as one command if it is more than one program."""
        lists = [_rows(part, held) for part in group]
        group.clear()
        if len(lists) > 1:
            table = np.array([(address_of(each), len(each)) for each in lists], np.int64)
            held.extend((lists, table))
            lists = [np.array([(builtin_functions()["lists"], address_of(table), len(lists), 1)], np.int64)]
        rows.extend(lists)

    for part in parts:
        if isinstance(part, CommandList):
            close()
            rows.append(part.array)
            held.append(part)
            continue
        used: set[HostBackend] = set().union(*((other.backend, *other.reads) for other in group))
        if not _program(part).may_be_short or used & {part.backend, *part.reads}:
            close()
        group.append(part)
        if not _program(part).may_be_short:
            close()
    close()
    return CommandList(np.concatenate(rows), held)


def _rows(part: HostPart, held: list[object]) -> np.ndarray:
    """The copies to a program's inputs, then its commands."""
    commands = _program(part).commands
    assert commands is not None
    held.append(commands)
    # A program without elements has a command without a function.
    return np.concatenate([_copies(part.copies, held), commands.array[commands.array[:, 0] > 0]])


def _copies(pairs: Sequence[tuple[np.ndarray, HostBuffer]], held: list[object]) -> np.ndarray:
    lists = [copy_commands(source, target.array) for source, target in pairs]
    held.extend(lists)
    return np.concatenate([NO_ROWS, *(each.array for each in lists)])
