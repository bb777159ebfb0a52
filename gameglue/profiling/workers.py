"""Statistics of a game's workers: schedules, durations and devices."""

from __future__ import annotations

import weakref
from collections import Counter
from pathlib import PurePath

from engine import Worker
from gameglue.profiling.ring_buffer import Ring

KEPT = 600
"""Times of each kind that are kept for each worker."""

KINDS = ("schedule", "slice", "readback", "job", "commands")
"""What is timed: a schedule and its slices on the calling thread, from a request to its answer, on job
threads, on a GPU."""


class WorkerTimes:
    """One worker's times, in seconds, by kind (see `KINDS`)."""

    def __init__(self, worker: Worker, label: str) -> None:
        self.label = label
        self.rings = {kind: Ring(KEPT) for kind in KINDS}
        self.totals = dict.fromkeys(KINDS, 0.0)
        self.requests = 0
        self._worker = weakref.ref(worker)

    @property
    def worker(self) -> Worker | None:
        """The worker; `None` once it was dropped or disposed."""
        worker = self._worker()
        return None if worker is None or worker.is_disposed else worker

    def is_of(self, worker: Worker) -> bool:
        """Whether these are the times of `worker`."""
        return self._worker() is worker

    @property
    def schedules(self) -> int:
        """How often it was scheduled."""
        return self.rings["schedule"].count

    @property
    def waiting(self) -> int:
        """Readbacks that were requested and have not been found complete; dropped ones count too."""
        return max(0, self.requests - self.rings["readback"].count)

    @property
    def state(self) -> str:
        """In a word: "disposed", "pending" (waits for data of its own), "in flight" or "idle"."""
        worker = self.worker
        if worker is None:
            return "disposed"
        if worker._latest is not None and not worker._latest.is_over:
            return "pending"
        return "in flight" if self.waiting else "idle"

    def take(self, kind: str, seconds: float) -> None:
        """Add a time."""
        if kind == "request":
            self.requests += 1
        elif kind in self.rings:
            self.rings[kind].append(seconds)
            self.totals[kind] += seconds

    def per_schedule_ms(self, *kinds: str) -> float | None:
        """Total milliseconds of these types per schedule so far; `None` if unknown."""
        seconds = sum(self.totals[kind] for kind in kinds)
        return seconds * 1e3 / self.schedules if self.schedules and seconds else None

    @property
    def calling_ms(self) -> float | None:
        """The calling thread's time per schedule, slices included."""
        return self.per_schedule_ms("schedule", "slice")

    def mean_ms(self, kind: str, count: int | None = None) -> float | None:
        """The mean of the latest `count` times, in milliseconds; `None` without any."""
        latest = self.rings[kind].latest(count)
        return float(latest.mean()) * 1e3 if len(latest) else None


class WorkerTracks:
    """All known workers, each with a unique label of model and backend."""

    def __init__(self) -> None:
        self._known: dict[int, WorkerTimes] = {}
        self._over: list[WorkerTimes] = []
        self._used: Counter[str] = Counter()

    def of(self, worker: Worker) -> WorkerTimes:
        """The times of a worker, made when it is first heard of."""
        known = self._known.get(id(worker))
        if known is None or not known.is_of(worker):
            if known is not None:  # an earlier worker that lay at the same address
                self._over.append(known)
            known = self._known[id(worker)] = WorkerTimes(worker, self._label(worker))
        return known

    def all(self) -> list[WorkerTimes]:
        """All workers, in order of appearance."""
        return [*self._over, *self._known.values()]

    def by_cost(self) -> tuple[WorkerTimes, ...]:
        """All workers, by the calling thread's time."""
        return tuple(sorted(self.all(), key=lambda t: -t.totals["schedule"] - t.totals["slice"]))

    def _label(self, worker: Worker) -> str:
        source = PurePath(worker.model.source).stem
        name = worker.model.name if source.startswith("<") else source
        backend = worker.plan_report().backend
        label = f"{name or 'model'} on {backend}"
        self._used[label] += 1
        return label if self._used[label] == 1 else f"{label} #{self._used[label]}"
