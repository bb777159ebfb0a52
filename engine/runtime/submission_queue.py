"""`RunQueue`: the schedules of one worker that have not enqueued all their work, in order."""

from __future__ import annotations

from collections import deque
from time import perf_counter

from engine.base.errors import CancelledError
from engine.runtime.execution import Run


class RunQueue:
    """Runs that wait their turn. `latest`, where asked for, is the run whose outputs the worker shows: it
    keeps its plans when it is over.
    """

    def __init__(self) -> None:
        self._waiting: deque[Run] = deque()
        self._failed: list[Run] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def append(self, run: Run) -> None:
        """The run that comes last."""
        self._waiting.append(run)

    def take_up(self, latest: Run | None, budget_ms: float | None = None) -> None:
        """Enqueue whatever can be without waiting, in order; errors stay with their runs."""
        started = perf_counter()
        while self._waiting and self.step(latest):
            if budget_ms is not None and (perf_counter() - started) * 1000 >= budget_ms:
                break

    def step(self, latest: Run | None, wait: bool = False) -> bool:
        """Take up the oldest run; False where it has to wait for data."""
        run = self._waiting[0]
        try:
            if not run.advance(wait):
                return False
        except Exception as error:  # noqa: BLE001 - it belongs to whoever asks for this run's outputs
            run.fail(error)
            run.reported |= isinstance(error, CancelledError)
            self._failed = [r for r in (*self._failed, run) if not r.reported]
        self._waiting.popleft()
        if run is not latest:
            run.let_go()
        return True

    def raise_failed(self) -> None:
        """Raise the error of a run whose outputs nobody has read, once."""
        while self._failed:
            if not (run := self._failed.pop(0)).reported:
                run.check()

    def cancel(self, run: Run, reason: CancelledError, latest: Run | None) -> bool:
        """Take a run out; whether it was waiting. Its outputs raise `reason`."""
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
