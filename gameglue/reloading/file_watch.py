"""Detects changed files by time and size, cheaply enough for every frame."""

from __future__ import annotations

import os
from pathlib import Path

INTERVAL = 0.5
"""Seconds between two looks at a file."""

SETTLING = 0.1
"""Seconds that a file has to stay as it is: editors and exporters write in several parts."""

State = tuple[int, int, int] | None
"""Time of the last change in nanoseconds, size in bytes, number of the file; None where there is none."""


class FileWatch:
    """Reports each change of a file once, when it has settled. Waits for a file that is gone."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known = self._seen = _state_of(path)
        self._next = 0.0

    def has_changed(self, now: float) -> bool:
        """Whether the file has changed and settled since the last change; `now` in seconds, of any clock."""
        if now < self._next:
            return False
        state = _state_of(self.path)
        has_settled = state == self._seen
        self._seen = state
        if not has_settled:
            self._next = now + SETTLING
            return False
        self._next = now + INTERVAL
        if state is None or state == self._known:
            return False
        self._known = state
        return True


def _state_of(path: Path) -> State:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
