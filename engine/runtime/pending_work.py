"""What goes on by itself once started, and has to be taken up again until it is done: a host pumps it."""

from __future__ import annotations

import threading
import weakref
from typing import Protocol


class Pumped(Protocol):
    """Work that waits for data of its own: a worker's split plan, a picture on its way through the host."""

    def pump(self, budget_ms: float | None = None) -> bool:
        """Go on as far as data has arrived, without waiting; True when nothing is left."""
        ...


class _Unfinished(threading.local):
    """Each thread's own: no other thread may take it up."""

    def __init__(self) -> None:
        self.work: weakref.WeakSet[Pumped] = weakref.WeakSet()


unfinished = _Unfinished()


def unfinished_workers() -> tuple[Pumped, ...]:
    """This thread's workers and pictures that wait for data of their own: a host pumps them every frame."""
    return tuple(unfinished.work)
