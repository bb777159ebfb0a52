"""Names of Unity's 1.x interface: `WorkerFactory`, `IWorker`."""

from __future__ import annotations

from engine.api.asset import ModelAsset
from engine.api.worker import Worker
from engine.backends.base import BackendType
from engine.backends.select import DeviceChoice
from engine.base.spelling import SpellingType
from engine.graph.model import Model

IWorker = Worker
"""The 1.x interface's name of a worker."""


class WorkerFactory(metaclass=SpellingType):
    """Creates workers as in Unity's 1.x interface."""

    @staticmethod
    def create_worker(
        backend_type: BackendType, model: Model | ModelAsset, *, device: DeviceChoice = None
    ) -> Worker:
        """A worker; the same as `Worker(model, backend_type, device=device)`."""
        return Worker(model, backend_type, device=device)
