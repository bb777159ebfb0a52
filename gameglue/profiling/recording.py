"""`ProfileRecording`: events of the latest frames, for the trace, the report and the overlay.

A `ProfileRecording` exists only while somebody wants to know (`Profiler.record`); without one, a hook list
makes one test a frame and the engine one test a schedule.
"""

from __future__ import annotations

import gc
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from engine import Worker
from engine.base import instrumentation
from gameglue.profiling.ring_buffer import Ring
from gameglue.profiling.tensor_watches import NaNAlarm, TensorWatch
from gameglue.profiling.workers import WorkerTimes, WorkerTracks

CAPACITY = 200_000
"""Events that are kept; at some 40 a frame, the last minute or more. The oldest go first."""


_NOTHING: dict[str, object] = {}


class ProfileEvent(NamedTuple):
    """A timed event: seconds of `time.perf_counter`; `detail` has further attributes."""

    track: str
    name: str
    start: float
    end: float
    frame: int
    detail: dict[str, object]


class FrameRecord(NamedTuple):
    """One frame: its time, its mode, and seconds by category."""

    number: int
    start: float
    end: float
    label: str
    phases: dict[str, float]
    hooks: dict[str, float]
    workers: dict[str, float]
    counts: dict[str, float]

    @property
    def seconds(self) -> float:
        """Duration in seconds."""
        return self.end - self.start


class ProfileRecording(instrumentation.Observer):
    """Frames and events, as they happen, until `stop`.

    Attributes:
        frames: The latest frames.
        totals: How often each event has happened, by name.
        label: Name of the section that the next frames belong to, for comparing sections.
        tracks: Workers that were seen, by track.
        nan_alarm: Finds the first layer that computes NaN or infinity.
        tensors: Watches values of tensors.
    """

    def __init__(self, *, events: int = CAPACITY, frames: int = 20_000) -> None:
        # Plain tuples, which the garbage collector soon looks at no more: what records must not cause pauses.
        self._events: deque[tuple[Any, ...]] = deque(maxlen=events)
        self.frames: deque[FrameRecord] = deque(maxlen=frames)
        self.totals: Counter[str] = Counter()
        self.label = ""
        self.tracks = WorkerTracks()
        self.nan_alarm = NaNAlarm()
        self.tensors = TensorWatch()
        self.gpu_phases: dict[str, Ring] = {}
        """What the GPU took for the phases that draw, in seconds, where it has a clock of its own."""
        self._frame = 0
        self._collecting = 0.0
        self._phases: dict[str, float] = {}
        self._hooks: dict[str, float] = {}
        self._workers: dict[str, float] = {}
        self._counts: dict[str, float] = {}

    # What the engine reports

    def span(self, track: str, name: str, start: float, end: float, **attributes: Any) -> None:
        """See `engine.base.instrumentation`."""
        worker, model = attributes.pop("worker", None), attributes.pop("model", None)
        detail: dict[str, object] = attributes
        if model is not None:
            detail["model"] = str(getattr(model, "name", model))
        if isinstance(worker, Worker):
            known = self.tracks.of(worker)
            known.take(name, end - start)
            detail["worker"] = known.label
            if name in ("schedule", "slice"):
                self._workers[known.label] = self._workers.get(known.label, 0.0) + end - start
        self._events.append((track, name, start, end, self._frame, detail))

    def count(self, name: str, amount: float) -> None:
        """See `engine.base.instrumentation`."""
        self._counts[name] = self._counts.get(name, 0.0) + amount
        self.totals[name] += int(amount)

    def value(self, worker: Any, name: str, array: np.ndarray) -> None:
        """See `engine.base.instrumentation`."""
        label = self.tracks.of(worker).label if isinstance(worker, Worker) else ""
        self.nan_alarm.look(label, name, array, self._frame)
        self.tensors.look(label, name, array)

    # What the host reports

    def begin_frame(self, number: int) -> None:
        """Start a frame; later events belong to it."""
        self._frame = number

    def hook(self, owner: object, name: str, start: float, end: float) -> None:
        """Add the time of a component's hook."""
        label = f"{type(owner).__name__}.{name}"
        self._hooks[label] = self._hooks.get(label, 0.0) + end - start
        self._events.append(("hooks", label, start, end, self._frame, _NOTHING))

    def timed(self, owner: object, name: str, call: Callable[..., object]) -> Callable[..., object]:
        """`call`, whose duration is passed to `hook`."""

        def run(*arguments: object) -> object:
            start = time.perf_counter()
            try:
                return call(*arguments)
            finally:
                self.hook(owner, name, start, time.perf_counter())

        return run

    def drawn(self, phase: str, start: float, end: float) -> None:
        """Add the GPU time of a drawing phase of an earlier frame."""
        self._events.append(("gpu", phase, start, end, self._frame, _NOTHING))
        ring = self.gpu_phases.setdefault(phase, Ring(600))
        ring.append(end - start)

    def phase(self, name: str, start: float, end: float) -> None:
        """Add the time of a phase of the frame."""
        self._phases[name] = self._phases.get(name, 0.0) + end - start
        self._events.append(("phases", name, start, end, self._frame, _NOTHING))

    def end_frame(self, start: float, end: float) -> None:
        """End a frame, and collect finished measurements without waiting."""
        instrumentation.poll()
        record = FrameRecord(
            self._frame, start, end, self.label, self._phases, self._hooks, self._workers, self._counts
        )
        self.frames.append(record)
        self._phases, self._hooks, self._workers, self._counts = {}, {}, {}, {}

    # Pauses of Python's own

    def open(self) -> None:
        """Begin to record the engine's work on this thread and garbage collections."""
        instrumentation.add_observer(self)
        gc.callbacks.append(self._collection)

    def close(self) -> None:
        """Stop recording."""
        instrumentation.poll()
        instrumentation.remove_observer(self)
        if self._collection in gc.callbacks:
            gc.callbacks.remove(self._collection)

    def _collection(self, phase: str, info: dict[str, int]) -> None:
        now = time.perf_counter()
        if phase == "start":
            self._collecting = now
        elif self._collecting:
            detail: dict[str, object] = {"generation": info["generation"]}
            self._events.append(("main", "garbage collection", self._collecting, now, self._frame, detail))
            self._collecting = 0.0

    # Looking at it

    @property
    def events(self) -> list[ProfileEvent]:
        """The timed events, in the order in which they were reported."""
        return [ProfileEvent(*event) for event in self._events]

    @property
    def workers(self) -> tuple[WorkerTimes, ...]:
        """Active workers by their cost on this thread, the most expensive first."""
        return self.tracks.by_cost()

    def times(self, kind: str, name: str) -> np.ndarray:
        """Seconds spent on something in each frame: `kind` is "phases", "hooks" or "workers"."""
        return np.array([getattr(frame, kind).get(name, 0.0) for frame in self.frames])

    def names(self, kind: str) -> list[str]:
        """Everything that time was spent on, the most expensive first."""
        sums: Counter[str] = Counter()
        for frame in self.frames:
            sums.update(getattr(frame, kind))
        return [name for name, _ in sums.most_common()]


__all__ = ["ProfileEvent", "FrameRecord", "ProfileRecording"]
