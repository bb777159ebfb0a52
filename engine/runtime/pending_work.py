"""Pending work: started work that waits for data, advanced by a host until it is done."""

from __future__ import annotations

import threading
import weakref
from typing import Protocol


class Pumped(Protocol):
    """Work that waits for data: a worker's split plan, or an image that is copied through host memory."""

    def pump(self, budget_ms: float | None = None) -> bool:
        """Continue as far as data has arrived, without waiting. Returns True when nothing is left."""
        ...


class _Unfinished(threading.local):
    """The pending work of each thread. No other thread may pump it."""

    def __init__(self) -> None:
        self.work: weakref.WeakSet[Pumped] = weakref.WeakSet()


unfinished = _Unfinished()


def unfinished_workers() -> tuple[Pumped, ...]:
    """The workers and image transfers of this thread that wait for data. A host pumps them every frame."""
    return tuple(unfinished.work)
