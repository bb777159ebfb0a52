"""`Watchdog`: prints every thread's stack when no frame has ended for a while."""

from __future__ import annotations

import faulthandler
import math
import os
import sys

from gameglue.errors import FrameError

VARIABLE = "GAMEGLUE_WATCHDOG"
"""The environment variable with the seconds after which a run without a window prints stacks; 0: never."""

SECONDS = 60.0
"""What `gameglue play` and `gameglue profile` take where nothing else is said."""

_EVERY = 0.5


class Watchdog:
    """Prints all stacks to the error output when no frame has ended for some seconds.

    A thread of C prints them, so that they come also while a call into a driver holds the interpreter.
    """

    def __init__(self, seconds: float) -> None:
        """seconds: 0 for off; the environment variable overrides it. Raises `FrameError` if invalid."""
        given = os.environ.get(VARIABLE, "")
        try:
            self.seconds = float(given) if given else seconds
        except ValueError:
            self.seconds = -1.0
        if not 0.0 <= self.seconds < math.inf:
            raise FrameError(f"{VARIABLE}: seconds until stacks are printed, 0 for never; got {given!r}")
        self._armed: float | None = None

    def frame_ended(self, now: float) -> None:
        """Report the end of a frame at `now`, in seconds of any clock."""
        if not self.seconds or (self._armed is not None and now - self._armed < _EVERY):
            return
        # Where the error output was closed there is nobody to tell.
        if sys.__stderr__ is not None:
            faulthandler.dump_traceback_later(self.seconds, file=sys.__stderr__)
            self._armed = now

    def stop(self) -> None:
        """Stop watching until the next frame ends."""
        if self._armed is not None:
            faulthandler.cancel_dump_traceback_later()
            self._armed = None
