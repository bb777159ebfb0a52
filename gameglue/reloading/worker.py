"""A worker that is recreated when its model's file changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

from engine import BackendType, InputError, Loading, Model, Worker
from gameglue.reloading.reloadable import Reloadable

GRACE = 2.0
"""Seconds that a worker outlives its replacement: answers may be on their way that a game still reads."""


class ReloadableWorker(Reloadable[Worker]):
    """A worker of the file's latest model that works; made by `app.hot_reload.worker`.

    Ask for `worker` each time it is used: another one takes its place between two frames. What `set_input`
    gave the old one, the new one has too. The new model has to have the inputs of the old one, by name, type
    and rank, as the game's code names them.
    """

    def __init__(
        self,
        path: Path,
        backend_type: BackendType,
        on_reload: Callable[[Worker], object] | None,
        options: dict[str, Any],
    ) -> None:
        self._backend_type = backend_type
        self._options = options
        self._retired: list[tuple[float, Worker]] = []
        super().__init__(path, on_reload)

    @property
    def worker(self) -> Worker:
        """The current worker. Raises `ResourceError` before the first one is loaded."""
        return self.current

    def _begin(self) -> Loading[Worker]:
        return Worker.load_async(self.path, self._backend_type, **self._options)

    def _take(self, made: Worker, before: Worker | None) -> Worker:
        if before is not None:
            try:
                refuse_other_inputs(before.model, made.model, self.path.name)
                for name, value in before._kept_inputs.items():
                    made.set_input(name, value)
            except InputError:
                made.dispose()
                raise
        return made

    def poll(self, now: float) -> None:
        """Check for changes, apply finished reloads, and free replaced workers."""
        super().poll(now)
        while self._retired and monotonic() - self._retired[0][0] > GRACE:
            self._retired.pop(0)[1].dispose()

    def _drop(self, thing: Worker) -> None:
        self._retired.append((monotonic(), thing))

    def dispose(self) -> None:
        """Stop watching, and free all workers."""
        super().dispose()
        while self._retired:
            self._retired.pop()[1].dispose()


def refuse_other_inputs(before: Model, after: Model, name: str) -> None:
    """Raise `InputError` if a model's inputs differ from another's."""
    described = {item.name: (item.dtype, item.kind, item.shape and item.shape.rank) for item in before.inputs}
    found = {item.name: (item.dtype, item.kind, item.shape and item.shape.rank) for item in after.inputs}
    if found.keys() != described.keys():
        listed = ", ".join(f"'{n}'" for n in found) or "none"
        wanted = ", ".join(f"'{n}'" for n in described) or "none"
        raise InputError(f"the inputs of {name} are now called {listed}; the model in use has {wanted}")
    for item, other in ((i, o) for i in before.inputs for o in after.inputs if i.name == o.name):
        if described[item.name] != found[other.name]:
            raise InputError(
                f"the input '{item.name}' of {name} is now {other.kind} {other.dtype} {other.shape}; in the "
                f"model in use it is {item.kind} {item.dtype} {item.shape}"
            )
