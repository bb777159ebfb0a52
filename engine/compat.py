"""Names that those who come from Unity look for: `WorkerFactory`, `IWorker`, `CommandBuffer`, `Graphics`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engine.asset import ModelAsset
from engine.backends.base import BackendType
from engine.backends.select import DeviceChoice
from engine.model import Model
from engine.worker import InputValue, Worker

IWorker = Worker
"""The 1.x interface's name of a worker."""


class WorkerFactory:
    """The 1.x way to a worker."""

    @staticmethod
    def create_worker(
        backend_type: BackendType, model: Model | ModelAsset, *, device: DeviceChoice = None
    ) -> Worker:
        """A worker; the same as `Worker(model, backend_type, device=device)`."""
        return Worker(model, backend_type, device=device)


class CommandBuffer:
    """Schedules collected now and executed together later."""

    def __init__(self) -> None:
        self._commands: list[Callable[[], None]] = []

    def schedule_worker(self, worker: Worker, inputs: Mapping[str, InputValue] | None = None) -> None:
        """Add a worker's schedule; what is not in `inputs` is what `set_input` gave it by then.

        The elements of `inputs` are read when the buffer is executed.
        """
        given = dict(inputs or {})
        self._commands.append(lambda: worker.schedule(given))

    def clear(self) -> None:
        """Forget all commands."""
        self._commands.clear()

    def execute(self) -> None:
        """Run the commands in order; they stay, so a buffer can be executed again."""
        for command in self._commands:
            command()


class Graphics:
    """Where a command buffer is executed."""

    @staticmethod
    def execute_command_buffer(buffer: CommandBuffer) -> None:
        """Execute all commands of a buffer in order, without waiting for their work."""
        buffer.execute()


__all__ = ["CommandBuffer", "Graphics", "IWorker", "WorkerFactory"]
