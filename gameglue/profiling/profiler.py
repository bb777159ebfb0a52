"""CPU times of recent frames by phase, in ring buffers, and optional detailed recordings."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType

import numpy as np

from gameglue.profiling.recording import ProfileRecording
from gameglue.profiling.ring_buffer import Ring


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
        end = time.perf_counter()
        self._profiler.add_sample(self._name, end - self._start)
        if self._profiler.recording is not None:
            self._profiler.recording.span("main", self._name, self._start, end)


class Profiler:
    """Times of whole frames, of their phases, and of `with profiler.sample("name"):` blocks, in seconds.

    Attributes:
        capacity: How many of the latest frames are kept.
        work: Time of each frame's phases.
        interval: Time from one frame's start to the next, the pause between them included.
        phases: Time of each phase, by name.
        samples: Time of each sample block per frame, by name.
        sample_calls: How often each sample block ran, by name.
        first_frame: Time of the first frame, which is not counted with the others; None before it.
        recording: Every event from `record` to `stop`: hooks, workers, jobs and GPU; None while nothing is
            recorded.
        on_change: Called when a recording begins or ends.
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
        self.recording: ProfileRecording | None = None
        self.on_change: Callable[[ProfileRecording | None], object] = lambda recording: None

    def record(self, recording: ProfileRecording | None = None) -> ProfileRecording:
        """Record hooks, workers, uploads, readbacks, jobs and the GPU from now on; returns what fills up.

        Goes on with what is being recorded, if anything is.
        """
        if self.recording is None:
            self.recording = ProfileRecording() if recording is None else recording
            self.recording.open()
            self.on_change(self.recording)
        return self.recording

    def stop(self) -> ProfileRecording | None:
        """Stop recording; returns the recording, if any."""
        ended, self.recording = self.recording, None
        if ended is not None:
            ended.close()
            self.on_change(None)
        return ended

    @property
    def frame_count(self) -> int:
        """How many frames were measured, including those that have left the rings."""
        return self.work.count

    @property
    def frame_ms(self) -> float:
        """Milliseconds that a frame's phases took: the median of the latest 60; 0 before the first."""
        latest = self.work.latest(60)
        return float(np.median(latest)) * 1e3 if len(latest) else 0.0

    def _begin_frame(self, now: float, number: int = 0) -> None:
        """The frame of that number starts."""
        if self.recording is not None:
            self.recording.begin_frame(number)
        if self._last_start is not None:
            self.interval.append(now - self._last_start)
        self._last_start = now

    def add_phase(self, name: str, seconds: float, start: float = 0.0) -> None:
        """Add the time of a phase in this frame."""
        if self.recording is not None:
            self.recording.phase(name, start, start + seconds)
        ring = self.phases.get(name)
        if ring is None:
            ring = self.phases[name] = Ring(self.capacity)
        ring.append(seconds)

    def _end_frame(self, seconds: float, start: float = 0.0) -> None:
        """All phases of this frame took `seconds` together, from `start` on."""
        if self.recording is not None:
            self.recording.end_frame(start, start + seconds)
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
