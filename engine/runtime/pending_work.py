"""Pending work: started work that waits for data, advanced by a host until it is done.

A host also says whether it drives frames on this thread: then new plans are made in the background.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class PendingWork(Protocol):
    """Work that waits for data: a worker's split plan, or an image copied through host memory."""

    def pump(self, budget_ms: float | None = None) -> bool:
        """Continue with data that has arrived, without waiting. Returns True when nothing is left."""
        ...


class _ThreadState(threading.local):
    """The pending work of a thread, which no other thread may pump, and where its plans are made."""

    def __init__(self) -> None:
        self.pending: weakref.WeakSet[PendingWork] = weakref.WeakSet()
        self.plans_in_background = False


thread_state = _ThreadState()


def pending_work() -> tuple[PendingWork, ...]:
    """The workers and image transfers of this thread that wait for data. A host advances them every frame."""
    return tuple(thread_state.pending)


@contextmanager
def background_planning() -> Iterator[None]:
    """Context manager: `schedule` makes no plan on this thread; for the frames of a custom loop.

    Where input shapes need a new plan, `schedule` returns at once, the plan is made in the background, and
    the result arrives later. Errors that only planning finds are raised when outputs are read. In an `App`
    every frame is such a block, and so are `poll` and `pump` of an `InferenceQueue`. Elsewhere `schedule`
    makes the plan before it returns.
    """
    before, thread_state.plans_in_background = thread_state.plans_in_background, True
    try:
        yield
    finally:
        thread_state.plans_in_background = before


def plans_in_background() -> bool:
    """Whether new plans are made in the background now, on this thread."""
    return thread_state.plans_in_background
