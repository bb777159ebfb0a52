"""Registered work: continuations that share the frame budget with the requests."""

from __future__ import annotations

import weakref
from collections.abc import Callable

from gameglue.inference.budget import BudgetClient, StepTime
from gameglue.inference.failures import Failures
from gameglue.inference.readback import Pumpable


class Continuation(BudgetClient):
    """Advances one piece of work once a frame, until it is dropped or raises."""

    def __init__(self, work: Pumpable, failures: Failures) -> None:
        super().__init__(type(work).__name__)
        # Weak, so that a worker nobody holds any more is not kept alive by being registered.
        self._work = weakref.ref(work)
        self._failures = failures
        self._has_raised = False

    @property
    def work(self) -> Pumpable | None:
        """The work; None once it was dropped or has raised."""
        return None if self._has_raised else self._work()

    @property
    def urgency(self) -> tuple[int, float]:
        return (0, float("inf"))

    @property
    def expected_ms(self) -> float:
        return 0.0

    def wants_turn(self) -> bool:
        work = self.work
        if work is None or self.had_turn:
            return False
        is_done = getattr(work, "is_done", None)
        return is_done is None or not is_done()

    def take(self, grant_ms: float) -> StepTime:
        work = self.work
        if work is not None:
            self._guarded(work, work.pump, grant_ms)
        return StepTime(0.0, 0.0, progressed=False)

    def poll(self) -> None:
        """Start a frame, and call the work's own `poll` if it has one."""
        self.had_turn = False
        work = self.work
        poll = getattr(work, "poll", None)
        if work is not None and poll is not None:
            self._guarded(work, poll)

    def _guarded(self, work: Pumpable, call: Callable[..., object], *arguments: object) -> None:
        try:
            call(*arguments)
        except Exception as error:  # noqa: BLE001 - such as a worker that was disposed; the others continue
            self._has_raised = True
            self._failures.report(work, None, f"{work!r} (no longer pumped)", error)
