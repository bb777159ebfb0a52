"""`RunQueue`: the per-worker queue of schedules that have not enqueued all their work."""

from __future__ import annotations

from collections import deque
from time import perf_counter

from engine.base.errors import CancelledError
from engine.runtime.run import Run


class RunQueue:
    """Pending runs of one worker, oldest first.

    `latest` in the methods is the run whose outputs the worker shows; it keeps its plans when it is over.
    """

    def __init__(self) -> None:
        self._waiting: deque[Run] = deque()
        self._failed: list[Run] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def append(self, run: Run) -> None:
        """Add a run at the end."""
        self._waiting.append(run)

    def resume(self, latest: Run | None, budget_ms: float | None = None) -> None:
        """Advance the runs in order, without waiting. A failed run keeps its error."""
        started = perf_counter()
        while self._waiting and self.step(latest):
            if budget_ms is not None and (perf_counter() - started) * 1000 >= budget_ms:
                break

    def step(self, latest: Run | None, wait: bool = False) -> bool:
        """Advance the oldest run. Returns False if it waits for data."""
        run = self._waiting[0]
        try:
            if not run.advance(wait):
                return False
        except Exception as error:  # noqa: BLE001 - raised when this run's outputs are read
            run.fail(error)
            run.reported |= isinstance(error, CancelledError)
            self._failed = [r for r in (*self._failed, run) if not r.reported]
        self._waiting.popleft()
        if run is not latest:
            run.let_go()
        return True

    def raise_failed(self) -> None:
        """Raise, once, the error of a run whose outputs were never read."""
        while self._failed:
            if not (run := self._failed.pop(0)).reported:
                run.check()

    def cancel(self, run: Run, reason: CancelledError, latest: Run | None) -> bool:
        """Remove a run, whose outputs raise `reason` from now on. Returns whether it was pending."""
        run.fail(reason)
        run.reported = True
        if run not in self._waiting:
            return False
        self._waiting.remove(run)
        if run is not latest:
            run.let_go()
        return True

    def abandon(self, error: Exception) -> None:
        """End all runs without a result."""
        for run in self._waiting:
            run.fail(error)
        self._waiting.clear()
