"""Jobs: lists of native commands that threads run without the GIL, with dependencies between them.

A command is a parallel loop, `function(args, begin, end)` for the chunks of `range(total)`: `begin` is a
multiple of `grain` and `end` is `min(begin + grain, total)`. The commands of a list run one after another;
the chunks of one command run on all job threads. Job threads enter native code when they start and come back
when they stop (`engine.device.jobs.program`), so jobs start, run, release their dependents and raise their
completion flags while the main thread runs Python.

Kernels cannot raise. One that writes outside its buffers ends the process: what a command is given must have
been checked when the command list was made.

After a fork, job threads exist only in the parent; in the child every use of an inherited `JobSystem` raises
`DeviceError`, and `shared_job_system()` makes a new one.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from engine.base.errors import DeviceError, DisposedError, InputError
from engine.base.memory.aligned import address_of, allocate
from engine.device import native
from engine.device.jobs.builtin_commands import copy_commands
from engine.device.jobs.command_list import NOTHING, CommandList
from engine.device.jobs.layout import (
    INLINE_EDGES,
    JOB_WORDS,
    LAYOUT,
    OP_AGAIN,
    OP_STOP,
    OP_SUBMIT,
    OP_WAIT,
    SYSTEM_WORDS,
)
from engine.device.jobs.program import program_source
from engine.device.jobs.stack import job_stacks
from engine.device.jobs.threads import Priority, abandon, ask, pause_seconds, set_allowed_cores, thread_body
from engine.device.jobs.waiting import waiting_functions

_STATE, _COMMANDS, _COUNT = LAYOUT["STATE"], LAYOUT["COMMANDS"], LAYOUT["COUNT"]
_USERS, _PINS, _REQUEST = LAYOUT["USERS"], LAYOUT["PINS"], LAYOUT["REQUEST"]
_EDGES, _FIRST_EDGE = LAYOUT["EDGES"], LAYOUT["FIRST_EDGE"]
_RECORDS_PER_BLOCK = 64
# Among the pins: the record's job is not to run again, which ends with its handle.
_KEPT = 1 << 32
# A blocked call comes back to Python this often, so that Ctrl-C works.
_SLICE_NS = 100_000_000
# Seconds that a thread spins while a job is in flight, and after one: longer than most steps that one thread
# runs alone, and than a caller takes to read a result and schedule again, who waits for threads that wake.
_LONG_SPIN = 200e-6
# Where the job threads leave a core to the game, and where they do not.
_SHORT_SPIN, _SHORTEST_SPIN = 50e-6, 5e-6
# No argument types: the caller passes a ready c_int64, which is four times as fast as converting an int.
_PROGRAM = ctypes.CFUNCTYPE(ctypes.c_int64)
# The same with the GIL held, for what never waits: while it is let go of, another Python thread may take it.
_HOLDING = ctypes.PYFUNCTYPE(ctypes.c_int64)


class _Record(NamedTuple):
    """A job's native memory: its address, and its prepared submit and wait requests."""

    words: memoryview
    base: int
    address: int
    request: ctypes.c_int64
    wait_request: ctypes.c_int64


class JobHandle:
    """A submitted job. `is_completed` polls a flag in native memory; `complete` waits for it."""

    __slots__ = ("__weakref__", "_base", "_finished", "_keep", "_record", "_system", "_words")

    def __init__(self, system: JobSystem, record: _Record, keep: Any, finished: bool = False) -> None:
        self._system = system
        self._record = record
        self._words = record.words
        self._base = record.base
        self._keep = keep
        self._finished = finished

    @property
    def is_completed(self) -> bool:
        """Whether every command has run; never waits."""
        if self._finished:
            return True
        # Bound before the second look: another thread may retire this handle and reuse its record.
        done = self._words[self._base + _STATE] == 1
        return done or self._finished

    def complete(self, timeout: float | None = None) -> bool:
        """Waits without the GIL; returns whether the job is done.

        timeout: seconds. With None it takes as long as it takes, and this thread helps with the job.
        """
        if self.is_completed:
            return True
        with self._system._lock:
            if self._finished:
                return True
            self._words[self._base + _PINS] += 1
        try:
            return self._system._wait(self, timeout)
        finally:
            with self._system._lock:
                self._words[self._base + _PINS] -= 1

    @property
    def system(self) -> JobSystem:
        """The job system that runs the job."""
        return self._system

    def then_copy(self, source: np.ndarray, target: np.ndarray) -> JobHandle:
        """Schedule a copy of an array into another of the same size after this job."""
        return self._system.copy(source, target, [self])

    @staticmethod
    def combine_dependencies(handles: Iterable[JobHandle]) -> JobHandle:
        """A handle that is completed when all of them are. Needs at least one handle."""
        handles = tuple(handles)
        if not handles:
            raise InputError("combine_dependencies needs at least one handle")
        return handles[0]._system.submit(NOTHING, handles, inline=True)

    def pin_run(self) -> JobHandle:
        """Pin this handle to the current run of a repeated job; see `RepeatedJob`."""
        with self._system._lock:
            if not self._finished:
                self._words[self._base + _PINS] |= _KEPT
        return self


