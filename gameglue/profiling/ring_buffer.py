"""`Ring`: a ring buffer of numbers."""

from __future__ import annotations

import numpy as np


class Ring:
    """The latest `capacity` numbers."""

    def __init__(self, capacity: int) -> None:
        self._values = np.zeros(capacity, np.float64)
        self.count = 0

    def append(self, value: float) -> None:
        """Add a number, over the oldest one if the ring is full."""
        self._values[self.count % len(self._values)] = value
        self.count += 1

    def latest(self, count: int | None = None) -> np.ndarray:
        """The latest `count` numbers (all that are kept, if not given), oldest first, (n,) float64."""
        size = len(self._values)
        kept = min(self.count, size)
        wanted = kept if count is None else min(count, kept)
        indices = (np.arange(self.count - wanted, self.count)) % size
        return self._values[indices]
