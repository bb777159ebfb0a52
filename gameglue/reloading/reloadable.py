"""An object made from a file, and remade when the file changes. A broken file replaces nothing."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from engine import Loading
from gameglue.errors import ResourceError
from gameglue.reloading.file_watch import FileWatch

T = TypeVar("T")

_log = logging.getLogger("gameglue")


class Reloadable(ABC, Generic[T]):
    """An object created from a file. Await it, or poll `is_done()`, until it is first available.

    Attributes:
        path: the file.
        reloads: how often it was replaced since it was first there.
        error: why the file as it is now cannot be used; None while it can.
        on_reload: called with the new one between two frames, when it has just taken its place.
    """

    def __init__(self, path: Path, on_reload: Callable[[T], object] | None = None) -> None:
        self.path = path
        self.reloads = 0
        self.error: Exception | None = None
        self.on_reload = on_reload
        self._watch = FileWatch(path)
        self._current: T | None = None
        self._is_disposed = False
        self._loading: Loading[Any] | None = self._begin()

    # What differs by what is made

    @abstractmethod
    def _begin(self) -> Loading[Any]:
        """Start loading a new object from the file."""

    @abstractmethod
    def _take(self, made: Any, before: T | None) -> T:
        """Return the object that replaces `before`, from what was loaded; raises if it cannot be used."""

    @abstractmethod
    def _drop(self, thing: T) -> None:
        """Free one that is not used any more."""

    # What all have in common

    @property
    def current(self) -> T:
        """The current object. Raises `ResourceError` before there is one."""
        if self._current is None:
            if self.error is not None:
                raise ResourceError(f"{self.path.name} cannot be used: {self.error}") from self.error
            raise ResourceError(f"{self.path.name} is still being loaded; await it, or ask is_done() first")
        return self._current

    def is_done(self) -> bool:
        """Whether there is an object, or the file could not be used."""
        return self._current is not None or self.error is not None

    def result(self) -> Self:
        """Return this object once it is available; raises why creation failed."""
        if self._current is None and self.error is not None:
            raise self.error
        return self

    def __await__(self) -> Generator[Any, None, Self]:
        while not self.is_done():
            yield None
        return self.result()

    def poll(self, now: float) -> None:
        """Check for changes and apply finished reloads, once a frame. `now` in seconds."""
        if self._is_disposed:
            return
        if self._watch.has_changed(now):
            if self._loading is not None:
                self._loading.cancel()
            try:
                self._loading = self._begin()
            except Exception as error:  # noqa: BLE001 - the file may hold anything
                self._fail(error)
        if self._loading is not None and self._loading.is_done():
            loading, self._loading = self._loading, None
            self._finish(loading)

    def _finish(self, loading: Loading[Any]) -> None:
        before = self._current
        try:
            self._current = self._take(loading.result(), before)
        except Exception as error:  # noqa: BLE001 - the file may hold anything
            self._fail(error)
            return
        self.error = None
        if before is None:
            return
        self.reloads += 1
        _log.info("%s has changed and was loaded again", self.path)
        self._drop(before)
        if self.on_reload is not None:
            self.on_reload(self._current)

    def _fail(self, error: Exception) -> None:
        self.error = error
        stays = "the previous one stays in use" if self._current is not None else "it is checked again"
        _log.error("%s cannot be used; %s until the file changes: %s", self.path, stays, error)

    def dispose(self) -> None:
        """Stop watching, and free the current object."""
        if not self._is_disposed:
            self._is_disposed = True
            if self._loading is not None:
                self._loading.stop()
                self._loading = None
            if self._current is not None:
                self._drop(self._current)
            self._current = None