class RepeatedJob:
    """A command list that is submitted repeatedly; see `JobSystem.submit_repeated`.

    handle: of the latest run. again: queues the list behind nothing, and gives 1; or 0 where it is not done,
    somebody waits for it or keeps its handle, or the system takes no jobs. Needs no Python, and never waits.
    """

    __slots__ = ("_keep", "again", "handle")

    def __init__(self, system: JobSystem, record: _Record, commands: CommandList, keep_alive: object) -> None:
        words, base = record.words, record.base
        words[base + _COMMANDS], words[base + _COUNT] = commands.address, commands.count
        words[base + _STATE], words[base + _REQUEST] = 1, OP_AGAIN
        self._keep = (commands, keep_alive)
        # It does not hold what the commands need: tensors keep the handles of what has read them.
        self.handle = JobHandle(system, record, None)
        self.again: Callable[[], int] = functools.partial(system._submit, record.request)

    @property
    def is_idle(self) -> bool:
        """Whether no thread reads the list any more."""
        words, base = self.handle._words, self.handle._base
        return words[base + _STATE] == 1 and words[base + _USERS] == 0

    def resize(self, count: int) -> None:
        """Set the number of commands to run. Only while the job `is_idle`."""
        self.handle._words[self.handle._base + _COUNT] = count

    def __del__(self) -> None:
        # It may be running still. No lock, as this may come at any time, and `append` needs none; no globals,
        # as at exit there may be none.
        handle = self.handle
        handle._keep = self._keep
        handle._system._live.append(handle)


