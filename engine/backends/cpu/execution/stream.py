"""The CPU backend's stream: ordered jobs, and snapshots of values between them."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import numpy as np

from engine.backends.base import Readback
from engine.backends.cpu.execution.memory import CPUBuffer
from engine.backends.cpu.execution.timing import ObservedJob, TimestampedList
from engine.base import instrumentation
from engine.base.errors import DisposedError
from engine.base.memory.aligned import address_of
from engine.base.memory.results import OutputPool, ResultMemory
from engine.device.jobs.builtin_commands import COPY_GRAIN, copy_commands
from engine.device.jobs.command_list import NOTHING, CommandList
from engine.device.jobs.system import JobHandle, JobSystem, RepeatedJob

LEAST_SHARED = 1 << 20
"""Bytes from which copying with the help of job threads that are awake takes less time than alone."""

LEAST_SHARED_ASLEEP = 3 << 20
"""The same where they have to be woken, which takes them long on a busy machine."""


class CPUReadback(Readback):
    """A copy of a value as of one point of the stream.

    It is made when that point has been reached and it is polled, or before the stream continues.
    """

    __slots__ = ("_array", "_handle", "_pending", "_results", "_source")

    def __init__(self, source: np.ndarray, handle: JobHandle | None, results: ResultMemory) -> None:
        self._source = source
        self._handle = handle
        self._pending: PendingCopies | None = None
        self._results = results
        self._array: np.ndarray | None = results.copy(source) if handle is None else None

    def done(self) -> bool:
        """Whether the copy is available."""
        return self._handle is None or self._handle.is_completed

    def array(self) -> np.ndarray:
        """The 1-D copy, owned by the caller."""
        if self._array is None:
            self._array = self._results.copy(self._source)
            self._handle = None
            self._is_settled()
        return self._array

    def seen(self) -> np.ndarray | None:
        """The source elements, if they were not copied yet."""
        return self._source if self._array is None else None

    def wait(self) -> None:
        """Block until the copy is available."""
        if self._handle is not None:
            _wait_for(self._handle)

    def defer(self, pending: PendingCopies) -> None:
        """Defer the copy until it is requested or the pending copies are flushed."""
        pending[id(self)] = weakref.ref(self)
        self._pending = pending

    def copied_by(self, stream: JobStream) -> None:
        """Copy by a job of the stream."""
        self._is_settled()
        array = self._results.array(self._source.shape, self._source.dtype)
        # In this order, so that no array exists if the copy cannot be enqueued.
        self._handle = stream.copy(self._source, array)
        self._array = array

    def _is_settled(self) -> None:
        if self._pending is not None:
            self._pending.pop(id(self), None)
            self._pending = None

    __del__ = _is_settled


PendingCopies = dict[int, weakref.ref[CPUReadback]]
"""Readbacks whose value has still to be copied, by id."""


class JobStream:
    """Jobs on a job system that run in order.

    Only this class changes its attributes.

    Attributes:
        last: The job behind which the next one runs; None when nothing is in flight.
        marks: What the next one waits for besides.
        pending: Readbacks of values as they are behind `last`, which have not been copied yet.
        results: Memory of the copies.
        copied: Outputs that were copied since the last run, and so may be after the next.
        own: Memory of outputs that need no copy.
    """

    __slots__ = (
        "_copying",
        "_disposed",
        "_staging",
        "copied",
        "jobs",
        "last",
        "marks",
        "own",
        "pending",
        "results",
    )

    def __init__(self, jobs: JobSystem) -> None:
        self.jobs = jobs
        self.last: JobHandle | None = None
        self.marks: list[JobHandle] = []
        self.pending: PendingCopies = {}
        self.results = ResultMemory()
        self.copied: set[str] = set()
        self.own = OutputPool()
        self._staging = ResultMemory()
        self._copying: tuple[RepeatedJob, CommandList] | None = None
        self._disposed = False

    def is_idle(self) -> bool:
        """Whether all that was enqueued has run."""
        if self.marks:
            self.marks = [m for m in self.marks if not m.is_completed]
        if self.last is not None:
            if not self.last.is_completed:
                return False
            self.last = None
            if self.pending:
                self._flush()
        return not self.marks

    def submit(self, commands: CommandList, keep_alive: object) -> JobHandle:
        """Enqueue commands after the pending copies of readbacks."""
        if self.pending:
            self._flush()
        return self._enqueue(commands, keep_alive)

    def submit_observed(self, commands: CommandList, keep_alive: object) -> JobHandle:
        """Submit, and notify observers of the times when it has run."""
        stamped = TimestampedList(commands)
        handle = self.submit(stamped.commands, keep_alive)
        instrumentation.later(ObservedJob(stamped, handle))
        return handle

    def submit_repeated(
        self, before: RepeatedJob | None, commands: CommandList, keep_alive: object
    ) -> RepeatedJob:
        """Enqueue commands while the stream is idle; `before` is the last job of the same commands."""
        self._check_alive()
        job = self.jobs.submit_repeated(before, commands, keep_alive)
        self.last = job.handle
        return job

    def repeat(self, job: RepeatedJob) -> bool:
        """Run a job again, if nothing but itself is in flight. Returns whether it does."""
        last, handle = self.last, job.handle
        if (last is not handle and last is not None) or self.marks or self.pending:
            if not self.is_idle():
                return False
        if not job.again():
            return False
        self.last = handle
        return True

    def wait_for(self, mark: JobHandle) -> None:
        """Make the next job also wait for a job of another stream."""
        self.marks.append(mark)

    def copy(self, source: np.ndarray, target: np.ndarray) -> JobHandle:
        """Copy the bytes of an array into another of as many, by a job."""
        return self.submit(copy_commands(source, target), None)

    def transfer(self, source: np.ndarray, target: np.ndarray) -> JobHandle | None:
        """Copy an array in stream order; returns the job, or None if it is done."""
        if source.nbytes <= COPY_GRAIN and self.is_idle():
            np.copyto(target, source)
            return None
        return self.copy(source, target)

    def copy_now(self, source: np.ndarray, target: np.ndarray) -> None:
        """Copy an array into another of its shape and type before this returns; large ones with all threads.

        Only where no job that is in flight uses them.
        """
        jobs, nbytes = self.jobs, target.nbytes
        is_alike = source.dtype == target.dtype and source.flags.c_contiguous and target.flags.c_contiguous
        if not is_alike or nbytes < LEAST_SHARED or jobs.thread_count == 1 or jobs.is_closed:
            np.copyto(target, source)
            return
        # The same job for all: making another one takes as long as copying 256 KiB.
        job, commands = self._copying or (None, None)
        if job is None or commands is None or not job.is_idle:
            job, commands = None, copy_commands(source, target)
        else:
            commands.change((address_of(target), address_of(source)), nbytes)
            commands.keep_alive = source, target
        job = jobs.submit_repeated(job, commands)
        self._copying = job, commands
        job.handle.complete()
        commands.keep_alive = None

    def copy_input(self, source: np.ndarray, target: np.ndarray) -> None:
        """As `copy_now`, for an input: with the help of threads that are awake and may help a caller."""
        if target.nbytes >= LEAST_SHARED and self.jobs.helps_callers and self.jobs.is_awake:
            self.copy_now(source, target)
        else:
            np.copyto(target, source)

    def upload(self, buffer: CPUBuffer, data: np.ndarray) -> None:
        """Copy an array, which may change at once, into a buffer by a job."""
        staged = self._staging.array(buffer.array.shape, buffer.dtype)
        np.copyto(staged, data.reshape(-1))
        self.copy(staged, buffer.array)

    def readback(self, source: np.ndarray) -> CPUReadback:
        """A copy of an array as of now in the stream."""
        is_small = source.nbytes <= COPY_GRAIN
        if self.is_idle() and is_small:
            return CPUReadback(source, None, self.results)
        assert self.last is not None or self.marks or not is_small
        read = CPUReadback(source, self.last, self.results)
        if not is_small or self.marks:
            read.copied_by(self)
        else:
            read.defer(self.pending)
        return read

    def fence(self) -> JobHandle | None:
        """The last job; None when nothing is in flight."""
        if self.is_idle():
            return None
        return self._enqueue(NOTHING, None) if self.marks else self.last

    def before_joining(self, done: JobHandle | None) -> Sequence[JobHandle]:
        """The jobs that a joining job has to wait for; see `joined`.

        `done` is a job that is known to be done.
        """
        if not (self.marks or self.pending) and (self.last is None or self.last is done):
            return ()
        if self.is_idle():
            return ()
        if self.pending:
            self._flush()
        return [*self.marks, *(() if self.last is None else (self.last,))]

    def joined(self, job: JobHandle) -> None:
        """Make `job`, which waits for all jobs in flight, the last job."""
        self.last, self.marks = job, []

    def synchronize(self) -> None:
        """Block until everything enqueued has run."""
        for handle in (self.last, *self.marks):
            if handle is not None:
                _wait_for(handle)
        self.is_idle()

    def dispose(self) -> None:
        """Accept no more jobs. Those in flight keep their memory until they are done."""
        self._disposed = True

    def _flush(self) -> None:
        pending, self.pending = self.pending, {}
        for reference in list(pending.values()):
            read = reference()
            if read is not None:
                if read.done():
                    read.array()
                else:
                    read.copied_by(self)

    def _enqueue(self, commands: CommandList, keep_alive: object) -> JobHandle:
        self._check_alive()
        depends: list[JobHandle] = self.marks
        self.marks = []
        if self.last is not None and not self.last.is_completed:
            depends = [*depends, self.last]
        self.last = self.jobs.submit(commands, depends, keep_alive=keep_alive)
        return self.last

    def _check_alive(self) -> None:
        if self._disposed:
            raise DisposedError("this backend was disposed")


def _wait_for(handle: JobHandle) -> None:
    if instrumentation.installed and not handle.is_completed:
        instrumentation.count("waits for jobs", 1)
    handle.complete()
