"""Instrumentation: observers receive timed spans, counters and sampled values.

An observer is notified of what this thread's workers do: `with observing(observer): ...`. Where none is
installed, the engine makes one test, `if observing.installed:`, and nothing else. Observers get what
happens anyway: nothing here reads anything back or waits.

Spans are named by what was done, with attributes:

| span | track | what it covers | attributes |
| --- | --- | --- | --- |
| `load` | main | a model file read and rewritten | model |
| `prepare` | main | a worker prepared: plans, kernels, buffers | model, compiled (how many kernels) |
| `compile` | main | the kernels of a plan that are not compiled yet | model, compiled |
| `plan` | main | a plan for new input shapes, made before `schedule` returns | model |
| `fill` | main | new input shapes filled into a symbolic plan | model |
| `schedule` | main | one call of `Worker.schedule` or `schedule_iterable` | worker |
| `slice` | main | one slice of an inference that is enqueued in slices | worker, budget_ms |
| `upload` | main | an input copied to the device that reads it | bytes |
| `enqueue` | main | work handed to a backend, or done at once if it is short | backend |
| `download` | main | a wait for elements that are not on the CPU yet | worker, tensor |
| `request` | main | a readback is requested (no duration) | worker, tensor |
| `readback` | readback | from its request until a poll finds it | worker, tensor |
| `job` | jobs | commands on job threads, from the first one's start to the last one's end | backend |
| `commands` | gpu | commands on a GPU, by its own clock | backend |

`worker` and `model` are objects where a span has them, other attributes are text and numbers. A worker
belongs to its thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any, Protocol

import numpy as np

installed = 0
"""How many observers there are, on all threads: 0 is the only thing that the engine's short ways look at."""


class Observer:
    """Receives spans, counters and values. Every method does nothing here: override those that you need.

    All are called while the engine works: quickly done, and never raising.
    """

    def span(self, track: str, name: str, start: float, end: float, **attributes: Any) -> None:
        """Something took from `start` to `end`, in seconds of `time.perf_counter`.

        track: "main" (the calling thread), "readback", "jobs" or "gpu". Spans of the last three are reported
        once a poll finds them, so later than others that began after them.
        """

    def count(self, name: str, amount: float) -> None:
        """Something happened `amount` times: "bytes up", "bytes down", "blocking calls", "waits for jobs"."""

    def value(self, worker: Any, name: str, array: np.ndarray) -> None:
        """Elements of a worker's input or output that are on the CPU; copy them to keep them."""


class PendingMeasurement(Protocol):
    """A measurement whose result has not arrived."""

    def poll(self) -> bool:
        """Report the result and return True, if it has arrived. Never waits."""
        ...


class _ThreadObservers(threading.local):
    """One thread's observers, whose work it is doing, and what has not been reported to it yet."""

    def __init__(self) -> None:
        self.observers: tuple[Observer, ...] = ()
        self.worker: Any = None
        self.pending: list[PendingMeasurement] = []


_here = _ThreadObservers()
_lock = threading.Lock()


def add_observer(observer: Observer) -> None:
    """Notify `observer` of what happens on this thread, until `remove_observer`."""
    global installed
    if all(known is not observer for known in _here.observers):
        _here.observers = (*_here.observers, observer)
        with _lock:
            installed += 1


def remove_observer(observer: Observer) -> None:
    """Notify it no longer; called on the thread that added it. Does nothing if it was not added."""
    global installed
    left = tuple(known for known in _here.observers if known is not observer)
    if len(left) < len(_here.observers):
        _here.observers = left
        with _lock:
            installed -= 1
        if not left:
            _here.pending.clear()


@contextmanager
def observing(observer: Observer) -> Iterator[None]:
    """Notify `observer` of what happens on this thread within a block."""
    add_observer(observer)
    try:
        yield
    finally:
        poll()
        remove_observer(observer)


# What the engine calls, where `installed` is not 0.


def here() -> bool:
    """Whether this thread has an observer; without one, the functions of this module do nothing."""
    return bool(_here.observers)


def span(track: str, name: str, start: float, end: float | None = None, **attributes: Any) -> None:
    """Report a span from `start` to `end`, or until now, to this thread's observers."""
    observers = _here.observers
    if observers:
        stop = perf_counter() if end is None else end
        if _here.worker is not None:
            attributes.setdefault("worker", _here.worker)
        for observer in observers:
            observer.span(track, name, start, stop, **attributes)


def count(name: str, amount: float) -> None:
    """Report to this thread's observers that something happened."""
    for observer in _here.observers:
        observer.count(name, amount)


def value(worker: Any, name: str, array: np.ndarray) -> None:
    """Pass elements that are on the CPU to this thread's observers."""
    for observer in _here.observers:
        observer.value(worker, name, array)


def current_worker() -> Any:
    """The worker whose work this thread is doing, if it is known."""
    return _here.worker


class working_for:  # noqa: N801 - it reads as a statement, and a generator would take three times as long
    """Context manager: attributes the spans within to a worker."""

    __slots__ = ("_before", "_worker")

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self._before: Any = None

    def __enter__(self) -> None:
        self._before, _here.worker = _here.worker, self._worker

    def __exit__(self, *exception: object) -> None:
        _here.worker = self._before


class spanning:  # noqa: N801
    """Context manager: reports a span around the block; yields a dict for its attributes."""

    __slots__ = ("_attributes", "_name", "_start")

    def __init__(self, name: str, **attributes: Any) -> None:
        self._name = name
        self._attributes = attributes
        self._start = 0.0

    def __enter__(self) -> dict[str, Any]:
        self._start = perf_counter()
        return self._attributes

    def __exit__(self, *exception: object) -> None:
        if _here.observers:
            span("main", self._name, self._start, **self._attributes)


def later(pending: PendingMeasurement) -> None:
    """Poll `pending` in every `poll` until it has reported its measurement."""
    if _here.observers:
        _here.pending.append(pending)


def poll() -> None:
    """Report the measurements that are complete. A profiler calls it once a frame. Never waits."""
    if _here.pending:
        _here.pending = [pending for pending in _here.pending if not pending.poll()]


class ObservedRead:
    """A readback that reports how long it took and its elements."""

    def __init__(self, read: Any, worker: Any, name: str) -> None:
        self._read = read
        self._worker = worker
        self._name = name
        self._start = perf_counter()
        self._is_reported = False
        span("main", "request", self._start, self._start, worker=worker, tensor=name)

    def done(self) -> bool:
        """Whether the elements have arrived."""
        if not self._is_reported and self._read.done():
            self._report()
        return self._is_reported

    def wait(self) -> None:
        """Block until done."""
        if self._is_reported or self._read.done():
            return
        start = perf_counter()
        self._read.wait()
        span("main", "download", start, worker=self._worker, tensor=self._name)

    def array(self) -> np.ndarray:
        """The elements in their shape."""
        array: np.ndarray = self._read.array()
        if not self._is_reported:
            self._report()
        count("bytes down", array.nbytes)
        value(self._worker, self._name, array)
        return array

    def _report(self) -> None:
        self._is_reported = True
        span("readback", "readback", self._start, worker=self._worker, tensor=self._name)
