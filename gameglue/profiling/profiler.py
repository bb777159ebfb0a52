"""CPU times of the latest frames, phase by phase, in rings of fixed size."""

from __future__ import annotations

import time
from types import TracebackType

import numpy as np


class _Sample:
    """Times one `with` block."""

    __slots__ = ("_name", "_profiler", "_start")

    def __init__(self, profiler: Profiler, name: str) -> None:
        self._profiler = profiler
        self._name = name
        self._start = 0.0

    def __enter__(self) -> None:
        self._start = time.perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._profiler.add_sample(self._name, time.perf_counter() - self._start)


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


class Profiler:
    """Times of whole frames, of their phases, and of `with profiler.sample("name"):` blocks, in seconds.

    `work` is the time that the frame's phases took; `interval` is the time from one frame's start to the
    next, which holds the pause before the next frame too.
    """

    def __init__(self, capacity: int = 4096) -> None:
        self.capacity = capacity
        self.work = Ring(capacity)
        self.interval = Ring(capacity)
        self.phases: dict[str, Ring] = {}
        self.samples: dict[str, Ring] = {}
        self.sample_calls: dict[str, int] = {}
        self.first_frame: float | None = None
        self._open_samples: dict[str, float] = {}
        self._last_start: float | None = None

    @property
    def frame_count(self) -> int:
        """How many frames were measured, including those that have left the rings."""
        return self.work.count

    def begin_frame(self, now: float) -> None:
        """A frame starts."""
        if self._last_start is not None:
            self.interval.append(now - self._last_start)
        self._last_start = now

    def add_phase(self, name: str, seconds: float) -> None:
        """A phase of this frame took `seconds`."""
        ring = self.phases.get(name)
        if ring is None:
            ring = self.phases[name] = Ring(self.capacity)
        ring.append(seconds)

    def end_frame(self, seconds: float) -> None:
        """All phases of this frame took `seconds` together."""
        if self.first_frame is None:
            self.first_frame = seconds
        self.work.append(seconds)
        for name, spent in self._open_samples.items():
            self.samples.setdefault(name, Ring(self.capacity)).append(spent)
        self._open_samples.clear()

    def sample(self, name: str) -> _Sample:
        """Measure a block: `with self.app.profiler.sample("path finding"): ...`; sums up within a frame."""
        return _Sample(self, name)

    def add_sample(self, name: str, seconds: float) -> None:
        """Add to this frame's time of a named sample."""
        self._open_samples[name] = self._open_samples.get(name, 0.0) + seconds
        self.sample_calls[name] = self.sample_calls.get(name, 0) + 1
