"""Outputs of a schedule: tensors whose work may not be enqueued yet, and their readbacks."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from threading import get_ident
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.backends.readback import DerivedRead, PendingRead, delivered
from engine.backends.tensor_data import CPUTensorData, JobMemory, TensorData
from engine.base.dtypes import TEXT
from engine.base.errors import (
    DisposedError,
    InputError,
    OutOfMemoryError,
    ShapePending,
    StaleTensorError,
    ValuePending,
)
from engine.base.memory.out_of_memory import out_of_memory
from engine.compiler.passes.remove_dead_layers import remove_dead_layers
from engine.graph.model import Model, Output
from engine.kernels.value import EncodedValue, Entry, MapsValue, Value, leaves
from engine.runtime.device_tensor_data import BufferTensorData, storage_of
from engine.runtime.plans.recorded_plan import Location
from engine.runtime.run import Run
from engine.runtime.tensor import Tensor

if TYPE_CHECKING:
    from engine.runtime.executor import Executor


class Outputs:
    """A model's outputs by name or number, as tensors, lists or None."""

    def __init__(self, model: Model) -> None:
        self._model = model.name
        self._items = {item.name: item for item in model.outputs}
        self._names = tuple(self._items)

    def name(self, which: str | int | None) -> str:
        """An output's name, given that, its number, or None for the first. Raises `InputError` for others."""
        names = self._names
        if which is None:
            return names[0]
        if isinstance(which, int):
            if not 0 <= which < len(names):
                raise InputError(f"model '{self._model}' has {len(names)} output(s), no number {which}")
            return names[which]
        if which not in self._items:
            known = ", ".join(f"'{name}'" for name in names)
            raise InputError(f"model '{self._model}' has no output '{which}'; its outputs: {known}")
        return which

    def of(
        self, worker: Executor, run: Run, name: str, tensor: Callable[[RunOutput], Tensor]
    ) -> Tensor | list[Tensor] | None:
        """An output of a run: a tensor, a list for a sequence, None for an empty optional.

        Raises:
            ShapePending: The length of a sequence depends on data that is still being computed.
        """
        declared = self._items[name]
        if declared.kind != "tensor" or declared.dtype is None:
            run.plan_now()
        entry: Entry | str = run.recorded.lowered.trace.values.get(name, "pending")
        # Text whose plan is still being made may turn out to be known in it, or to be read from positions.
        is_objects = declared.kind == "maps" or declared.kind == "tensor" and declared.dtype == TEXT
        if isinstance(entry, EncodedValue) or (entry == "pending" and is_objects):
            return tensor(ObjectsOutput(worker, run, name, TEXT))
        if isinstance(entry, Value):
            return tensor(RunOutput(worker, run, name, entry.dtype))
        if isinstance(entry, str):
            if declared.kind != "tensor":
                raise ShapePending(
                    f"output '{name}' is a {declared.kind} whose length is still being computed; pump the "
                    "worker, then ask again"
                )
            dtype = np.dtype(np.float32) if declared.dtype is None else declared.dtype
            return tensor(RunOutput(worker, run, name, dtype))
        if entry is None:
            return None
        return [tensor(RunOutput.at(i, worker, run, name, v.dtype)) for i, v in enumerate(entry.items)]

    def arrays(self, worker: Executor, run: Run) -> dict[str, Any]:
        """The elements of all outputs of a run that is over, by name; see `Executor.take_outputs`."""
        entries = {name: self.of(worker, run, name, Tensor.of) for name in self._names}
        tensors = [t for e in entries.values() if e is not None for t in (e if isinstance(e, list) else [e])]
        if len(tensors) > 1 and not run.session.backends["native"].is_host:
            # All copies are on their way before the first is waited for.
            for tensor in tensors:
                tensor.readback_request()
        return {name: _arrays_of(entry) for name, entry in entries.items()}


