"""One schedule on its way through a session, and the tensors that it yields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from engine.backends.base import DeviceBuffer, Readback
from engine.backends.tensor_data import BufferTensorData, storage_of
from engine.errors import DisposedError, StaleTensorError
from engine.session import Location, Part, Session
from engine.tensor import ArrivedRead, CPUTensorData, PendingRead, TensorData

if TYPE_CHECKING:
    from engine.worker import Worker


class Run:
    """One schedule. Enqueues what it can, and goes on whenever data that it waits for has arrived."""

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
        self.finished = False
        self.on_finished: list[Callable[[], None]] = []
        self._feeds = dict(feeds)
        self._arriving: dict[str, PendingRead] = {}
        self._started = False
        self._stage = 0
        self._reads: dict[str, Readback] = {}

    def hold_inputs(self) -> None:
        """Take copies of the inputs: this run starts later, when they may have changed."""
        for name, feed in self._feeds.items():
            if isinstance(feed, TensorData):
                self._arriving[name] = feed.request()
            else:
                self._feeds[name] = feed.copy()

    def advance(self, wait: bool = False) -> bool:
        """Enqueue up to the end, or to the first thing that is not there yet; True at the end."""
        if self.finished:
            return True
        if not self._start(wait):
            return False
        backends = self.session.backends
        while True:
            while self._stage < len(self.part.stages):
                stage = self.part.stages[self._stage]
                if not self._move({n: s for n, s, _ in stage.moves}, wait):
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
            self._stage = 0
        self.finished = True
        self._feeds.clear()
        for backend in backends.values():
            backend.flush()
        for callback in self.on_finished:
            callback()
        self.on_finished.clear()
        return True

    def _start(self, wait: bool) -> bool:
        """Bring the inputs to the places that read them."""
        if self._started:
            return True
        for name, feed in self._feeds.items():
            if isinstance(feed, TensorData) and name not in self._arriving and not self._copies(name, feed):
                self._arriving[name] = feed.request()
        for read in self._arriving.values():
            if wait:
                read.wait()
            if not read.done():
                return False
        for name, places in self.part.inputs.items():
            feed = self._feeds.get(name)
            for place, buffer in places:
                if isinstance(feed, BufferTensorData) and name not in self._arriving:
                    self.session.backends[place].after(feed.backend.fence())
                    self.session.backends[place].copy(feed.buffer, buffer)
                elif feed is not None:
                    array = self._arriving[name].array() if name in self._arriving else feed
                    assert isinstance(array, np.ndarray)
                    self.session.backends[place].upload(buffer, array)
        self._started = True
        return True

    def _copies(self, name: str, feed: TensorData) -> bool:
        """Whether an input can be copied on the device itself."""
        places = self.part.inputs[name]
        return isinstance(feed, BufferTensorData) and all(
            same_device(self.session, place, feed) for place, _ in places
        )

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


def same_device(session: Session, place: str, feed: BufferTensorData) -> bool:
    """Whether a tensor's buffer can be read by the backend at a place."""
    backend = session.backends[place]  # type: ignore[index]
    if type(backend) is not type(feed.backend):
        return False
    return getattr(backend, "device", None) is getattr(feed.backend, "device", None)


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
                f"output '{self.name}' was replaced by a newer schedule; peek_output again, request its readback "
                "before the next schedule, or use copy_output"
            )

    def concrete(self) -> TensorData:
        self._check()
        self.worker.drive(self.run)
        return data_at(self.run.session, self.run.location(self.name), owned=False)

    def request(self) -> PendingRead:
        self._check()
        return LateRead(self.worker, self.run, self.name)

    def upload(self, array: np.ndarray) -> None:
        self.concrete().upload(array)


def data_at(session: Session, location: Location, owned: bool) -> TensorData:
    """A location as tensor storage."""
    value = location.value
    if location.buffer is None or location.place is None:
        array = value.known if value.known is not None else np.empty(value.shape, value.dtype)
        return CPUTensorData(array.reshape(value.shape))
    backend = session.backends[location.place]
    return storage_of(backend)(backend, location.buffer, value.shape, owned)


class LateRead:
    """A readback of a run's output; it joins the stream when the run has enqueued all its work."""

    def __init__(self, worker: Worker, run: Run, name: str) -> None:
        self._worker = worker
        self._run = run
        self._name = name
        self._read: PendingRead | None = None
        if run.finished:
            self._begin()
        else:
            run.on_finished.append(self._begin)

    def _begin(self) -> None:
        data = data_at(self._run.session, self._run.location(self._name), owned=False)
        self._read = ArrivedRead(data.array.copy()) if type(data) is CPUTensorData else data.request()

    def done(self) -> bool:
        """Whether the elements have arrived; takes the worker's continuations up again."""
        if self._read is None:
            self._worker.pump()
        return self._read is not None and self._read.done()

    def wait(self) -> None:
        """Block until done."""
        self._worker.drive(self._run)
        assert self._read is not None
        self._read.wait()

    def array(self) -> np.ndarray:
        """The elements in their shape."""
        assert self._read is not None
        return self._read.array()
