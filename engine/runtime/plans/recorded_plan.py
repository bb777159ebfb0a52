"""Recorded plans: the programs and buffers of a model's segments for one set of input shapes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from engine.backends.base import Backend, DeviceBuffer, PendingCompilation, Program, Read
from engine.backends.readback import ArrivedRead, DerivedRead, PendingRead, delivered
from engine.base.generators import SmallSteps
from engine.compiler.lower import LoweredModel, Place
from engine.compiler.plan import Plan
from engine.kernels.value import Value

if TYPE_CHECKING:
    from engine.runtime.plans.plan_requests import PlanRequest
    from engine.runtime.plans.specialized_plan import SpecializedPlan

PLAN_BYTES = 256 << 10
"""Estimated memory of a plan apart from its blocks: steps, values and commands."""


@dataclass
class Location:
    """The location of a tensor: a buffer on a backend, or elements known while planning."""

    value: Value
    backend: Backend | None = None
    buffer: DeviceBuffer | None = None

    @cached_property
    def read(self) -> Read:
        """Waits for the elements and returns them."""
        return self.reader(self.value.shape)

    @cached_property
    def request(self) -> Callable[[], PendingRead]:
        """A function that starts a readback of the current elements."""
        if self.backend is None or self.buffer is None:
            return lambda: ArrivedRead(self.array())
        return self.backend.requester(self.buffer, self.value.shape)

    def reader(self, shape: tuple[int, ...]) -> Read:
        """A function that waits for the first elements and returns them in a shape."""
        if self.backend is not None and self.buffer is not None:
            return self.backend.reader(self.buffer, shape)

        def read(out: np.ndarray | None) -> np.ndarray:
            return delivered(self.array().reshape(-1)[: prod(shape)].reshape(shape), out)

        return read

    def array(self) -> np.ndarray:
        """A copy of elements that are in no buffer: known while planning, or empty."""
        value = self.value
        if value.known is None:
            return np.empty(value.shape, value.dtype)
        return value.known.reshape(value.shape).copy()

    def of(self, objects: Callable[[np.ndarray], np.ndarray]) -> ObjectsLocation:
        """The location of the objects of these elements."""
        return ObjectsLocation(self.value, self.backend, self.buffer, objects=objects)

    def seen_in(self, flat: np.ndarray) -> np.ndarray:
        """The tensor's elements in a copy of its buffer, which may be larger."""
        return flat[: self.value.size].reshape(self.value.shape)


@dataclass
class ObjectsLocation(Location):
    """The location of a numeric tensor that is read back as Python objects (text or maps)."""

    objects: Callable[[np.ndarray], np.ndarray] = field(kw_only=True)

    @cached_property
    def read(self) -> Read:
        """Waits for the numbers and returns their objects."""
        numbers, objects = self.reader(self.value.shape), self.objects

        def read(out: np.ndarray | None) -> np.ndarray:
            found = objects(numbers(None))
            return found if out is None else delivered(found, out)

        return read

    @cached_property
    def request(self) -> Callable[[], PendingRead]:
        """A function that starts a readback of the current numbers."""
        request = Location(self.value, self.backend, self.buffer).request
        return lambda: DerivedRead(self.objects, request())


class SizedLocation(Location):
    """The location of an output in a buffer of a plan that can be refilled with other sizes."""

    backend: Backend
    buffer: DeviceBuffer

    def __init__(self, lowered: SpecializedPlan, name: str, backend: Backend, buffer: DeviceBuffer) -> None:
        self.backend, self.buffer = backend, buffer
        self._lowered, self._name = lowered, name
        self._shape = lowered.shape(name)
        self.read = backend.sized_reader(buffer, self._shape)

    @property
    def value(self) -> Value:  # type: ignore[override]
        """The tensor as it is now."""
        entry = self._lowered.entry(self._name)
        assert isinstance(entry, Value)
        return entry

    @property
    def request(self) -> Callable[[], PendingRead]:
        """A function that starts a readback of the current elements."""
        return self.backend.requester(self.buffer, self._shape())


Transfers: TypeAlias = "tuple[tuple[str, DeviceBuffer, DeviceBuffer], ...]"
"""Tensors that go from a backend to the other: name, source and target of each."""


