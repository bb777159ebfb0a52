"""A native function that is compiled in the background."""

from __future__ import annotations

from typing import Any

from engine.base.errors import KernelCompileError
from engine.device.native.store import NativeSource, PendingLoad, process_store


class BackgroundFunction:
    """A native function compiled in the background; callers need a fallback until it is available.

    Args:
        source: Its source.
        kind: Its type, one of `ctypes`.
    """

    def __init__(self, source: NativeSource, kind: Any) -> None:
        self._source = source
        self._kind = kind
        self._pending: PendingLoad | None = process_store().prepare_async([source])
        self._function: Any = None

    def get(self) -> Any:
        """The function, or None; any thread may call this."""
        pending = self._pending
        return self.wait() if pending is not None and pending.done() else self._function

    def wait(self) -> Any:
        """The function once it is compiled; None if that fails."""
        pending = self._pending
        if pending is not None:
            self._pending = None
            try:
                self._function = self._kind(pending.result()[self._source.key])
            except KernelCompileError:
                # Machines on which numba cannot compile still run, more slowly.
                self._function = None
        return self._function