class JobSystem:
    """Native threads, and the queue from which they take jobs.

    Args:
        threads: How many, at least 1; by default one per core.
        priority: "below_normal" gives precedence to the game's own threads on systems with thread priorities
            (Linux, Windows).
        spin: Pauses (10 to 50 ns each) that an idle thread spins before it sleeps. By default, long while a
            job is in flight and no more threads are awake than there are cores, otherwise only if a core is
            idle.
        waiting: The way to sleep, for tests.

    Attributes:
        is_closed: Whether `close` was called, or this process is a fork of the one that has the threads.
    """

    def __init__(
        self,
        threads: int | None = None,
        *,
        priority: Priority = "normal",
        spin: int | None = None,
        waiting: str | None = None,
    ) -> None:
        cores = os.cpu_count() or 1
        count = cores if threads is None else threads
        if count < 1:
            raise InputError(f"a job system needs at least 1 thread, not {count}")
        kind, functions, futex = waiting_functions(waiting)
        source = program_source(kind, futex)
        entry = native.process_store().address(source)
        self._call, self._submit = _PROGRAM(entry), _HOLDING(entry)
        block, words, address = _aligned_words(SYSTEM_WORDS)
        pause = pause_seconds(self._call)
        short = _SHORT_SPIN if count < cores else _SHORTEST_SPIN
        words[LAYOUT["SPIN"]] = spin if spin is not None else round(short / pause)
        words[LAYOUT["LONG_SPIN"]] = spin if spin is not None else round(_LONG_SPIN / pause)
        words[LAYOUT["CORES"]], words[LAYOUT["THREADS"]] = cores, count
        words[LAYOUT["ROOM"]] = max(cores, count)
        for name, value in functions.items():
            words[LAYOUT[name]] = value
        set_allowed_cores(words)
        self._address = address
        self._lock = threading.Lock()
        self._free: list[_Record] = []
        self._live: deque[JobHandle] = deque()
        self._closed = False
        self._forked = False
        self._is_prompt = priority == "normal"
        self.is_closed = False
        self._blank = _Record(words, 0, 0, ctypes.c_int64(0), ctypes.c_int64(0))
        self._memory: list[np.ndarray] = [block]
        self._unused, self._block = 0, (words, address)
        body = functools.partial(thread_body, self._call, address, priority)
        self._threads = [
            threading.Thread(target=body, args=(index,), name=f"gameglue-job-{index}", daemon=True)
            for index in range(count)
        ]
        with job_stacks():
            for thread in self._threads:
                thread.start()
        # Also runs at exit. It holds the memory that the threads use, and not the system.
        self._finalizer = weakref.finalize(self, abandon, self._call, address, self._threads, self._memory)
        _systems.add(self)

    @property
    def thread_count(self) -> int:
        """How many job threads there are."""
        return len(self._threads)

    @property
    def is_awake(self) -> bool:
        """Whether a thread works, or spins as it does for a while after work."""
        return self._blank.words[LAYOUT["SLEEPERS"]] < len(self._threads)

    @property
    def helps_callers(self) -> bool:
        """Whether a caller that must not be delayed may share its work with the threads.

        Those of a lower priority may lose their core to others in the middle of it.
        """
        return self._is_prompt and len(self._threads) > 1

    def submit(
        self,
        commands: CommandList | np.ndarray,
        depends_on: Sequence[JobHandle] = (),
        *,
        inline: bool = False,
        keep_alive: object = None,
    ) -> JobHandle:
        """Queue a command list to run after other jobs. Never waits.

        Args:
            commands: The commands.
            depends_on: Jobs that have to be done first.
            inline: Whether to run it now, on this thread, if nothing is left to wait for. For lists that
                take less time than waking a thread.
            keep_alive: An object to hold until the job is done.

        Raises:
            InputError: The commands cannot run.
            DisposedError: The job system was closed.
        """
        listed = commands if isinstance(commands, CommandList) else CommandList(commands)
        if inline and all(handle.is_completed for handle in depends_on):
            self._check_open()
            self._call(listed.run_request)
            return JobHandle(self, self._blank, None, finished=True)
        with self._lock:
            record = self._acquire_record()
            edges = 0
            keep: object = (listed, keep_alive)
            if depends_on:
                edges, more = self._write_edges(record, depends_on)
                keep = (listed, keep_alive, more)
            words, base = record.words, record.base
            words[base + _COMMANDS], words[base + _COUNT] = listed.address, listed.count
            words[base + _REQUEST], words[base + _REQUEST + 3] = OP_SUBMIT, edges
            handle = JobHandle(self, record, keep)
            self._live.append(handle)
            self._submit(record.request)
        return handle

    def copy(self, source: np.ndarray, target: np.ndarray, depends_on: Sequence[JobHandle] = ()) -> JobHandle:
        """Queue a copy of an array's bytes into another array of the same size.

        Args:
            source: The array to read.
            target: The array to write.
            depends_on: Jobs that have to be done first.
        """
        return self.submit(copy_commands(source, target), depends_on)

    def submit_repeated(
        self, before: RepeatedJob | None, commands: CommandList, keep_alive: object = None
    ) -> RepeatedJob:
        """Submit a command list without dependencies again; several times faster than `submit`.

        Args:
            before: The job that ran the list before; a new one is created if it cannot run again yet.
            commands: The commands.
            keep_alive: An object to hold as long as the job and the list.
        """
        if before is not None and before.again():
            return before
        with self._lock:
            record = self._acquire_record()
            job = RepeatedJob(self, record, commands, keep_alive)
            job.again()
        return job

    def run_inline(self, commands: CommandList | np.ndarray) -> None:
        """Runs the list on the calling thread, without the GIL, chunk by chunk in order."""
        if self.is_closed:
            self._check_open()
        listed = commands if isinstance(commands, CommandList) else CommandList(commands)
        self._call(listed.run_request)

    def inline_runner(self, commands: CommandList) -> Callable[[], object]:
        """Return a function that runs a list inline; it keeps the list alive."""
        call, request = self._call, commands.run_request

        # The request is an address inside the list: the list must live as long as the function.
        def run(_held: CommandList = commands) -> None:
            if self.is_closed:
                self._check_open()
            call(request)

        return run

    def close(self) -> None:
        """Lets every submitted job finish, then ends the threads. Further calls do nothing."""
        if self.is_closed:
            return
        with self._lock:
            self._closed = self.is_closed = True
            unfinished = list(self._live)
        for handle in unfinished:
            while not handle.is_completed:
                ask(self._call, OP_WAIT, self._address, handle._record.address, -_SLICE_NS)
        ask(self._call, OP_STOP, self._address, 1, 0)
        for thread in self._threads:
            thread.join()
        self._finalizer.detach()

    def __enter__(self) -> JobSystem:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise DisposedError("the job system is closed")
        if self._forked:
            raise DeviceError("job threads do not survive a fork: make a new JobSystem in the child process")

    def _wait(self, handle: JobHandle, timeout: float | None) -> bool:
        if timeout is None:
            while not self._forked:
                if self._call(handle._record.wait_request):
                    return True
            self._check_open()
        deadline = time.monotonic_ns() + int((timeout or 0.0) * 1e9)
        while True:
            left = max(min(deadline - time.monotonic_ns(), _SLICE_NS), 0)
            if self._forked:
                self._check_open()
            if ask(self._call, OP_WAIT, self._address, handle._record.address, left):
                return True
            if time.monotonic_ns() >= deadline:
                return handle.is_completed

    def _acquire_record(self) -> _Record:
        """Return a record for a job, after reclaiming a few of finished jobs, so that they never pile up."""
        self._check_open()
        live = self._live
        for _ in range(min(4, len(live))):
            handle = live.popleft()
            words, base = handle._words, handle._base
            if words[base + _STATE] == 1 and words[base + _USERS] == 0 and words[base + _PINS] % _KEPT == 0:
                words[base + _PINS] = 0
                handle._finished, handle._keep = True, None
                self._free.append(handle._record)
            else:
                live.append(handle)
        return self._free.pop() if self._free else self._new_record()

    def _new_record(self) -> _Record:
        """The next record of a block. Making all of them at once takes a tenth of a millisecond."""
        if not self._unused:
            block, words, address = _aligned_words(_RECORDS_PER_BLOCK * JOB_WORDS)
            self._memory.append(block)
            self._unused, self._block = _RECORDS_PER_BLOCK, (words, address)
        self._unused -= 1
        words, address = self._block
        base = self._unused * JOB_WORDS
        here, waiting = address + 8 * base, base + _REQUEST + 4
        words[base + _REQUEST + 1], words[base + _REQUEST + 2] = self._address, here
        words[waiting], words[waiting + 1] = OP_WAIT, self._address
        words[waiting + 2], words[waiting + 3] = here, -_SLICE_NS
        requests = (ctypes.c_int64(here + 8 * _REQUEST), ctypes.c_int64(address + 8 * waiting))
        return _Record(words, base, here, *requests)

    def _write_edges(self, record: _Record, depends_on: Sequence[JobHandle]) -> tuple[int, object]:
        """How many jobs are left to wait for, and the memory that says which."""
        earlier: list[int] = []
        for handle in depends_on:
            if handle._system is not self:
                raise InputError("a job can only depend on jobs of its own job system")
            if not handle._finished:
                earlier.append(handle._record.address)
        words, base = record.words, record.base
        if len(earlier) <= INLINE_EDGES:
            words[base + _EDGES] = record.address + 8 * _FIRST_EDGE
            for index, other in enumerate(earlier):
                words[base + _FIRST_EDGE + 2 * index] = other
            return len(earlier), None
        edges = np.zeros((len(earlier), 2), np.int64)
        edges[:, 0] = earlier
        words[base + _EDGES] = edges.ctypes.data
        return len(earlier), edges


