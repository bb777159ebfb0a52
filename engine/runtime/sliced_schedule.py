"""`Schedule`: one inference that is enqueued slice by slice, so that it fits between the frames of a game."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, Self

from engine.base import instrumentation
from engine.base.errors import CancelledError
from engine.runtime.budget import Allowance, Budget
from engine.runtime.run import Run

if TYPE_CHECKING:
    from engine.runtime.executor import Executor


class Schedule:
    """One inference that is enqueued slice by slice; returned by `Worker.schedule_iterable`.

    Iterating enqueues one slice each time, worth the worker's `slice_ms` of the device's time::

        for _ in worker.schedule_iterable(x):
            yield                                    # a frame goes by

    `advance` enqueues what fits into a budget. While the plan waits for its own data or for an earlier
    schedule of the worker, both do nothing. Otherwise only a blocking read of the outputs enqueues the rest.
    A `Schedule` that is deleted before its end is cancelled.
    """

    def __init__(self, worker: Executor, run: Run, budget: Budget) -> None:
        self._worker = worker
        self._run = run
        self._budget = budget
        self._furthest = 0.0

    def __del__(self) -> None:
        # May be called on any thread: the worker checks the flag at its next call.
        self._budget.is_dropped = True

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> None:
        """Enqueue the next slice. Raises the error of the inference, and `StopIteration` at its end."""
        if self.is_done:
            self._check()
            raise StopIteration
        self.advance(self._worker.slice_ms, force=True)

    def advance(self, budget_ms: float, *, force: bool = False) -> float:
        """Enqueue what is expected to fit into a budget. Never waits.

        A step that does not fit is cut into partial dispatches.

        Args:
            budget_ms: Milliseconds of the device's time.
            force: Whether to enqueue the smallest partial dispatch if nothing fits.

        Returns:
            Expected milliseconds of what was enqueued; measured, if the driver computes in the call.

        Raises:
            DisposedError: The worker was disposed.
            Exception: The error that ended the inference.
        """
        worker, budget = self._worker, self._budget
        self._check()
        if self._run.is_over:
            return 0.0
        allowance = budget.allowance = Allowance(budget_ms, force)
        try:
            with worker._entered(), instrumentation.working_for(worker):
                budget.costs.collect()
                started = perf_counter()
                worker._advance(self._run)
                if instrumentation.installed and allowance.parts:
                    instrumentation.span("main", "slice", started, worker=worker, budget_ms=budget_ms)
        finally:
            budget.allowance = None
        self._check()
        return allowance.spent

    def _check(self) -> None:
        if not isinstance(self._run.error, CancelledError):
            self._run.check()

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to enqueue: everything was enqueued, failed or was cancelled."""
        return self._run.is_over

    @property
    def is_cancelled(self) -> bool:
        """Whether `cancel` ended it."""
        return isinstance(self._run.error, CancelledError)

    @property
    def progress(self) -> float:
        """The enqueued share of the work that is planned so far, 0 to 1. Never decreases."""
        if self._run.finished:
            return 1.0
        total = sum(self._budget.ms(recorded.submissions) for recorded in self._run.recorded_plans)
        share = 1.0 - self._ms_left() / total if total else 0.0
        self._furthest = max(self._furthest, min(share, 0.999))
        return self._furthest

    @property
    def next_cost_ms(self) -> float:
        """Expected milliseconds of the smallest partial dispatch that comes next: the least useful budget."""
        for slicing, part in () if self.is_done else self._budget.left(self._run.submissions_left):
            return slicing.ms(part._replace(end=part.first + 1))
        return 0.0

    @property
    def remaining_ms(self) -> float:
        """Expected milliseconds of the device's time for what is planned and not yet enqueued."""
        return 0.0 if self.is_done else self._ms_left()

    def _ms_left(self) -> float:
        return sum(slicing.ms(part) for slicing, part in self._budget.left(self._run.submissions_left))

    def output(self, name: str | int | None = None) -> Any:
        """The same as `Worker.peek_output`, for this inference. Stale once a newer one is scheduled."""
        return self._worker._output_of(self._run, name)

    def cancel(self) -> None:
        """Cancel what is not enqueued yet; reading the outputs raises `CancelledError`.

        Has no effect once everything is enqueued.
        """
        if not self._run.is_over:
            self._worker._cancel(
                self._run, CancelledError("this inference was cancelled before all of it was enqueued")
            )


__all__ = ["Schedule"]
