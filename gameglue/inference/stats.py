"""What the queue is doing, for an overlay or a log."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WorkerShare:
    """One worker's part of the latest frame. Times in ms, counts in requests.

    Attributes:
        name: Name of the worker's model.
        waiting: Its requests that have not begun.
        running: Its requests whose slices are being enqueued.
        reading: Its requests whose outputs are being read back.
        weight: Its share relative to other workers; 1 by default.
    """

    name: str
    waiting: int
    running: int
    reading: int
    spent_ms: float
    """What its steps took in the latest frame, on whatever device does them."""
    share: float
    """Its part of what all workers together have spent lately, from 0 to 1."""
    weight: float


@dataclass(frozen=True)
class QueueStats:
    """The queue at the end of the latest `pump`. Times in ms, counts in requests.

    Attributes:
        frame: Number of the frame.
        waiting: Requests that have not begun.
        running: Requests whose slices are being enqueued.
        reading: Requests whose outputs are being read back.
        done: Requests that have a result, since the start.
        expired: Requests whose deadline has passed, since the start.
        failed: Requests whose model raised, since the start.
        workers: The share of each worker.
    """

    frame: int
    waiting: int
    running: int
    reading: int
    budget_ms: float
    """What the frame gave. A deterministic queue counts slices instead of milliseconds, here and below."""
    spent_ms: float
    """What it cost the frame: this thread's time, or the GPU's where that is more."""
    saved_ms: float
    """What is laid by for steps that are dearer than a frame's budget."""
    debt_ms: float
    """What the next frame has less, as this one spent more than was expected."""
    done: int
    cancelled: int
    """Also those whose place a newer one took."""
    expired: int
    failed: int
    workers: tuple[WorkerShare, ...]

    @property
    def budget_use(self) -> float:
        """The part of the budget that was spent; above 1 in the frame of a step dearer than the budget."""
        return self.spent_ms / self.budget_ms if self.budget_ms > 0.0 else 0.0
