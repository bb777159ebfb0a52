"""`QueueStats`: the state of the inference queue, for an overlay or a log."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WorkerStats:
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
    """Time that its steps took in the latest frame, on the device that runs them."""
    share: float
    """Its share of the time that all workers have spent lately, from 0 to 1."""
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
    """The budget of the frame. Here and below, a deterministic queue counts slices, not milliseconds."""
    spent_ms: float
    """The time it cost the frame: of this thread, or of the GPU if that is more."""
    saved_ms: float
    """What is saved up for steps that cost more than a frame's budget."""
    debt_ms: float
    """What is taken from the next frame's budget because this frame spent too much."""
    done: int
    cancelled: int
    """Requests that were cancelled or replaced by a newer one, since the start."""
    expired: int
    failed: int
    workers: tuple[WorkerStats, ...]

    @property
    def budget_use(self) -> float:
        """The part of the budget that was spent; above 1 if a single step cost more than the budget."""
        return self.spent_ms / self.budget_ms if self.budget_ms > 0.0 else 0.0
