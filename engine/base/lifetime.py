"""Explicit lifetimes: `dispose()`, `with`, and, in debug mode, a report of what was never disposed."""

from __future__ import annotations

import _thread
import logging
import os
import time
import traceback
from types import TracebackType
from typing import Any, Self

from engine.base.errors import DisposedError

log = logging.getLogger("engine")

DEBUG_VARIABLE = "GAMEGLUE_DEBUG"
"""Set this environment variable to 1 to learn which objects were never disposed, and who made them."""

# Long enough for a thread that wants Python's lock to get it.
_PAUSE_SECONDS = 1e-4

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def free_in_background(items: list[Any]) -> None:
    """Free a list's items one by one on another thread.

    Giving much memory back to the system takes milliseconds in all, which no frame should lose. Python's lock
    is held for one item at a time.
    """

    def drop() -> None:
        while items:
            items.pop()
            time.sleep(_PAUSE_SECONDS)

    if items:
        # `Thread.start` waits until the other runs: ten milliseconds where cores are busy.
        _thread.start_new_thread(drop, ())


class Disposable:
    """Base of what holds memory outside Python. Subclasses implement `_dispose`, called at most once."""

    _disposed = False
    _made_at: str | None = None
    _owns_memory = True

    def __init__(self) -> None:
        if os.environ.get(DEBUG_VARIABLE, "0") not in ("", "0"):
            frames = [f for f in traceback.extract_stack() if not f.filename.startswith(_PACKAGE)]
            last = frames[-1] if frames else traceback.extract_stack()[0]
            self._made_at = f"{last.filename}:{last.lineno} ({last.line})"
            # Only now, as each end of an object would call it.
            Disposable.__del__ = _report_undisposed  # type: ignore[attr-defined]

    @property
    def is_disposed(self) -> bool:
        """Whether `dispose` was called."""
        return self._disposed

    def dispose(self) -> None:
        """Free what this object holds; a second call does nothing."""
        if not self._disposed:
            self._disposed = True
            self._dispose()

    def _dispose(self) -> None:
        """Free what this object holds."""

    def _check_alive(self) -> None:
        if self._disposed:
            raise DisposedError(f"this {type(self).__name__} was disposed; make a new one")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.dispose()


def _report_undisposed(item: Disposable) -> None:
    if item._made_at is not None and not item._disposed and item._owns_memory:
        log.warning("%s made at %s was never disposed", type(item).__name__, item._made_at)
