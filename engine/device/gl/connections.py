"""X server connections: their contexts are left before a display is closed."""

from __future__ import annotations

import atexit
import ctypes
from typing import Any
from weakref import WeakSet

from engine.device.gl.context import NativeContext, bind_functions

_p, _i = ctypes.c_void_p, ctypes.c_int
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "XAddExtension": (_p, _p),
    "XESetCloseDisplay": (_p, _p, _i, _p),
}
_CLOSE_DISPLAY = ctypes.CFUNCTYPE(_i, _p, _p)


class Connection:
    """A display, from the first context that is created with it until the window library closes it."""

    def __init__(self) -> None:
        self.is_open = True
        self.contexts: WeakSet[NativeContext] = WeakSet()

    def close(self) -> None:
        """No context of this display is entered any more; returns when other threads have left theirs."""
        self.is_open = False
        for context in [*self.contexts]:
            context.stop()


class Connections:
    """The connections of all displays with contexts.

    Source: Xlib - C Language X Interface, appendix C, on hooks of extensions.
    """

    def __init__(self, x11: ctypes.CDLL) -> None:
        self._x11 = bind_functions(x11, _FUNCTIONS)
        self._open: dict[int, tuple[Connection, int]] = {}
        # Xlib calls it from the thread that closes a display.
        self._hook = _CLOSE_DISPLAY(self._closing)
        # A display that is closed after that finds no interpreter to call.
        atexit.register(self._leave)

    def of(self, display: int) -> Connection:
        """The connection of a display."""
        found = self._open.get(display)
        if found is None:
            codes = self._x11.XAddExtension(display)
            number = _i.from_address(codes).value
            self._x11.XESetCloseDisplay(display, number, ctypes.cast(self._hook, _p))
            found = self._open[display] = Connection(), number
        return found[0]

    def _closing(self, display: int, codes: int) -> int:
        connection, _ = self._open.pop(display)
        connection.close()
        return 1

    def _leave(self) -> None:
        for display, (connection, number) in self._open.items():
            self._x11.XESetCloseDisplay(display, number, None)
            connection.close()
