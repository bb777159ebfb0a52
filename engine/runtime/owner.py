"""`WorkerProtocol`: the protocol of a worker that its schedules and outputs use."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

from engine.base.errors import CancelledError
from engine.runtime.execution import Run


class WorkerProtocol(Protocol):
    """A worker as its schedules and outputs use it; most of these methods are private there."""

    slice_ms: float
    _latest: Run | None
    _thread: int

    @property
    def is_disposed(self) -> bool:
        """Whether the worker was disposed."""

    def peek_output(self, name: str | int | None = None) -> Any:
        """The output of the latest schedule, owned by the worker."""

    def copy_output(self, name: str | int | None = None) -> Any:
        """The output of the latest schedule, owned by the caller."""

    def _check_thread(self) -> None:
        """Raise `ThreadError` on any thread but the worker's."""

    def _entered(self) -> AbstractContextManager[Any]:
        """Make the device's context current."""

    def _advance(self, run: Run) -> bool:
        """Enqueue what needs no waiting. Returns whether the run has enqueued all its work."""

    def _drive(self, run: Run) -> None:
        """Enqueue all work of a run. Blocks where a size depends on data."""

    def _cancel(self, run: Run, reason: CancelledError) -> None:
        """Drop the work of a run that is not enqueued yet."""

    def _output_of(self, run: Run, name: str | int | None) -> Any:
        """An output of one run."""
