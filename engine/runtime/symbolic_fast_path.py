"""`SymbolicFastPath`: fills in a plan for all sizes for new shapes, without the checks of a schedule."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from engine.backends.growable import REFUSED
from engine.backends.plan_template import FilledSizes
from engine.base import instrumentation
from engine.compiler.lower import Place
from engine.runtime.fast_path import FastPath
from engine.runtime.plans.plan_requests import InputsRequest
from engine.runtime.plans.recorded_plan import RecordedPlan, Submission
from engine.runtime.plans.session import Session
from engine.runtime.plans.specialized_plan import SpecializedPlan
from engine.runtime.plans.symbolic_plans import SymbolicPlan
from engine.runtime.tensor import Tensor


class SymbolicFastPath:
    """Schedules inputs of other shapes than those before, by one plan for all sizes.

    It does what the session's way to a recorded plan does, for the plans to which most models come: one
    segment on the CPU, without stops for data, whose sizes the shapes of the inputs decide alone. A native
    call says whether the plan takes the sizes, and makes the program; that is enqueued, and only then is
    written down what later schedules and the outputs need. Where anything is unusual it does nothing, and
    the session's way tells what is wrong.

    Args:
        session: The session.
        sized: The plan.
    """

    def __init__(self, session: Session, sized: SymbolicPlan) -> None:
        self.sized = sized
        self._session = session
        made = sized._recorded
        assert made is not None
        assert made.native is not None
        self._made, self._native, self._segment = made, made.native, made.segments[0]
        self._place: Place = self._segment.place
        self._backend = session.backends[self._place]
        self._names = tuple(item.name for item in session.source.inputs)
        self._in_place = [name not in sized.shown for name in self._names]
        # Of each input: its type, its rank, and its dimensions, those that are open as `~number` of the size.
        self._inputs: list[tuple[np.dtype, int, list[int]]] = []
        # Where the sizes are found: the input and its axis.
        self._found: list[tuple[int, int]] = []
        known: dict[object, int] = {}
        for number, item in enumerate(session.source.inputs):
            assert item.shape is not None
            rank = len(item.shape)
            dims = [dim if isinstance(dim, int) else 0 for dim in item.shape]
            for axis, key in session.symbolic_plans.sizes.keys(item.name, item.name, rank):
                if key not in known:
                    known[key] = len(self._found)
                    self._found.append((number, axis))
                dims[axis] = ~known[key]
            self._inputs.append((item.dtype, rank, dims))
        recorder = session.recorder
        self._outer = [
            (spec.name, recorder.shared_buffer(self._place, spec.name, spec.dtype, spec.role == "input"))
            for spec, _ in self._segment.outer
        ]
        self._memory = [shared for _, shared in self._outer]
        order = [spec.name for spec, _ in self._segment.outer]
        self._read = [order.index(name) if name in order else None for name in self._names]

    @property
    def is_next(self) -> bool:
        """Whether its plan is the most recently used one, which the session tries first."""
        ready = self._session.symbolic_plans.ready
        return bool(ready) and ready[0] is self.sized and self.sized._recorded is self._made

    @classmethod
    def of(cls, session: Session) -> SymbolicFastPath | None:
        """Return that of the plan that the session tries first; None if the plan is not of such a kind."""
        ready, sizes = session.symbolic_plans.ready, session.symbolic_plans.sizes
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
        if read != names or segment.tables or made.native is None:
            return None
        return cls(session, sized)

    def schedule(self, given: tuple[Any, ...]) -> FastPath | None:
        """Schedule inputs; returns the fast path of their sizes. None where the usual way has to be taken."""
        session = self._session
        shapes = None if instrumentation.installed else self._shapes(given)
        if shapes is None:
            return None
        sizes = tuple([shapes[number][axis] for number, axis in self._found])
        for shape, (_, _, dims) in zip(shapes, self._inputs, strict=True):
            if shape != tuple([dim if dim >= 0 else sizes[~dim] for dim in dims]) or 0 in shape:
                return None
        key = (tuple(zip(self._names, shapes, strict=True)), ())  # as `Session.key`
        if (known := session.cache.get(key)) is not None:
            found: FastPath | None = known.fast_path
            return found if found is not None and found.take(given) else None
        try:
            filled = self._native.fill(sizes, self._memory)
        except REFUSED:
            return None
        if filled is None:
            return None
        if self._segment.unbound and self._segment.needed(filled.numbers):
            return None
        targets = [None if at is None else filled.outer[at] for at in self._read]
        replay = self._backend.program_replay(filled.program, targets, shapes, self._in_place)
        is_taken = Tensor not in map(type, given) and replay.run(given)
        # The threads of jobs are at work from here on.
        recorded = self._recorded(key[0], sizes, filled)
        inputs = [(shape, dtype) for shape, (dtype, _, _) in zip(shapes, self._inputs, strict=True)]
        recorded.fast_path = path = FastPath(
            session, recorded, self._names, inputs, self._in_place, replay=replay
        )
        session.cache.keep(key, recorded)
        session.cache.keep_fast_path(key, recorded)
        return path if is_taken or path.take(given) else None

    def _shapes(self, given: tuple[Any, ...]) -> list[tuple[int, ...]] | None:
        """The shapes of inputs of the right types and ranks; None for any others."""
        found = []
        if len(given) != len(self._inputs):
            return None
        for item, (dtype, rank, _) in zip(given, self._inputs, strict=True):
            array = item
            if type(item) is not np.ndarray:
                data = item.elements_on_cpu if type(item) is Tensor else None
                if data is None:
                    return None
                array = data.elements
            shape = array.shape
            if array.dtype != dtype or len(shape) != rank:
                return None
            found.append(shape)
        return found

    def _recorded(
        self, shapes: tuple[tuple[str, Any], ...], sizes: tuple[int, ...], filled: FilledSizes
    ) -> RecordedPlan:
        """The recorded plan of some sizes, of which the program is made."""
        session, made, place = self._session, self._made, self._place
        recorded = RecordedPlan(
            SpecializedPlan(
                lambda: made.trace(filled.numbers), self.sized, sizes,
                InputsRequest(session, dict(shapes), {}),
            ),
            submissions=[Submission(place, filled.program, partial(self.sized.plan_of, sizes, 0))],
            blocks=filled.memory,
        )  # fmt: skip
        for (name, shared), buffer in zip(self._outer, filled.outer, strict=True):
            session.recorder.shared(recorded, place, name, shared, buffer)
            recorded.placement[name] = place
            if shared.is_noted:
                recorded.inputs[name] = [(place, buffer)]
        session.symbolic_plans.mark_served()
        session.background_plans.allocate_ahead()
        return recorded
