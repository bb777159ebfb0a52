"""One schedule on its way through a session."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter

import numpy as np

from engine.backends.base import Backend, DeviceBuffer, Readback
from engine.backends.readback import PendingRead
from engine.backends.tensor_data import CPUTensorData, TensorData
from engine.base import instrumentation
from engine.compiler.entries import arrays_in
from engine.kernels.value import Entry, Value
from engine.runtime.device_tensor_data import BufferTensorData
from engine.runtime.recorded_plan import RecordedPlan, Submission
from engine.runtime.session import Session


class Run:
    """One schedule. Enqueues what it can, and goes on whenever data that it waits for has arrived.

    What goes wrong on the way stays in `error`: `check` raises it to whoever asks for the outputs. `turn`
    tells schedules apart where one run stands for several.
    """

    def __init__(
        self,
        session: Session,
        recorded: RecordedPlan,
        feeds: Mapping[str, TensorData | np.ndarray],
    ) -> None:
        self.session = session
        self.recorded = recorded
        self.turn = 0
        self.started = False
        self.finished = False
        self.error: Exception | None = None
        self.reported = False
        self.on_finished: list[Callable[[], None]] = []
        self._feeds = feeds
        # What is but a promise yet is asked for at once: a later schedule may replace it.
        self._arriving: dict[str, PendingRead] = {
            name: feed.request()
            for name, feed in feeds.items()
            if not (isinstance(feed, np.ndarray | BufferTensorData) or type(feed) is CPUTensorData)
        }
        self._stage = 0
        self._has_moved = False
        self._reads: dict[str, Readback] = {}
        # What a NumPy function has yielded, for the part that follows it.
        self._results: tuple[np.ndarray, ...] = ()
        self._held = [recorded]
        recorded.users += 1

    def hold_inputs(self) -> None:
        """Take copies of the inputs: this run starts later, when they may have changed."""
        held: dict[str, TensorData | np.ndarray] = {}
        for name, feed in self._feeds.items():
            held[name] = feed
            if isinstance(feed, np.ndarray):
                held[name] = feed.copy()
            elif name not in self._arriving:
                self._arriving[name] = feed.request()
        self._feeds = held

    def advance(self, wait: bool = False) -> bool:
        """Enqueue up to the end, or to the first thing that is not there yet; True at the end."""
        if self.finished:
            return True
        backends = self.session.backends
        while True:
            if not self.session.is_ready(self.recorded, wait) or not (self.started or self._start(wait)):
                return False
            for value, array in zip(self.recorded.lowered.trace.received, self._results, strict=False):
                self._upload(value.name, array)
            self._results = ()
            while self._stage < len(self.recorded.submissions):
                submission = self.recorded.submissions[self._stage]
                transfers = submission.transfers if not self._has_moved else ()
                if transfers and not self._move({n: s for n, s, _ in transfers}, wait):
                    return False
                for name, _, target in transfers:
                    backends[submission.place].upload(target, self._reads[name].array())
                self._reads.clear()
                self._has_moved = True
                if not self._enqueue(submission):
                    return False
                self._stage += 1
                self._has_moved = False
            stop = self.recorded.lowered.trace.stop
            if stop is None:
                break
            fetched = self._fetch(stop.needs, wait)
            if fetched is None:
                return False
            if stop.call is None:
                self._go_on(self.session.continuation(self.recorded, fetched))
            else:
                results = stop.call.run(partial(self._elements, fetched))
                self._go_on(self.session.continuation(self.recorded, {}, results))
                self._results = tuple(arrays_in(results))
        self.finished = True
        self._feeds = {}
        for backend in backends.values():
            backend.flush()
        for callback in self.on_finished:
            callback()
        self.on_finished.clear()
        return True

    def _enqueue(self, submission: Submission) -> bool:
        """Enqueue a stage, whose inputs are there; True once all of it is."""
        backend = self.session.backends[submission.place]
        if instrumentation.installed:
            with instrumentation.spanning("enqueue", backend=backend.name):
                backend.run(submission.program)
        else:
            backend.run(submission.program)
        return True

    def _go_on(self, recorded: RecordedPlan) -> None:
        recorded.users += 1
        self.recorded = recorded
        self._held.append(recorded)
        self._stage = 0

    @property
    def recorded_plans(self) -> tuple[RecordedPlan, ...]:
        """The stretches of the model that were planned for this run, while it holds them."""
        return tuple(self._held)

    def fail(self, error: Exception) -> None:
        """End this run without a result. If a readback waits for it, that is where `error` will be raised."""
        self.error = error
        self.reported = bool(self.on_finished)
        self._feeds = {}
        self._arriving.clear()
        self._reads.clear()
        self.on_finished.clear()

    def check(self) -> None:
        """Raise what ended this run, if anything did."""
        if self.error is not None:
            self.reported = True
            raise self.error

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to enqueue."""
        return self.finished or self.error is not None

    def let_go(self) -> None:
        """Let this run's plans be dropped: its outputs are used no more."""
        for recorded in self._held:
            recorded.users -= 1
        self._held.clear()

    def _start(self, wait: bool) -> bool:
        """Bring the inputs to the places that read them; False while one of them is still on its way."""
        for name, feed in self._feeds.items():
            if isinstance(feed, np.ndarray) or name in self._arriving:
                continue
            if not self._copies(name, feed):
                self._arriving[name] = feed.request()
        for read in self._arriving.values():
            if wait:
                read.wait()
            if not read.done():
                return False
        backends = self.session.backends
        for name, places in self.recorded.inputs.items():
            feed = self._feeds[name]
            if name in self._arriving:
                self._upload(name, self._arriving[name].array())
            elif isinstance(feed, np.ndarray):
                self._upload(name, feed)
            elif type(feed) is CPUTensorData:
                for place, buffer in places if feed.elements.size else ():
                    backends[place].upload_behind(buffer, feed)
            elif 0 not in (feed.shape_or_none or ()):
                assert isinstance(feed, BufferTensorData)
                for place, buffer in places:
                    backends[place].after(feed.backend.fence())
                    backends[place].copy(feed.storage, buffer)
                    # Its owner may write it again as soon as this returns.
                    feed.backend.after(backends[place].fence())
        self._arriving.clear()
        self.started = True
        return True

    def _upload(self, name: str, array: np.ndarray) -> None:
        """Bring an array to the places that read it; an empty one has a buffer and nothing to bring."""
        if array.size:
            started = perf_counter() if instrumentation.installed else 0.0
            for place, buffer in self.recorded.inputs[name]:
                self.session.backends[place].upload(buffer, array)
                if started:
                    instrumentation.span("main", "upload", started, bytes=array.nbytes)
                    instrumentation.count("bytes up", array.nbytes)

    def _copies(self, name: str, feed: TensorData) -> bool:
        """Whether an input can be copied on the device itself, behind the work that makes it."""
        places = self.recorded.inputs[name]
        if type(feed) is CPUTensorData:  # which a job is writing
            fence = feed.fence
            return all(self.session.backends[p].waits_for(fence) for p, _ in places)
        assert isinstance(feed, BufferTensorData)
        return all(same_device(self.session.backends[place], feed.backend) for place, _ in places)

    def _move(self, sources: Mapping[str, DeviceBuffer], wait: bool) -> bool:
        """Read buffers back to the CPU; True once all have arrived in `_reads`."""
        for name, buffer in sources.items():
            if name not in self._reads:
                backend = self.session.backends[self.recorded.placement[name]]
                self._reads[name] = backend.readback(buffer)
                backend.flush()
        for name in sources:
            if wait:
                self._reads[name].wait()
            if not self._reads[name].done():
                return False
        return True

    def _fetch(self, values: tuple[Value, ...], wait: bool) -> dict[str, np.ndarray] | None:
        """The buffers of tensors that the plan waits for, by name, or None while they are on their way."""
        located = [self.recorded.locate(value) for value in values]
        buffers = {x.value.root.name: x.buffer for x in located if x.buffer is not None}
        if not self._move(buffers, wait):
            return None
        arrays = {name: self._reads[name].array() for name in buffers}
        self._reads.clear()
        return arrays

    def _elements(self, fetched: Mapping[str, np.ndarray], value: Value) -> np.ndarray:
        """A tensor's elements, from what was fetched or known ahead of time."""
        location = self.recorded.locate(value)
        flat = fetched.get(value.root.name)
        return location.array() if flat is None else location.seen_in(flat)

    def entry(self, name: str) -> Entry:
        """What an output is; only once planned to the end."""
        return self.recorded.lowered.trace.values[name]


def same_device(one: Backend, other: Backend) -> bool:
    """Whether a backend can read the other's buffers."""
    return one.name == other.name and one.owner is other.owner
