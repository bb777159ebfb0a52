"""`SymbolicFastPath`: fills in a symbolic plan for new shapes, without the checks of a full schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np

from engine.backends.base import DeviceBuffer
from engine.backends.growable_memory import ALLOCATION_ERRORS, GrowableMemory
from engine.backends.plan_template import ArraySizes, FilledSizes, SizedInput
from engine.backends.program_runner import ProgramRunner
from engine.base import instrumentation
from engine.compiler.lower import Place
from engine.runtime.fast_path import FastPath
from engine.runtime.plans.recorded_plan import RecordedPlan, Submission
from engine.runtime.plans.session import Session
from engine.runtime.plans.shared_memory import LEAST_TOUCHED, SharedBuffer
from engine.runtime.plans.specialized_plan import SpecializedPlan
from engine.runtime.plans.symbolic_plans import SymbolicPlan
from engine.runtime.tensor import Tensor

_SEEN = 1 << 12
"""How many sizes are remembered that were scheduled once."""


class SymbolicFastPath:
    """Schedules inputs whose shapes differ from the previous ones, with one symbolic plan.

    It does what the session's way to a recorded plan does, for the plans to which most models come: one
    segment, without stops for data, whose sizes the shapes of the inputs decide alone. A native
    call says whether the plan takes the sizes, and makes the program; that is enqueued, and only then is
    written down what later schedules and the outputs need. Where anything is unusual it does nothing, and
    the session's way tells what is wrong.

    Sizes that come for the first time get the recorded plan, and the memory of the program, of those before
    them that came once; those that come back get a plan of their own.

    Args:
        session: The session.
        sized: The plan.
    """

    def __init__(self, session: Session, sized: SymbolicPlan) -> None:
        self.sized = sized
        self._session, self._plans = session, session.symbolic_plans
        made = sized._recorded
        assert made is not None
        assert made.native is not None
        self._made, self._native, self._segment = made, made.native, made.segments[0]
        self._place: Place = self._segment.place
        self._backend = session.backends[self._place]
        inputs = session.source.inputs
        self._names = tuple(item.name for item in inputs)
        self._count = len(inputs)
        self._in_place = [name not in sized.shown for name in self._names]
        self._dtypes = [item.dtype for item in inputs]
        self._ranks = [len(item.shape or ()) for item in inputs]
        self._all_arrays: list[type] = [np.ndarray] * len(inputs)
        # Which of the dimensions of all inputs, one after another, are the sizes. Each of the others is as
        # one of these, or as one of the constants that follow.
        dims: list[Any] = [dim for item in inputs for dim in item.shape or ()]
        keys: list[object] = []
        for item, rank in zip(inputs, self._ranks, strict=True):
            found = dict(session.symbolic_plans.sizes.keys(item.name, item.name, rank))
            keys += [found.get(axis) for axis in range(rank)]
        first = [k + len(keys) if key is None else keys.index(key) for k, key in enumerate(keys)]
        others = [k for k, at in enumerate(first) if at != k]
        self._sizes_of = _picker([k for k, at in enumerate(first) if at == k])
        self._others, self._as = _picker(others), _picker([first[k] for k in others])
        self._constants = tuple(dims)
        recorder = session.recorder
        self._places = [(self._place, spec.name) for spec, _ in self._segment.outer]
        self._memory = [
            recorder.shared_buffer(self._place, spec.name, spec.dtype, spec.role == "input")
            for spec, _ in self._segment.outer
        ]
        self._inputs = [at for at, (spec, _) in enumerate(self._segment.outer) if spec.role == "input"]
        order = [spec.name for spec, _ in self._segment.outer]
        self._read = [order.index(name) if name in order else None for name in self._names]
        # What takes arrays of other sizes in one native call.
        self._arrays: ArraySizes | None = None
        if isinstance(self._native, ArraySizes) and None not in self._read:
            # Which size each axis is, or what it has to be.
            numbers = {at: n for n, at in enumerate([k for k, at in enumerate(first) if at == k])}
            axes = [(numbers[at], 0) if at in numbers else (-1, dims[at - len(dims)] or 0) for at in first]
            shapes = [[axes.pop(0) for _ in range(rank)] for rank in self._ranks]
            items = [*map(SizedInput, self._dtypes, shapes, self._read)]  # type: ignore[arg-type]
            if self._native.reads(items, self._segment.zeros):
                self._arrays, self._items = self._native, items
        self._unbound = len(self._segment.unbound)
        # The path that is filled in again, and those in its place before, which may still be read.
        self._passing: FastPath | None = None
        self._passed: list[FastPath] = []
        # Shapes that were scheduled here once, and those that had a plan of their own before.
        self.seen = {*session.cache.shapes}
        # The memory of its inputs of which sizes have to be noted.
        self._noted: list[tuple[DeviceBuffer, SharedBuffer]] = []

    @property
    def is_next(self) -> bool:
        """Whether its plan is the most recently used one, which the session tries first."""
        return self.sized._recorded is self._made and self._plans.is_first(self.sized)

    @classmethod
    def of(cls, session: Session) -> SymbolicFastPath | None:
        """The fast path of the most recently used symbolic plan; None if the plan does not qualify."""
        sized, sizes = session.symbolic_plans.first, session.symbolic_plans.sizes
        made = None if sized is None else sized._recorded
        if sized is None or made is None or len(made.segments) != 1 or sized.lowered.trace.stop is not None:
            return None
        if session.host_inputs or session.is_random or not (sizes.has_known_ranks and sizes.is_possible):
            return None
        (segment,) = made.segments
        if not session.backends[segment.place].shares:
            return None
        # Inputs that nothing reads have buffers only where outputs are made of them.
        read = {spec.name for spec, _ in segment.outer if spec.role == "input"}
        names = {item.name for item, places in zip(session.source.inputs, made.places, strict=True) if places}
        if read != names or segment.tables or made.native is None:
            return None
        return cls(session, sized)

    def schedule(self, given: tuple[Any, ...], shapes: tuple[Any, ...]) -> FastPath | None:
        """Schedule inputs of these shapes; returns the fast path, or None if a full schedule is needed."""
        are_arrays = [*map(type, given)] == self._all_arrays
        if instrumentation.installed or not (are_arrays or self._are_on_cpu(given)):
            return None
        sizes = self._sizes(given, shapes)
        if sizes is None:
            return None
        if self._unbound != len(self._segment.unbound):
            # Constants were bound: arrays of sizes that need them can be taken, too.
            self._unbound = len(self._segment.unbound)
            if self._arrays is not None:
                self._arrays.reads(self._items, self._segment.zeros)
        if shapes in self.seen:
            key = self._key(shapes)
            if (known := self._session.cache.get(key)) is not None:
                found: FastPath | None = known.fast_path
                return found if found is not None and found.try_schedule(given) else None
            return self._scheduled_anew(given, shapes, sizes, are_arrays, key)
        path = self._passing
        if path is None or not (are_arrays or _are_there(given)) or not self._refilled(path, sizes):
            return self._scheduled_anew(given, shapes, sizes, are_arrays)
        return path if self._resized(path, given, shapes, False) else None

    def schedule_arrays(self, given: tuple[Any, ...], shapes: tuple[Any, ...]) -> FastPath | None:
        """As `schedule`, with one native call, for arrays of new shapes; None if that is not possible."""
        path, arrays = self._passing, self._arrays
        if path is None or arrays is None or instrumentation.installed:
            return None
        sized = self.sized
        if len(given) != self._count or sized._recorded is not self._made or not self._plans.is_first(sized):
            return None
        filled: Any = path.filled
        is_run = arrays.refill_from_arrays(filled, given)
        if is_run is None:
            return None
        path.recorded.lowered.sizes = filled.sizes  # type: ignore[attr-defined]
        return path if self._resized(path, given, shapes, is_run) else None

    def _resized(self, path: FastPath, given: tuple[Any, ...], shapes: tuple[Any, ...], is_run: bool) -> bool:
        """Resize a path to its program's new sizes and run it if it has not run; returns whether it ran."""
        self._see(shapes)
        path.resize(shapes)
        if not is_run and [*map(type, given)] == self._all_arrays:
            is_run = path.runner.run(given)
        # The threads of jobs are at work from here on.
        if self._passed:
            self._drop_passed()
        filled: Any = path.filled
        if self._noted or filled.near:
            self._note(self._noted, filled.near)
        return is_run or path.try_schedule(given)

    def _see(self, shapes: tuple[tuple[int, ...], ...]) -> None:
        """Remember shapes that were scheduled here."""
        if len(self.seen) == _SEEN:
            self.seen.clear()
        self.seen.add(shapes)

    def _refilled(self, path: FastPath, sizes: tuple[int, ...]) -> bool:
        """Refill a path, possibly the latest one, for other sizes; returns whether that succeeded."""
        filled: Any = path.filled
        lowered: Any = path.recorded.lowered
        if path.is_released or not self._native.refill(filled, sizes):
            return False
        if self._segment.unbound and self._segment.needed(filled.numbers):
            self._native.refill(filled, lowered.sizes)
            return False
        lowered.sizes = sizes
        return True

    def _scheduled_anew(
        self,
        given: tuple[Any, ...],
        shapes: tuple[tuple[int, ...], ...],
        sizes: tuple[int, ...],
        are_arrays: bool,
        key: object = None,
    ) -> FastPath | None:
        """Schedule with a new cached path; without a key, the path is refilled for later sizes."""
        self._drop_passed()
        filled = self._filled(sizes)
        if filled is None:
            return None
        self._see(shapes)
        targets = [None if at is None else filled.outer[at] for at in self._read]
        runner = self._backend.program_runner(filled.program, targets, self._in_place)
        is_taken = are_arrays and runner.run(given)
        # The threads of jobs are at work from here on.
        path = self._new_path(key, shapes, sizes, filled, runner)
        return path if is_taken or path.try_schedule(given) else None

    def keep(self, path: FastPath) -> None:
        """Stop refilling a path with other sizes, because other objects refer to it."""
        if path is self._passing:
            self._passing = path.filled = None
            self._session.cache.rename(path, self._key(path.shapes))

    def _are_on_cpu(self, given: tuple[Any, ...]) -> bool:
        """Whether inputs are arrays, and tensors on the CPU."""
        return len(given) == len(self._names) and all(
            type(item) is np.ndarray or (type(item) is Tensor and item.elements_on_cpu is not None)
            for item in given
        )

    def _sizes(self, given: tuple[Any, ...], shapes: tuple[Any, ...]) -> tuple[int, ...] | None:
        """The sizes of inputs of the right types and shapes, none of them empty; None for any others."""
        if [*map(len, shapes)] != self._ranks or [item.dtype for item in given] != self._dtypes:
            return None
        dims: tuple[int, ...] = sum(shapes, ())
        if 0 in dims or self._others(dims) != self._as(dims + self._constants):
            return None
        return self._sizes_of(dims)

    def _key(self, shapes: Sequence[tuple[int, ...]]) -> object:
        """The cache key of a plan for these shapes."""
        return self._session.key(dict(zip(self._names, shapes, strict=True)), {})

    def _filled(self, sizes: tuple[int, ...]) -> FilledSizes | None:
        """The program for some sizes; None if the plan does not take them, or has to be bound first."""
        try:
            filled = self._native.fill(sizes, self._memory)
        except ALLOCATION_ERRORS:
            return None
        if filled is not None and self._segment.unbound and self._segment.needed(filled.numbers):
            return None
        return filled

    def _new_path(
        self,
        key: object,
        shapes: tuple[tuple[int, ...], ...],
        sizes: tuple[int, ...],
        filled: FilledSizes,
        runner: ProgramRunner,
    ) -> FastPath:
        """A path, and its plan in the cache. Without a key, it will be filled in again for other sizes."""
        session = self._session
        lowered = SpecializedPlan(self._made.trace, filled.numbers, self.sized, sizes)
        recorded = RecordedPlan(lowered, blocks=filled.memory)
        recorded.submissions = [Submission(self._place, filled.program, partial(lowered.plan, 0))]
        recorded.placement = {name: place for place, name in self._places}
        recorded.buffers.update(zip(self._places, filled.outer, strict=True))
        recorded.owned = list(filled.outer)
        for at in self._inputs:
            place, name = self._places[at]
            recorded.inputs[name] = [(place, filled.outer[at])]
        noted = [
            (buffer, shared)
            for shared, buffer in zip(self._memory, filled.outer, strict=True)
            if shared.is_noted
        ]
        self._note(noted, filled.near)
        session.symbolic_plans.mark_served()
        recorded.fast_path = path = FastPath(
            session, recorded, self._names, shapes, self._dtypes, self._in_place, runner=runner
        )
        session.cache.keep(path if key is None else key, recorded)
        if key is not None:
            session.cache.keep_fast_path(key, recorded)
        else:
            if self._passing is not None:
                self._passed.append(self._passing)
            self._passing, path.filled = path, filled
            # What is smaller is neither allocated ahead nor given back.
            self._noted = [
                (buffer, shared) for buffer, shared in noted if shared.held_bytes() >= LEAST_TOUCHED
            ]
        return path

    def _note(
        self,
        noted: Iterable[tuple[DeviceBuffer, SharedBuffer]],
        near: Sequence[GrowableMemory[Any, Any]] = (),
    ) -> None:
        """Note how much memory inputs need; `near` is to be allocated ahead, too."""
        session = self._session
        for buffer, shared in noted:
            session.recorder.note(shared, buffer.elements)
        if session.recorder.near or near:
            session.background_plans.allocate_ahead(near)

    def _drop_passed(self) -> None:
        """Drop the paths that were filled in before, once nothing reads their outputs."""
        cache, passed, self._passed = self._session.cache, self._passed, []
        for path in passed:
            if path.recorded.users:
                self._passed.append(path)
            elif not path.is_released:
                cache.drop(cache.plans, path)


def _are_there(given: tuple[Any, ...]) -> bool:
    """Whether no job is still to write any of these arrays and tensors on the CPU."""
    found = [item.elements_on_cpu for item in given if type(item) is Tensor]
    return all(data is not None and data.fence is None for data in found)


def _picker(places: Sequence[int]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """A function that returns these entries of a tuple."""
    if len(places) > 1:
        return itemgetter(*places)
    begin = places[0] if places else 0
    return itemgetter(slice(begin, begin + len(places)))
