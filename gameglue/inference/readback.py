"""Asynchronous readback of outputs, and protocols of the workers that the queue accepts.

The queue knows nothing of models: what registers can be pumped, a worker makes schedules that are enqueued
slice by slice, and a tensor is something with a readback that can be requested, polled and downloaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from engine import InputError, ShapePending


@runtime_checkable
class Pumpable(Protocol):
    """Work that continues in slices of its own, such as a `Worker` whose plan waits for data."""

    def pump(self, budget_ms: float | None) -> object:
        """Submit what is ready within `budget_ms` milliseconds, without waiting."""
        ...


@runtime_checkable
class Readable(Protocol):
    """A tensor whose value may still be being computed."""

    def readback_request(self) -> object:
        """Start a readback of the value."""
        ...

    def is_readback_request_done(self) -> bool:
        """True once `download_to_array` is immediate."""
        ...

    def download_to_array(self) -> np.ndarray:
        """The value."""
        ...


class SlicedSchedule(Protocol):
    """One inference that is enqueued slice by slice: what `Worker.schedule_iterable` returns."""

    @property
    def is_done(self) -> bool:
        """Whether everything is enqueued."""
        ...

    @property
    def progress(self) -> float:
        """How much of it is enqueued, from 0 to 1."""
        ...

    @property
    def next_cost_ms(self) -> float:
        """Expected device time of the next slice, in milliseconds."""
        ...

    @property
    def remaining_ms(self) -> float:
        """Expected device time of everything not yet enqueued, in milliseconds."""
        ...

    def advance(self, budget_ms: float, *, force: bool = False) -> float:
        """Enqueue what fits into the budget, with `force` at least one slice; returns the expected ms."""
        ...

    def cancel(self) -> None:
        """Cancel what is not enqueued."""
        ...

    def output(self, name: str | None = None) -> Any:
        """An output as `Worker.peek_output` gives it."""
        ...


class SlicedWorker(Protocol):
    """A model bound to a backend: a `Worker`."""

    model: Any
    """Its `outputs` have names."""

    def schedule(self, *inputs: Any, **named: Any) -> None:
        """Enqueue all of one inference."""
        ...

    def peek_output(self, name: str | None = None) -> Any:
        """An output of the latest inference."""
        ...

    def schedule_iterable(self, *inputs: Any, **named: Any) -> SlicedSchedule:
        """Begin one inference, of which nothing is enqueued yet."""
        ...


class UnslicedSchedule:
    """An inference that is enqueued at once, as it is too short for slices."""

    is_done = True
    progress = 1.0
    next_cost_ms = remaining_ms = 0.0

    def __init__(self, worker: SlicedWorker, inputs: Sequence[Any], named: Mapping[str, Any]) -> None:
        worker.schedule(*inputs, **named)
        self.output = worker.peek_output

    def advance(self, budget_ms: float, *, force: bool = False) -> float:
        """Do nothing: all work is enqueued."""
        return 0.0

    def cancel(self) -> None:
        """Do nothing: all work is enqueued."""


Output = np.ndarray | list[np.ndarray] | None
"""An array; a list of them for an output that is a sequence; None for an optional without an element."""
Result = Output | dict[str, Output]
Selection = str | int | Sequence[str | int] | None


def select_outputs(known: Sequence[str], wanted: Selection) -> tuple[tuple[str, ...], bool]:
    """The names of the selected outputs, and whether the result is a single array.

    `None` wants all of them. Raises `InputError` for a name or number that the model does not have.
    """
    if wanted is None:
        return tuple(known), len(known) == 1
    alone = isinstance(wanted, str | int)
    items = [wanted] if isinstance(wanted, str | int) else wanted
    if not items:
        raise InputError("outputs=() names no output; leave it out for all of them")
    return tuple(_name_of(known, item) for item in items), alone


def _name_of(known: Sequence[str], item: str | int) -> str:
    if isinstance(item, int):
        if not 0 <= item < len(known):
            raise InputError(f"the model has {len(known)} output(s), no number {item}")
        return known[item]
    if item not in known:
        raise InputError(f"the model has no output '{item}'; its outputs: {', '.join(known)}")
    return item


class OutputReadback:
    """Pending readbacks of some outputs."""

    def __init__(self, tensors: Mapping[str, Any], alone: bool) -> None:
        """tensors: by output name: a tensor, a list or None. alone: `result` returns the only output."""
        self._tensors = tensors
        self._alone = alone
        for tensor in self._all():
            tensor.readback_request()

    @classmethod
    def of(cls, schedule: SlicedSchedule, names: Iterable[str], alone: bool) -> OutputReadback | None:
        """Read back outputs of an enqueued schedule; None while the length of a sequence is unknown."""
        try:
            return cls({name: schedule.output(name) for name in names}, alone)
        except ShapePending:
            return None

    def _all(self) -> list[Readable]:
        found: list[Readable] = []
        for value in self._tensors.values():
            found += value if isinstance(value, list) else [] if value is None else [value]
        return found

    def is_done(self) -> bool:
        """Whether all outputs have arrived."""
        return all(tensor.is_readback_request_done() for tensor in self._all())

    def result(self) -> Result:
        """The single output, or a dict by name; blocks until they have arrived."""
        arrays = {name: _downloaded(value) for name, value in self._tensors.items()}
        return next(iter(arrays.values())) if self._alone else arrays


def _downloaded(value: Any) -> Output:
    if value is None:
        return None
    if isinstance(value, list):
        return [tensor.download_to_array() for tensor in value]
    array: np.ndarray = value.download_to_array()
    return array


def kept(value: Any) -> Any:
    """Copy an array, which may change before use; other inputs are returned unchanged."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, Mapping):
        return {name: kept(item) for name, item in value.items()}
    if isinstance(value, list | tuple) and any(isinstance(item, np.ndarray) for item in value):
        return [kept(item) for item in value]
    return value