class RunOutput(TensorData):
    """An output of a run, or the tensor at `position` of an output that is a sequence.

    Its work may not be enqueued yet.
    """

    needs_disposal = False
    position = 0
    _count: PendingRead | None = None

    def __init__(
        self, worker: Executor, run: Run, name: str, dtype: np.dtype, location: Location | None = None
    ) -> None:
        self.worker = worker
        self.run = run
        self._turn = run.turn
        self.name = name
        self.dtype = dtype
        self._location = location

    @classmethod
    def at(cls, position: int, worker: Executor, run: Run, name: str, dtype: np.dtype) -> RunOutput:
        """The tensor at a position of a sequence."""
        output = cls(worker, run, name, dtype)
        output.position = position
        return output

    def copied(self) -> Tensor:
        """A copy on the same backend, owned by the caller. Only once all work of the run is enqueued."""
        if not self._is_buffer():
            return Tensor.wrap(np.ascontiguousarray(self.download()))
        data = data_at(self.run.locate(self.value()))
        return Tensor.of(data.copied() if isinstance(data, BufferTensorData) else data)

    def _is_buffer(self) -> bool:
        """Whether its elements are all of a buffer's. Only the device may know how many of them are valid."""
        return self.value().bound is None

    @property
    def shape_or_none(self) -> tuple[int, ...] | None:  # type: ignore[override]
        """The shape; None while it depends on data that was not read back yet. Advances the run."""
        self._check()
        if self.name not in self.run.recorded.lowered.trace.values:
            self.worker._advance(self.run)
            self.run.check()
            if self.name not in self.run.recorded.lowered.trace.values:
                return None
        value = self.value()
        if value.bound is None:
            return value.shape
        if self._count is None and self.worker._advance(self.run):
            self._count = self.run.locate(value.bound.count).request()
        self.run.check()
        if self._count is None or not self._count.done():
            return None
        return _valid_shape(value, self._count.array())

    def shape_when_planned(self) -> tuple[int, ...] | None:
        """The shape, for which this waits if the plan is still being made; None if it depends on data."""
        self._check()
        self.run.plan_now()
        return self.shape_or_none

    def value(self) -> Value:
        """The tensor in the run's plan. Only once the model is planned to its end."""
        entry = self.run.recorded.lowered.trace.values[self.name]
        return entry if isinstance(entry, Value) else leaves(entry)[self.position]

    def _check(self) -> None:
        """Raise the error of the run, or why its outputs cannot be used now."""
        worker, run = self.worker, self.run
        worker._check_thread()
        if worker.is_disposed:
            raise DisposedError(
                f"output '{self.name}' belongs to a worker that was disposed; copy_output outlives it"
            )
        if worker._latest is not run or run.turn != self._turn:
            if worker._latest is run:
                run.check_untaken()
            raise StaleTensorError(
                f"output '{self.name}' was replaced by a newer schedule; peek_output again, request its "
                "readback before the next schedule, or use copy_output"
            )
        run.check()

    def concrete(self) -> TensorData:
        self._check()
        self.worker._drive(self.run)
        return self._data()

    def _data(self) -> TensorData:
        return data_at(self.run.locate(self.value())) if self._is_buffer() else CPUTensorData(self.download())

    def available_data(self) -> TensorData:
        self._check()
        return self._data() if self.worker._advance(self.run) and self._is_buffer() else self

    def for_job(self, writes: bool) -> JobMemory | None:
        raise ValuePending(
            f"output '{self.name}' has no memory yet: its schedule waits for data (a size, a readback, a job "
            "of another JobSystem); pump the worker until it has enqueued everything, then schedule the job"
        )

    def request(self) -> PendingRead:
        worker, run = self.worker, self.run
        if worker._latest is not run or run.turn != self._turn or worker._thread != get_ident() or run.error:
            self._check()
        try:
            location = self._location or self._locate()
            if location is not None:
                return location.request()
            return self.requested() if run.finished else DeferredReadback(self)
        except (MemoryError, OutOfMemoryError) as error:
            raise self._no_room(error) from error

    def download(self, out: np.ndarray | None = None) -> np.ndarray:
        worker, run = self.worker, self.run
        if worker._latest is not run or run.turn != self._turn or worker._thread != get_ident() or run.error:
            self._check()
        try:
            location = self._location or self._locate()
            if location is not None:
                return location.read(out)
            return self._read_bounded(out) if self.run.finished else super().download(out)
        except (MemoryError, OutOfMemoryError) as error:
            raise self._no_room(error) from error

    def _locate(self) -> Location | None:
        """Where the elements are; None while work is not enqueued or only the device knows how many."""
        if not self.run.finished or (value := self.value()).bound is not None:
            return None
        self._location = self.run.locate(value)
        return self._location

    def requested(self) -> PendingRead:
        """A readback of the valid elements, once all work is enqueued."""
        value = self.value()
        read = self.run.locate(value).request()
        if value.bound is None:
            return read
        return DerivedRead(partial(_valid, value), read, self.run.locate(value.bound.count).request())

    def _read_bounded(self, out: np.ndarray | None) -> np.ndarray:
        """The valid elements, once all work is enqueued."""
        value, bound = self.value(), self.value().bound
        assert bound is not None
        count, elements = self.run.locate(bound.count).read(None), self.run.locate(value)
        shape = _valid_shape(value, count)
        if prod(shape[: bound.axis]) == 1:
            return elements.reader(shape)(out)
        return delivered(_valid(value, elements.read(None), count), out)

    def _no_room(self, error: Exception) -> OutOfMemoryError:
        return out_of_memory(self.name, self.value().shape, self.dtype, "the CPU", error)

    def upload(self, array: np.ndarray) -> None:
        self.concrete().upload(array)


