"""One schedule on its way through a session, and the tensors that it yields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from engine.backends.base import Backend, DeviceBuffer, Readback
from engine.backends.tensor_data import BufferTensorData, storage_of
from engine.errors import DisposedError, StaleTensorError
from engine.session import Location, Part, Session
from engine.tensor import CPUTensorData, PendingRead, TensorData

if TYPE_CHECKING:
    from engine.worker import Worker


class Run:
    """One schedule. Enqueues what it can, and goes on whenever data that it waits for has arrived.

    What goes wrong on the way stays in `error`: `check` raises it to whoever asks for the outputs.
    """

    def __init__(
        self,
        session: Session,
        part: Part,
        shapes: Mapping[str, tuple[int, ...]],
        feeds: Mapping[str, TensorData | np.ndarray],
    ) -> None:
        self.session = session
        self.part = part
        self.shapes = shapes
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
            if not isinstance(feed, np.ndarray | BufferTensorData)
        }
        self._stage = 0
        self._reads: dict[str, Readback] = {}
        self._held = [part]
        part.users += 1

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
        if not self.started and not self._start(wait):
            return False
        backends = self.session.backends
        while True:
            while self._stage < len(self.part.stages):
                stage = self.part.stages[self._stage]
                if stage.moves and not self._move({n: s for n, s, _ in stage.moves}, wait):
                    return False
                for name, _, target in stage.moves:
                    backends[stage.place].upload(target, self._reads[name].array())
                self._reads.clear()
                backends[stage.place].run(stage.program)
                self._stage += 1
            trace = self.part.lowered.trace
            if trace.stopped_at is None:
                break
            known = self._fetch(trace.needs, wait)
            if known is None:
                return False
            self.part = self.session.continuation(self.part, self.shapes, known)
            self.part.users += 1
            self._held.append(self.part)
            self._stage = 0
        self.finished = True
        self._feeds = {}
        for backend in backends.values():
            backend.flush()
        for callback in self.on_finished:
            callback()
        self.on_finished.clear()
        return True

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
        for part in self._held:
            part.users -= 1
        self._held.clear()

    def _start(self, wait: bool) -> bool:
        """Bring the inputs to the places that read them; False while one of them is still on its way."""
        for name, feed in self._feeds.items():
            if isinstance(feed, np.ndarray) or name in self._arriving:
                continue
            assert isinstance(feed, BufferTensorData)
            if not self._copies(name, feed):
                self._arriving[name] = feed.request()
        for read in self._arriving.values():
            if wait:
                read.wait()
            if not read.done():
                return False
        backends = self.session.backends
        for name, places in self.part.inputs.items():
            feed = self._feeds[name]
            if 0 in self.shapes[name]:
                continue  # an empty tensor has a buffer of one element and nothing to bring
            for place, buffer in places:
                backend = backends[place]
                if name in self._arriving:
                    backend.upload(buffer, self._arriving[name].array())
                elif isinstance(feed, np.ndarray):
                    backend.upload(buffer, feed)
                else:
                    assert isinstance(feed, BufferTensorData)
                    backend.after(feed.backend.fence())
                    backend.copy(feed.buffer, buffer)
                    # Its owner may write it again as soon as this returns.
                    feed.backend.after(backend.fence())
        self._arriving.clear()
        self.started = True
        return True

    def _copies(self, name: str, feed: BufferTensorData) -> bool:
        """Whether an input can be copied on the device itself."""
        places = self.part.inputs[name]
        return all(same_device(self.session.backends[place], feed.backend) for place, _ in places)

    def _move(self, sources: Mapping[str, DeviceBuffer], wait: bool) -> bool:
        """Read buffers back to the CPU; True once all have arrived in `_reads`."""
        for name, buffer in sources.items():
            if name not in self._reads:
                backend = self.session.backends[self.part.home[name]]
                self._reads[name] = backend.readback(buffer)
                backend.flush()
        for name in sources:
            if wait:
                self._reads[name].wait()
            if not self._reads[name].done():
                return False
        return True

    def _fetch(self, names: tuple[str, ...], wait: bool) -> dict[str, np.ndarray] | None:
        """The elements of tensors that the plan waits for, or None while they are on their way."""
        located = {name: self.part.locate(name) for name in names}
        roots = {x.value.root.name: x.buffer for x in located.values() if x.buffer is not None}
        if not self._move(roots, wait):
            return None
        arrays = {}
        for name, place in located.items():
            array = place.value.known
            arrays[name] = (
                self._reads[place.value.root.name].array().reshape(place.value.shape)
                if array is None
                else array
            )
        self._reads.clear()
        return arrays

    def location(self, name: str) -> Location:
        """Where an output lies; only once finished."""
        return self.part.locate(name)


def same_device(one: Backend, other: Backend) -> bool:
    """Whether a backend can read the other's buffers."""
    return one.name == other.name and one.owner is other.owner


