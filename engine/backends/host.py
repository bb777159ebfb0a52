"""Backends whose work is jobs on a `JobSystem`: user jobs and command buffers join them without a copy."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from engine.backends.base import Backend, DeviceBuffer, Precision, Program
from engine.device.jobs.command_list import CommandList
from engine.device.jobs.system import JobHandle, JobSystem

INLINE_NS = 60_000.0
"""Plans that take less than this run on the calling thread.

Waking another thread takes 5 to 30 microseconds of the calling one's time, and as long again until it runs.
"""


class HostBuffer(DeviceBuffer):
    """Memory of the process. `address` is its first byte's."""

    address: int

    @property
    @abstractmethod
    def array(self) -> np.ndarray:
        """The elements, 1-D; changes when work in the stream writes them. Raises `DisposedError`."""


class HostStream(Protocol):
    """The ordered jobs of a backend."""

    def before_joining(self, done: JobHandle | None) -> Sequence[JobHandle]:
        """The jobs that a joining job has to wait for; `done` is known to be done."""
        ...

    def joined(self, job: JobHandle) -> None:
        """Make `job`, which waits for all jobs in flight, the last job."""
        ...


@dataclass(frozen=True)
class HostPart:
    """A program in a joined job, and the copies to its inputs.

    Attributes:
        backend: The backend of the program.
        program: The program.
        arrays: Arrays, contiguous, and the buffers that take their elements before the job begins.
        copies: Memory that other parts may write, and the buffers that take it just before the program.
        reads: The backends whose outputs are among the sources.
    """

    backend: HostBackend
    program: Program
    arrays: Sequence[tuple[np.ndarray, HostBuffer]]
    copies: Sequence[tuple[np.ndarray, HostBuffer]]
    reads: AbstractSet[HostBackend]


JoinedJob = Callable[[Sequence[JobHandle], Callable[[], None]], JobHandle | None]
"""Runs a joined job behind other jobs. Returns its handle; None if it has run on the calling thread.

The second argument binds the parts' arrays, and is called where they cannot be copied at once.
"""


class HostBackend(Backend):
    """One ordered stream of jobs; its buffers are `HostBuffer`."""

    is_host: ClassVar[bool] = True

    @classmethod
    @abstractmethod
    def on_jobs(cls, jobs: JobSystem | None, precision: Precision, deterministic: bool) -> HostBackend:
        """A new stream of work.

        Args:
            jobs: The job threads; None for the process's own.
            precision: How exactly it computes products and convolutions.
            deterministic: Whether results are the same bits with any number of threads.
        """

    @property
    @abstractmethod
    def stream(self) -> HostStream:
        """The stream that a joined job becomes part of."""

    @abstractmethod
    def join_parts(self, parts: Sequence[HostPart | CommandList]) -> JoinedJob:
        """Return a reusable function that runs programs and other commands as one job.

        It runs behind what is in flight on every backend that it uses, and what these schedule later runs
        behind it.
        """