@dataclass
class Submission:
    """A program for one backend, and the tensors to transfer there from the other backend first."""

    place: Place
    program: Program
    make_plan: Callable[[], Plan]
    transfers: Transfers = ()
    slicing: Any = None
    """Partial dispatches and expected costs of the program's steps, created when it is first sliced."""

    @property
    def plan(self) -> Plan:
        """The steps of the program, with their sizes."""
        return self.make_plan()


Filling: TypeAlias = "SmallSteps[RecordedPlan | None]"
"""Fills in a symbolic plan: steps for memory that is missing, and one for the rest."""


@dataclass(frozen=True)
class Planning:
    """State: the plan is made in the background, see `engine.runtime.plans.background_plans`."""

    request: PlanRequest


@dataclass(frozen=True)
class CompilingKernels:
    """State: the plan is lowered, and recorded once its kernels are compiled.

    Attributes:
        loads: The compilation.
        before: The plan that it continues.
        on_compiled: Called then.
    """

    loads: tuple[PendingCompilation, ...]
    before: RecordedPlan | None
    on_compiled: Callable[[], None]


@dataclass(frozen=True)
class Failed:
    """State: the plan could not be made. Its run raises the error, and the cache has forgotten it."""

    error: BaseException


class Settled(Enum):
    """States of a recorded plan without pending work: ready or released."""

    READY = auto()
    """Programs and buffers are there."""
    RELEASED = auto()
    """They were there."""


PlanState: TypeAlias = "Planning | CompilingKernels | Failed | Settled"


@dataclass(eq=False)
class RecordedPlan:
    """A recorded plan: submissions in order, and the buffers that outlive them.

    `state` goes from `Planning` or `CompilingKernels` to `Settled.READY`, or to `Failed`. Plans that are
    there at once begin with `READY`. All end as `RELEASED`.

    It covers the model up to its end or to the first stop for data; `continuations` follow a stop. `users`
    counts the runs that execute it or whose outputs are in its buffers; at 0 it may be dropped.
    """

    lowered: LoweredModel
    state: PlanState = Settled.READY
    """What is left to do; nothing below exists before it is `READY`."""
    submissions: list[Submission] = field(default_factory=list)
    buffers: dict[tuple[Place, str], DeviceBuffer] = field(default_factory=dict)
    placement: dict[str, Place] = field(default_factory=dict)
    owned: list[DeviceBuffer] = field(default_factory=list)
    inputs: dict[str, list[tuple[Place, DeviceBuffer]]] = field(default_factory=dict)
    continuations: OrderedDict[object, RecordedPlan] = field(default_factory=OrderedDict)
    users: int = 0
    blocks: Mapping[int, int] | None = None
    """What `memory` returns, if that is known already."""
    fast_path: Any = None
    """The plan's `FastPath`, once one exists."""

    def locate(self, value: Value, backends: Mapping[Place, Backend]) -> Location:
        """The buffer of a tensor after the plan has run, on one of these backends."""
        if value.known is not None or value.size == 0:
            return Location(value)
        root = value.root.name
        place = self.placement[root]
        return Location(value, backends[place], self.buffers[place, root])

    def memory(self) -> Mapping[int, int]:
        """The memory of buffers, constants and temporaries: bytes by the number of each block.

        Plans may share blocks, which have the same number then.
        """
        if self.blocks is not None:
            return self.blocks
        found = dict(buffer.block() for buffer in self.owned)
        for submission in self.submissions:
            found.update(submission.program.temporaries())
        return found

    def become(self, made: RecordedPlan) -> None:
        """Take over the programs and buffers of another, unused plan; this plan is then ready."""
        self.lowered, self.submissions = made.lowered, made.submissions
        self.buffers, self.placement = made.buffers, made.placement
        self.owned, self.inputs = made.owned, made.inputs
        self.state = Settled.READY

    def fail(self, error: BaseException) -> None:
        """End planning with an error."""
        self.state = Failed(error)

    @property
    def is_pending(self) -> bool:
        """Whether the plan is still being made, or making it has failed."""
        return not isinstance(self.state, Settled)

    def release(self) -> None:
        """Free programs and buffers."""
        self.fast_path, self.state = None, Settled.RELEASED
        for submission in self.submissions:
            submission.program.release()
            submission.slicing = None
        for buffer in self.owned:
            buffer.release()