class ObjectsOutput(RunOutput):
    """An output of text or maps: Python objects, created from numbers when they are read."""

    @property
    def shape_or_none(self) -> tuple[int, ...] | None:  # type: ignore[override]
        shape, entry = super().shape_or_none, self._entry
        return entry.shape_of(shape) if shape is not None and isinstance(entry, EncodedValue) else shape

    @property
    def _entry(self) -> Entry:
        """The plan's value for this output; None until the model is planned to its end."""
        return self.run.recorded.lowered.trace.values.get(self.name)

    def objects(self, elements: np.ndarray) -> np.ndarray:
        """The objects of the elements on the device; text that the plan knows is there as it is."""
        entry = self.run.recorded.lowered.trace.values.get(self.name)
        return entry.objects(elements) if isinstance(entry, EncodedValue) else elements

    @property
    def is_list(self) -> bool:
        """Whether the output is a sequence in ONNX."""
        return isinstance(self._entry, MapsValue)

    def _is_buffer(self) -> bool:
        return False

    def _locate(self) -> Location | None:
        location = super()._locate()
        if location is not None:
            self._location = location = location.of(self.objects)
        return location

    def requested(self) -> PendingRead:
        return DerivedRead(self.objects, super().requested())

    def _read_bounded(self, out: np.ndarray | None) -> np.ndarray:
        return delivered(self.objects(super()._read_bounded(None)), out)


def data_at(location: Location) -> TensorData:
    """The storage at a location, not owned by the tensor that gets it."""
    backend, buffer = location.backend, location.buffer
    if backend is None or buffer is None:
        return CPUTensorData(location.array())
    return storage_of(backend)(backend, buffer, location.value.shape, owned=False)


class DeferredReadback(PendingRead):
    """A readback of an output, requested when the run has enqueued all its work; polling advances the run."""

    __slots__ = ("_output", "_read")

    def __init__(self, output: RunOutput) -> None:
        self._output = output
        self._read: PendingRead | None = None
        output.run.on_finished.append(self._begin)

    def _begin(self) -> None:
        self._read = self._output.requested()

    def done(self) -> bool:
        if self._read is None:
            self._output.worker._advance(self._output.run)
            self._output.run.check()
        return self._read is not None and self._read.done()

    def wait(self) -> None:
        if self._read is None:
            self._output.worker._drive(self._output.run)
        assert self._read is not None
        self._read.wait()

    def array(self) -> np.ndarray:
        assert self._read is not None
        return self._read.array()


def _valid_shape(value: Value, count: np.ndarray) -> tuple[int, ...]:
    """The shape of a tensor's valid elements, of which the device has counted so many along an axis."""
    assert value.bound is not None
    axis = value.bound.axis
    return (*value.shape[:axis], int(count.reshape(-1)[0]), *value.shape[axis + 1 :])


def _valid(value: Value, elements: np.ndarray, count: np.ndarray) -> np.ndarray:
    """A copy of the valid elements."""
    return elements[tuple(map(slice, _valid_shape(value, count)))].copy()


def _arrays_of(entry: Tensor | list[Tensor] | None) -> Any:
    if entry is None:
        return None
    if isinstance(entry, list):
        return [tensor.download_to_array() for tensor in entry]
    found, data = entry.download_to_array(), entry.available_data
    return found.tolist() if isinstance(data, ObjectsOutput) and data.is_list else found


def as_list(value: Any, name: str | int | None) -> list[Tensor]:
    """The tensors of an output that is a sequence. Raises `InputError` for other outputs."""
    if not isinstance(value, list):
        found = "an optional without an element" if value is None else f"a {type(value).__name__}"
        which = "the first output" if name is None else f"output {name!r}"
        raise InputError(f"{which} is {found}, not a list")
    return value


def with_outputs(model: Model, names: Sequence[str]) -> Model:
    """A model with these values as its outputs, and only the layers that they need.

    Raises:
        InputError: The model has no such value; the message suggests names.
    """
    if isinstance(names, str) or not names:
        raise InputError("outputs needs the names of one or more values, as a list")
    declared = {item.name: item for item in model.outputs}
    known = {**declared, **{name: Output(name, None, None) for name in model.producers()}, **declared}
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=3)
            hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
            raise InputError(
                f"model '{model.name}' has no value {name!r}; {hint}`gameglue inspect MODEL --layers` lists "
                "the outputs of its layers"
            )
    chosen = tuple(known[name] for name in dict.fromkeys(names))
    return remove_dead_layers(model.replace(outputs=chosen))
