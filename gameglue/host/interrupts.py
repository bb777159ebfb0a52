"""Ctrl-C in a frame loop: interrupts the game's own code, or ends the game after the frame.

Python raises `KeyboardInterrupt` wherever the main thread happens to be. In the middle of a change of OpenGL
context, or between a job and the note of it, that would leave one half done. So where the engine or the
loop is at work the frame is finished first; if that takes longer than a second, or at a second Ctrl-C, it is
raised there all the same.
"""

from __future__ import annotations

import _thread
import signal
import sysconfig
import threading
from collections.abc import Callable
from types import FrameType
from typing import Self

GRACE_SECONDS = 1.0
"""Seconds that the engine may continue after Ctrl-C."""

_OURS = ("engine", "gameglue")
_LIBRARIES = tuple(
    path
    for name, path in sysconfig.get_paths().items()
    if name in ("stdlib", "platstdlib", "purelib", "platlib")
)


class Interrupts:
    """Context manager for the main thread: Ctrl-C calls `ask`, and interrupts code of the game.

    A program that handles SIGINT in a way of its own keeps it. `is_asked` says whether Ctrl-C was pressed.
    """

    def __init__(self, ask: Callable[[], None]) -> None:
        self.is_asked = False
        self._ask = ask
        self._timer: threading.Timer | None = None
        self._installed = False

    def __enter__(self) -> Self:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._handle)
            self._installed = True
        return self

    def __exit__(self, *exception: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._installed:
            self._installed = False
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        is_first, self.is_asked = not self.is_asked, True
        self._ask()
        if not is_first or not is_engine_at_work(frame):
            raise KeyboardInterrupt
        self._timer = threading.Timer(GRACE_SECONDS, _thread.interrupt_main)
        self._timer.daemon = True
        self._timer.start()


def is_engine_at_work(frame: FrameType | None) -> bool:
    """Whether the innermost stack frame outside of libraries belongs to gameglue or the engine."""
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] in _OURS:
            return True
        if not frame.f_code.co_filename.startswith((*_LIBRARIES, "<")):
            return False
        frame = frame.f_back
    return False