def shared_job_system() -> JobSystem:
    """The process's own job system, made on first use: one thread per core, or as a game loop requested."""
    with _shared_lock:
        if not _shared or _shared[0]._closed:
            threads, priority = _shared_wishes[-1]
            _shared[:] = [JobSystem(threads, priority=priority)]
        return _shared[0]


def shared_thread_count() -> int:
    """How many threads the process's own job system has, or would have if it were made now."""
    with _shared_lock:
        if _shared and not _shared[0]._closed:
            return _shared[0].thread_count
        return _shared_wishes[-1][0] or os.cpu_count() or 1


def reserve_game_core() -> None:
    """Reserve a core for the game: a job system created later uses one thread less, at lower priority.

    For frame loops: jobs then compete with drawing as little as they can. So do the processes that compile
    kernels, while the main thread does not wait for them, and so does drawing itself on a machine
    without a GPU, if no OpenGL context exists yet: Mesa's llvmpipe gets as many threads, unless the
    environment's LP_NUM_THREADS says otherwise.
    """
    threads = max(1, (os.cpu_count() or 2) - 1)
    os.environ.setdefault("LP_NUM_THREADS", str(threads))
    native.process_store().pool.reserve_core()
    with _shared_lock:
        _shared_wishes.append((threads, "below_normal"))


def _aligned_words(count: int) -> tuple[np.ndarray, memoryview, int]:
    """Zeroed int64 words that start on a cache line: their owner, a view, and the address."""
    block = allocate(8 * count)
    return block, block.data.cast("q"), address_of(block)


_systems: weakref.WeakSet[JobSystem] = weakref.WeakSet()
_shared: list[JobSystem] = []
_shared_wishes: list[tuple[int | None, Priority]] = [(None, "normal")]
_shared_lock = threading.Lock()


def _after_fork_in_child() -> None:
    for system in list(_systems):
        system._forked = system.is_closed = True
        system._blank.words[LAYOUT["STOP"]] = 1  # repeated jobs look nowhere else
        system._lock = threading.Lock()
        system._finalizer.detach()
    _shared.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
