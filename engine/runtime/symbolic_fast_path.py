"""`SymbolicFastPath`: fills in a plan for all sizes for new shapes, without the checks of a schedule."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from engine.backends.growable import REFUSED
from engine.backends.plan_template import FilledSizes
from engine.backends.program_replay import ProgramReplay
from engine.base import instrumentation
from engine.compiler.lower import Place
from engine.runtime.fast_path import FastPath
from engine.runtime.plans.recorded_plan import RecordedPlan, Submission
from engine.runtime.plans.session import Session
from engine.runtime.plans.specialized_plan import SpecializedPlan
from engine.runtime.plans.symbolic_plans import SymbolicPlan
from engine.runtime.tensor import Tensor

_PASSING = 2
"""How many paths are filled in again: one more than that whose outputs may still be read."""

_SEEN = 1 << 12
"""How many sizes are remembered that were scheduled once."""


class SymbolicFastPath:
    """Schedules inputs of other shapes than those before, by one plan for all sizes.

    It does what the session's way to a recorded plan does, for the plans to which most models come: one
    segment, without stops for data, whose sizes the shapes of the inputs decide alone. A native
    call says whether the plan takes the sizes, and makes the program; that is enqueued, and only then is
    written down what later schedules and the outputs need. Where anything is unusual it does nothing, and
    the session's way tells what is wrong.

    Sizes that come for the first time get the recorded plan, and the memory of the program, of others that
    came once; those that come back get a plan of their own.

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
        self._dtypes = [item.dtype for item in session.source.inputs]
        self._ranks = [len(item.shape or ()) for item in session.source.inputs]
        # Where the sizes are found: the input and its axis. Likewise dimensions that are as one of the sizes,
        # with its number, and those that are fixed.
        self._found: list[tuple[int, int]] = []
        self._equal: list[tuple[int, int, int]] = []
        self._fixed: list[tuple[int, int, int]] = []
        known: dict[object, int] = {}
        for number, item in enumerate(session.source.inputs):
            assert item.shape is not None
            keys = dict(session.symbolic_plans.sizes.keys(item.name, item.name, len(item.shape)))
            for axis, dim in enumerate(item.shape):
                if axis not in keys:
                    assert isinstance(dim, int)
                    self._fixed.append((number, axis, dim))
                elif keys[axis] in known:
                    self._equal.append((number, axis, known[keys[axis]]))
                else:
                    known[keys[axis]] = len(self._found)
                    self._found.append((number, axis))
        recorder = session.recorder
        self._places = [(self._place, spec.name) for spec, _ in self._segment.outer]
        self._memory = [
            recorder.shared_buffer(self._place, spec.name, spec.dtype, spec.role == "input")
            for spec, _ in self._segment.outer
        ]
        self._inputs = [at for at, (spec, _) in enumerate(self._segment.outer) if spec.role == "input"]
        self._noted = [(at, shared) for at, shared in enumerate(self._memory) if shared.is_noted]
        order = [spec.name for spec, _ in self._segment.outer]
        self._read = [order.index(name) if name in order else None for name in self._names]
        # The paths that are filled in again, and the sizes that they had.
        self._passing: list[FastPath] = []
        self._seen: set[tuple[int, ...]] = set()

    @property
    def is_next(self) -> bool:
        """Whether its plan is the most recently used one, which the session tries first."""
        return self.sized._recorded is self._made and self._session.symbolic_plans.is_first(self.sized)

    @classmethod
    def of(cls, session: Session) -> SymbolicFastPath | None:
        """Return that of the plan that the session tries first; None if the plan is not of such a kind."""
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
        """Schedule inputs of some shapes; returns the fast path. None where the usual way has to be taken."""
        sizes = None if instrumentation.installed else self._sizes(given, shapes)
        if sizes is None:
            return None
        session, key, path = self._session, None, None
        if sizes in self._seen:
            key = self._key(shapes)
            if (known := session.cache.get(key)) is not None:
                found: FastPath | None = known.fast_path
                return found if found is not None and found.take(given) else None
        else:
            path = self._unused()
        filled = self._filled(sizes, None if path is None else path.filled)
        if path is not None and (filled is None or filled.program is not path.program):
            session.cache.drop(session.cache.plans, path)
            path = None
        if filled is None:
            return None
        if path is None:
            targets = [None if at is None else filled.outer[at] for at in self._read]
            replay = self._backend.program_replay(filled.program, targets, shapes, self._in_place)
        else:
            session.cache.forget_fast_path(path)
            path.resize(shapes)
            replay = path.replay
        is_taken = Tensor not in map(type, given) and replay.run(given)
        # The threads of jobs are at work from here on.
        if path is None:
            path = self._new_path(key, shapes, sizes, filled, replay)
        else:
            path.recorded.resize(sizes)
            self._note(filled)
        if key is None:
            self._passing.append(path)
            session.cache.keep_fast_path(path, path.recorded)
            path.filled = filled
            if len(self._seen) == _SEEN:
                self._seen.clear()
            self._seen.add(sizes)
        return path if is_taken or path.take(given) else None

    def keep(self, path: FastPath) -> None:
        """Let a path have its sizes for good, as others refer to it."""
        if path in self._passing:
            self._passing.remove(path)
            self._session.cache.rename(path, self._key(path.shapes))

    def _sizes(self, given: tuple[Any, ...], shapes: tuple[Any, ...]) -> tuple[int, ...] | None:
        """The sizes of inputs of the right types and shapes, none of them empty; None for any others."""
        if len(shapes) != len(self._ranks):
            return None
        for item, shape, dtype, rank in zip(given, shapes, self._dtypes, self._ranks, strict=True):
            if type(item) is not np.ndarray and (type(item) is not Tensor or item.elements_on_cpu is None):
                return None
            if item.dtype != dtype or len(shape) != rank or 0 in shape:
                return None
        for number, axis, dim in self._fixed:
            if shapes[number][axis] != dim:
                return None
        sizes = tuple([shapes[number][axis] for number, axis in self._found])
        for number, axis, which in self._equal:
            if shapes[number][axis] != sizes[which]:
                return None
        return sizes

    def _key(self, shapes: Sequence[tuple[int, ...]]) -> object:
        """That of a plan for these shapes in the cache."""
        return self._session.key(dict(zip(self._names, shapes, strict=True)), {})

    def _unused(self) -> FastPath | None:
        """Take out the path to fill in: of sizes scheduled once, not last. None if another may be made."""
        if len(self._passing) < _PASSING:
            return None
        path = self._passing.pop(1 if self._passing[0].recorded.users else 0)
        return None if path.is_released else path

    def _filled(self, sizes: tuple[int, ...], before: FilledSizes | None) -> FilledSizes | None:
        """The program for some sizes; None if the plan does not take them, or has to be bound first."""
        try:
            filled = self._native.fill(sizes, self._memory, before)
        except REFUSED:
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
        replay: ProgramReplay,
    ) -> FastPath:
        """A path, and its plan in the cache. Without a key, they are filled in again for other sizes."""
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
        self._note(filled)
        recorded.fast_path = path = FastPath(
            session, recorded, self._names, shapes, self._dtypes, self._in_place, replay=replay
        )
        session.cache.keep(path if key is None else key, recorded)
        if key is not None:
            session.cache.keep_fast_path(key, recorded)
        return path

    def _note(self, filled: FilledSizes) -> None:
        """Note that the plan took some sizes, and how much memory inputs need."""
        session = self._session
        for at, shared in self._noted:
            session.recorder.note(shared, filled.outer[at].elements)
        session.symbolic_plans.mark_served()
        if session.recorder.near or filled.near:
            session.background_plans.allocate_ahead(filled.near)
