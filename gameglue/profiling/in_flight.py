"""A network kept in flight beside a game: asked again as soon as it has answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine import Worker

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gameglue.app import App


class NetworkInFlight:
    """Schedules a worker whenever its last answer has come, unless the app's inference is paused.

    To be held by whoever wants it to go on: the app's queue does not.
    """

    def __init__(self, app: App, worker: Worker, inputs: Mapping[str, Any]) -> None:
        self.answers = 0
        self._app = app
        self._worker = worker
        self._inputs = inputs
        self._is_waiting = False
        app.inference.register(self)

    def pump(self, budget_ms: float | None) -> None:
        """Ask, if nothing is under way."""
        if not self._is_waiting and not self._app.inference.paused:
            self._is_waiting = True
            self._worker.schedule(self._inputs)
            self._app.inference.result(self._worker.peek_output(), self._take)

    def _take(self, result: Any) -> None:
        self._is_waiting = False
        result.result()
        self.answers += 1

    def close(self) -> None:
        """Ask no more, and free the worker."""
        self._app.inference.unregister(self)
        self._worker.dispose()
