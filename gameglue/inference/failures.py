"""Errors of inference requests: how they are reported, and which line of the game caused them."""

from __future__ import annotations

import functools
import inspect
import logging
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

from gameglue.scripting.behaviour import MonoBehaviour
from gameglue.scripting.coroutines import ErrorHandler

_log = logging.getLogger("gameglue")

_OWN: Final = ("gameglue", "engine")
"""Packages whose lines are not the game's."""

_KEPT = 20
"""How many different failures of one worker are reported; a message may be new each time."""


def line_of_caller() -> str:
    """The game's line that called into gameglue, such as "update (game.py:12)"."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _OWN:
        frame = frame.f_back
    if frame is None:
        return "?"
    code = frame.f_code
    return f"{code.co_name} ({Path(code.co_filename).name}:{frame.f_lineno})"


def described(callback: Callable[..., object]) -> tuple[MonoBehaviour | None, str]:
    """The component whose method, or lambda with `self`, a callback is; and the callback's name."""
    call = inspect.unwrap(callback)
    while isinstance(call, functools.partial):
        call = call.func
    owner = getattr(call, "__self__", None)
    if inspect.isfunction(call):
        owner = inspect.getclosurevars(call).nonlocals.get("self")
    name = getattr(call, "__qualname__", repr(call))
    return owner if isinstance(owner, MonoBehaviour) else None, name


class Failures:
    """Reports what requests and callbacks raise, each worker's failure once rather than in every frame.

    What belongs to an enabled component is always reported: the handler disables the component.
    """

    def __init__(self, handler: ErrorHandler | None) -> None:
        self._handler = handler or _log_error
        self._seen: weakref.WeakKeyDictionary[Any, set[tuple[object, ...]]] = weakref.WeakKeyDictionary()
        self._latest: Exception | None = None
        self._raised: Exception | None = None

    def report(self, source: object, component: MonoBehaviour | None, where: str, error: Exception) -> None:
        """Report an error. Exceptions of the handler are kept for `raise_first`.

        Args:
            source: The worker, or what else is asked again and again.
            component: The component that it belongs to, or None.
            where: What failed.
            error: The exception.
        """
        if error is self._latest:  # of several requests that ended together
            return
        seen = self._seen.setdefault(source, set())
        is_off = component is not None and not component.enabled
        key = (where, id(component)) if is_off else (where, type(error), str(error))
        if (component is None or is_off) and (key in seen or len(seen) >= _KEPT):
            return
        seen.update({(where, id(component)), key})
        self._latest = error
        try:
            self._handler(component, where, error)
        except Exception as raised:  # noqa: BLE001 - the other results still have to be delivered
            self._raised = self._raised or raised

    def raise_first(self) -> None:
        """Raise the first exception of the handler since the last call, if any."""
        raised, self._raised = self._raised, None
        if raised is not None:
            raise raised


def _log_error(_: object, where: str, error: Exception) -> None:
    _log.error("%s raised", where, exc_info=error)
