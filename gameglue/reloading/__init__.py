"""Hot reload: models, shaders and other files that are loaded again when they change on disk."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

from engine import BackendType, Worker
from gameglue.graphics.device import Effect
from gameglue.graphics.graphics import Graphics
from gameglue.host.resources import Resources
from gameglue.reloading.effect import ReloadableEffect
from gameglue.reloading.file_watch import FileWatch
from gameglue.reloading.reloadable import Reloadable
from gameglue.reloading.worker import ReloadableWorker

_log = logging.getLogger("gameglue")


class HotReload:
    """The files that an app watches: `app.hot_reload`. They are looked at twice a second, between frames."""

    def __init__(
        self, resources: Resources, graphics: Graphics, clock: Callable[[], float] = monotonic
    ) -> None:
        self._resources = resources
        self._graphics = graphics
        self._clock = clock
        self._watched: list[Reloadable[Any]] = []
        self._files: list[tuple[FileWatch, Callable[[Path], object]]] = []

    def worker(
        self,
        model: str | Path,
        backend_type: BackendType = BackendType.CPU,
        *,
        on_reload: Callable[[Worker], object] | None = None,
        **options: Any,
    ) -> ReloadableWorker:
        """Create a worker that reloads when its model file changes; `options` as for `Worker.load_async`.

        It is loaded in the background, the first time too: await it, or poll `is_done()`, then use `.worker`.

        Raises:
            ResourceError: There is no such file.
        """
        watched = ReloadableWorker(self._resources.find(model), backend_type, on_reload, options)
        self._watched.append(watched)
        return watched

    def effect(
        self, fragment: str | Path, *, on_reload: Callable[[Effect], object] | None = None
    ) -> ReloadableEffect:
        """An image effect that follows its fragment shader's file; it may be applied at once.

        Raises:
            ResourceError: There is no such file.
        """
        watched = ReloadableEffect(self._resources.find(fragment), self._graphics, on_reload)
        self._watched.append(watched)
        return watched

    def file(self, name: str | Path, on_change: Callable[[Path], object]) -> None:
        """Call a function with the file's path, between frames, each time it changes.

        What the function raises is logged.

        Raises:
            ResourceError: There is no such file.
        """
        self._files.append((FileWatch(self._resources.find(name)), on_change))

    def poll(self) -> None:
        """Check for changes and apply finished reloads; called by the frame loop. Never waits."""
        if not (self._watched or self._files):
            return
        now = self._clock()
        for watched in self._watched:
            watched.poll(now)
        for watch, on_change in self._files:
            if watch.has_changed(now):
                try:
                    on_change(watch.path)
                except Exception:  # noqa: BLE001 - it is the game's, and must not end the loop
                    _log.exception("what was to follow the change of %s has failed", watch.path)

    def dispose(self) -> None:
        """Stop watching, and free the reloaded objects."""
        for watched in self._watched:
            watched.dispose()
        self._watched.clear()
        self._files.clear()


__all__ = ["HotReload", "ReloadableEffect", "ReloadableWorker"]
