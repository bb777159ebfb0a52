"""Keeps a network busy while a game runs: schedules it again as soon as it has a result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from engine import Worker

if TYPE_CHECKING:
    from gameglue.host.app import App
    from gameglue.inference import InferenceRequest


class NetworkInFlight:
    """Always has a request in an app's inference queue, which does not begin one while it is paused."""

    def __init__(self, app: App, worker: Worker, inputs: Mapping[str, Any]) -> None:
        self.answers = 0
        self._app = app
        self._worker = worker
        self._inputs = inputs
        self._is_closed = False
        self._ask()

    def close(self) -> None:
        """Stop, and free the worker."""
        self._is_closed = True
        self._app.inference.cancel_all(self._worker)
        self._worker.dispose()

    def _ask(self) -> None:
        self._app.inference.submit(self._worker, self._inputs, callback=self._take)

    def _take(self, request: InferenceRequest) -> None:
        request.result()
        self.answers += 1
        if not self._is_closed:
            self._ask()