class RunOutput(TensorData):
    """An output of a run: a promise until the run has enqueued all its work."""

    def __init__(self, worker: Worker, run: Run, name: str, dtype: np.dtype) -> None:
        self.worker = worker
        self.run = run
        self.name = name
        self.dtype = dtype

    @property
    def shape_or_none(self) -> tuple[int, ...] | None:  # type: ignore[override]
        """The shape, once every stretch of the model that it depends on is planned."""
        self._check()
        value = self.run.part.lowered.trace.values.get(self.name)
        return None if value is None else value.shape

    def _check(self) -> None:
        if self.worker.is_disposed:
            raise DisposedError(
                f"output '{self.name}' belongs to a worker that was disposed; copy_output outlives it"
            )
        if self.worker.latest is not self.run:
            raise StaleTensorError(
                f"output '{self.name}' was replaced by a newer schedule; peek_output again, request its "
                "readback before the next schedule, or use copy_output"
            )
        self.run.check()

    def concrete(self) -> TensorData:
        self._check()
        self.worker.drive(self.run)
        return data_at(self.run.session, self.run.location(self.name))

    def at_hand(self) -> TensorData:
        self._check()
        return self.concrete() if self.worker.take_up(self.run) else self

    def request(self) -> PendingRead:
        self._check()
        return LateRead(self.worker, self.run, self.name)

    def upload(self, array: np.ndarray) -> None:
        self.concrete().upload(array)


def data_at(session: Session, location: Location) -> TensorData:
    """A location as storage of a tensor that does not own it."""
    if location.buffer is None or location.place is None:
        return CPUTensorData(location.array())
    backend = session.backends[location.place]
    return storage_of(backend)(backend, location.buffer, location.value.shape, owned=False)


class LateRead:
    """A readback of a run's output; it joins the stream when the run has enqueued all its work."""

    def __init__(self, worker: Worker, run: Run, name: str) -> None:
        self._worker = worker
        self._run = run
        self._name = name
        self._read: Readback | None = None
        self._array: np.ndarray | None = None
        self._shape: tuple[int, ...] = ()
        self._begun = False
        if run.finished:
            self._begin()
        else:
            run.on_finished.append(self._begin)

    def _begin(self) -> None:
        location = self._run.location(self._name)
        self._begun = True
        self._shape = location.value.shape
        if location.buffer is None or location.place is None:
            self._array = location.array()
            return
        backend = self._run.session.backends[location.place]
        with backend.entered():
            self._read = backend.readback(location.buffer)
            backend.flush()

    def done(self) -> bool:
        """Whether the elements have arrived; takes the worker's continuations up again."""
        if not self._begun:
            self._worker.take_up(self._run)
            self._run.check()
        return self._begun and (self._read is None or self._read.done())

    def wait(self) -> None:
        """Block until done."""
        if not self._begun:
            self._worker.drive(self._run)
        if self._read is not None:
            self._read.wait()

    def array(self) -> np.ndarray:
        """The elements in their shape."""
        if self._read is None:
            assert self._array is not None
            return self._array
        return self._read.array().reshape(self._shape)
