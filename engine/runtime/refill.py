"""`Refill`: fills in a plan for all sizes for arrays of other shapes, without the checks of a schedule."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from engine.backends.base import DeviceBuffer
from engine.backends.plan_template import PlanTemplate
from engine.base import instrumentation
from engine.base.errors import OutOfMemoryError
from engine.compiler.lower import Place
from engine.runtime.fast_path import FastPath
from engine.runtime.plans.open_plans import SizedPlan
from engine.runtime.plans.recorded_plan import RecordedPlan, Submission
from engine.runtime.plans.session import Session
from engine.runtime.plans.shared_memory import SharedBuffer
from engine.runtime.plans.sized_lowered import SizedLowered
from engine.runtime.tensor import Tensor

_Outer = tuple[str, SharedBuffer, bool, int]
"""An input or output: its name, its memory, whether it is an input, and the position of its size."""


class Refill:
    """Makes fast paths of one plan for all sizes, whose inputs have other shapes than those of a first one.

    It does what the session's way to a recorded plan does, for the plans to which most models come: one
    segment on the CPU, without stops for data, whose sizes the shapes of the inputs decide alone. Where
    anything is unusual it gives none, and that way tells what is wrong.

    Args:
        session: The session.
        sized: The plan.
    """

    def __init__(self, session: Session, sized: SizedPlan) -> None:
        self.sized = sized
        self._session = session
        made = sized._recorded
        assert made is not None
        self._made, self._segment = made, made.segments[0]
        self._place: Place = self._segment.place
        self._backend = session.backends[self._place]
        self._names = tuple(item.name for item in session.source.inputs)
        self._in_place = [name not in sized.shown for name in self._names]
        # Of each input: its type, its fixed dimensions, and which of the sizes its open ones are.
        self._inputs: list[tuple[np.dtype, int, list[tuple[int, int]], list[tuple[int, int]]]] = []
        # Where the sizes are found: the input and its axis.
        self._found: list[tuple[int, int]] = []
        known: dict[object, int] = {}
        for number, item in enumerate(session.source.inputs):
            assert item.shape is not None
            rank, opened = len(item.shape), []
            for axis, key in session.open_plans.sizes.keys(item.name, item.name, rank):
                if key not in known:
                    known[key] = len(self._found)
                    self._found.append((number, axis))
                opened.append((axis, known[key]))
            fixed = [(axis, dim) for axis, dim in enumerate(item.shape) if isinstance(dim, int)]
            self._inputs.append((item.dtype, rank, fixed, opened))
        recorder = session.recorder
        self._outer: list[_Outer] = [
            (spec.name, recorder.shared_buffer(self._place, spec.name, spec.dtype, is_input), is_input, at)
            for spec, at in self._segment.outer
            for is_input in (spec.role == "input",)
        ]

    @property
    def is_next(self) -> bool:
        """Whether its plan is the first that the session tries, as it was used last."""
        ready = self._session.open_plans.ready
        return bool(ready) and ready[0] is self.sized and self.sized._recorded is self._made

    @classmethod
    def of(cls, session: Session) -> Refill | None:
        """That of the plan which the session tries first; None if it takes the usual way."""
        ready, sizes = session.open_plans.ready, session.open_plans.sizes
        sized = ready[0] if ready else None
        made = None if sized is None else sized._recorded
        if sized is None or made is None or len(made.segments) != 1 or sized.lowered.trace.stop is not None:
            return None
        if session.host_inputs or session.is_random or not (sizes.has_known_ranks and sizes.is_possible):
            return None
        (segment,) = made.segments
        backend = session.backends[segment.place]
        if not (backend.is_host and backend.shares):
            return None
        # Inputs that nothing reads have buffers only where outputs are made of them.
        read = {spec.name for spec, _ in segment.outer if spec.role == "input"}
        names = {item.name for item, places in zip(session.source.inputs, made.places, strict=True) if places}
        if read != names or isinstance(segment.template, PlanTemplate):
            return None
        return cls(session, sized)

    def fast_path(self, given: Sequence[Any]) -> FastPath | None:
        """That of the sizes of some inputs, whose plan is kept; None where the usual way has to be taken."""
        session, made = self._session, self._made
        shapes = None if instrumentation.installed else self._shapes(given)
        if shapes is None:
            return None
        sizes = tuple([shapes[number][axis] for number, axis in self._found])
        for shape, (_, _, _, opened) in zip(shapes, self._inputs, strict=True):
            for axis, number in opened:
                if shape[axis] != sizes[number]:
                    return None
        named = dict(zip(self._names, shapes, strict=True))
        key = session.key(named, {})
        if (known := session.cache.get(key)) is not None:
            found: FastPath | None = known.fast_path
            return found
        numbers = made.program(*sizes)
        if numbers is None or self._segment.needed(numbers):
            return None
        again = session.open_plans.again(named, {})
        recorded = RecordedPlan(SizedLowered(partial(made.trace, numbers), self.sized, sizes, again))
        try:
            self._fill(recorded, numbers, sizes)
        except (MemoryError, OutOfMemoryError, OverflowError):
            recorded.release()
            return None
        session.open_plans.was_served()
        session.background_plans.allocate_ahead()
        session.cache.keep(key, recorded)
        inputs = [(shape, dtype) for shape, (dtype, *_) in zip(shapes, self._inputs, strict=True)]
        recorded.fast_path = path = FastPath(session, recorded, self._names, inputs, self._in_place)
        session.cache.keep_fast_path(key, recorded)
        return path

    def _shapes(self, given: Sequence[Any]) -> list[tuple[int, ...]] | None:
        """The shapes of inputs of the right types and fixed dimensions; None for any others."""
        found = []
        if len(given) != len(self._inputs):
            return None
        for item, (dtype, rank, fixed, _) in zip(given, self._inputs, strict=True):
            array = item
            if type(item) is not np.ndarray:
                data = item.elements_on_cpu if type(item) is Tensor else None
                if data is None:
                    return None
                array = data.elements
            shape = array.shape
            if array.dtype != dtype or len(shape) != rank or not array.size:
                return None
            for axis, dim in fixed:
                if shape[axis] != dim:
                    return None
            found.append(shape)
        return found

    def _fill(self, recorded: RecordedPlan, numbers: Sequence[Any], sizes: tuple[int, ...]) -> None:
        """Buffers and the program of these sizes."""
        recorder, place = self._session.recorder, self._place
        bound: dict[str, DeviceBuffer] = {}
        for name, shared, is_input, at in self._outer:
            buffer = recorder.share(recorded, place, name, shared, numbers[at])
            bound[name] = buffer
            recorded.placement[name] = place
            if is_input:
                recorded.inputs[name] = [(place, buffer)]
        segment = self._segment
        segment.bind_tables(self._session, recorded, numbers, bound)
        program = segment.template.fill(numbers[segment.numbers], bound)
        make_plan = partial(self.sized.plan_of, sizes, 0)
        recorded.submissions.append(Submission(place, program, make_plan))
