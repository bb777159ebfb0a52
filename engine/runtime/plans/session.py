"""Sessions: a model bound to its backends, with its plans, their recorded programs, buffers and constants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property, partial
from itertools import islice
from typing import Any

import numpy as np

from engine.backends.base import Backend, DeviceLimit, PendingCompilation, Progress
from engine.base import instrumentation
from engine.base.errors import OutOfMemoryError, ShapeError, UnsupportedLayerError
from engine.base.garbage_collection import collecting_rarely
from engine.base.generators import SmallSteps, finish, in_one_step
from engine.base.memory.out_of_memory import naming_out_of_memory
from engine.base.memory.pool import Pool
from engine.base.sliced_thread import SlicedThread
from engine.compiler.data_speculation import DataGuesses
from engine.compiler.lower import LoweredModel, Place, Planner
from engine.compiler.passes import applied
from engine.compiler.plan import AnyKernel, Packed
from engine.compiler.trace import EQUAL, InputShapes
from engine.compiler.walk import Elements
from engine.graph.model import Model
from engine.kernels.value import Value, leaves
from engine.runtime.pending_work import plans_in_background
from engine.runtime.plan_store.plans import plan_file
from engine.runtime.plans.background_plans import BackgroundPlans
from engine.runtime.plans.host_inputs import host_inputs
from engine.runtime.plans.plan_cache import PlanCache
from engine.runtime.plans.plan_requests import InputsRequest, PlanRequest
from engine.runtime.plans.prepared_plans import kernels_of_others, likely_symbolic_plan
from engine.runtime.plans.recorded_plan import CompilingKernels, Failed, Planning, RecordedPlan, Settled
from engine.runtime.plans.recording import Recorder
from engine.runtime.plans.stored_plans import StoredPlans
from engine.runtime.plans.symbolic_continuations import ContinuationRequest
from engine.runtime.plans.symbolic_plans import ModelPlans
from engine.runtime.plans.symbolic_values import digest

HOST_INPUT_LIMIT = 4096
"""Largest input, in elements, whose value may shape a plan (axes, sizes, pads: a handful of integers)."""


class Session:
    """Plans and memory of one model on one backend, with the CPU backend for layers that fall back."""

    @collecting_rarely()
    def __init__(self, model: Model, native: Backend, cpu: Backend | None, allow_fallback: bool) -> None:
        self.source = model
        self.allow_fallback = allow_fallback
        self.backends: dict[Place, Backend] = {"native": native}
        if cpu is not None:
            self.backends["cpu"] = cpu
        self.packed: dict[str, Packed] = {}
        stays = native.is_host
        self.pool = Pool(sum(array.nbytes for array in model.constants.values()) if stays else 0)
        self.file = plan_file(model, native)
        self.stored = None if self.file is None else self.file.read
        if self.stored is None:
            self.host_inputs = host_inputs(self.model, self.planner.tracer)
            self.is_random = self.planner.tracer.is_random
        else:
            self.host_inputs, self.is_random = self.stored.host_inputs, self.stored.is_random
        self.recorder = Recorder(model, self.backends, self.pool, self._lasting)
        self.cache = PlanCache()
        self.symbolic_plans = ModelPlans(self, model)
        self._outlook: list[LoweredModel] = []
        self.stored_plans = StoredPlans()
        self.background: SlicedThread[Any] | None = None
        """The thread that makes a plan, if one does: one at a time."""
        self.background_plans = BackgroundPlans(self)

    @cached_property
    def model(self) -> Model:
        """The model after the backend's passes."""
        model = self.source
        with naming_out_of_memory(f"preparing model '{model.name}'"):
            for step in self.backends["native"].passes:
                model = applied(step, model)
        return model

    @cached_property
    def planner(self) -> Planner:
        """The planner, created on first use: not needed if all plans are read from disk."""
        return Planner(self.model, self.backends["native"], self.backends.get("cpu"), self.packed, self.pool)

    @cached_property
    def output_names(self) -> Mapping[str | int | None, str]:
        """Maps an output's name or number, or None for the first output, to its name."""
        names = [item.name for item in self.source.outputs]
        return {name: name for name in names} | dict(enumerate(names)) | {None: names[0]}

    # Making plans

    def prepare(self, progress: Progress | None = None) -> int:
        """Compile all kernels that the model's dynamic dimensions can need; returns their number."""
        compiled, plans = self.prepare_plans(progress)
        for key, lowered in plans:
            self.cache.keep(key, self.record(lowered, None))
        with self.backends["native"].entered():
            for _, sized in self.symbolic_plans.unbound:
                sized.bind(self)
        return compiled

    @collecting_rarely()
    def prepare_plans(
        self, progress: Progress | None = None
    ) -> tuple[int, list[tuple[object, LoweredModel]]]:
        """The part of `prepare` that any thread may run: compiles kernels, returns the plans to record."""
        if (restored := self.stored_plans.restored(self, progress)) is not None:
            return restored
        compiled = 0
        plans: list[tuple[object, LoweredModel]] = []
        kernels: list[AnyKernel] = []
        # Other plans may be needed where elements decide.
        may_open = self.planner.tracer.is_dynamic and not self.host_inputs
        samples: list[Mapping[str, tuple[int, ...]]] = [*self.planner.tracer.representatives()]
        has_run = False
        for shapes in samples:
            opened = likely_symbolic_plan(self, shapes) if may_open else None
            is_open = opened is not None and opened.lowered.trace.stop is None
            lowered = opened.lowered if opened is not None and is_open else self._lowered_as_sampled(shapes)
            if lowered is None:
                continue
            if self._is_beyond_device(lowered):
                smallest = shapes if has_run else self.planner.tracer.smallest(shapes)
                if smallest not in samples:
                    samples.append(smallest)
                if has_run or smallest != shapes or not self.allow_fallback:
                    self.planner.tracer.refusal = lowered.fallbacks[0].reason
                    continue
            self.allowed(lowered)
            has_run = True
            compiled += self.compile(lowered, progress)
            kernels += lowered.kernels()
            if not is_open:
                self._outlook = self._outlook or [lowered]
                compiled += self._prepare_further(lowered, progress)
            if not self.planner.tracer.is_dynamic and lowered.trace.stop is None:
                self.stored_plans.store(self, kernels, self.key(shapes, {}), lowered)
                plans.append((self.key(shapes, {}), lowered))
            if lowered.fallbacks:
                self.file = None
        if has_run:
            self.planner.tracer.refusal = ""  # of other samples
        if self.planner.tracer.is_dynamic or self.stops:
            others = kernels_of_others(self)
            compiled += self.backends["native"].prepare(others, progress)
            self.stored_plans.store(self, [*kernels, *others])
        return compiled, plans

    def _likely(self) -> Iterator[LoweredModel]:
        """Plans for the model's input shapes, or for sample sizes of its dynamic dimensions.

        Sample sizes that the model does not accept are left out.
        """
        found = map(self._lowered_as_sampled, self.planner.tracer.representatives())
        return (lowered for lowered in found if lowered is not None)

    def _lowered_as_sampled(self, shapes: InputShapes) -> LoweredModel | None:
        """A plan for these input shapes; None if they are sample sizes that the model does not accept."""
        try:
            return self._lowered(shapes, {})
        except (ShapeError, OutOfMemoryError) as error:
            if not self.planner.tracer.is_dynamic:
                raise
            self.planner.tracer.refusal = str(error)
            return None

    def _is_beyond_device(self, lowered: LoweredModel) -> bool:
        """Whether steps fall back only because sample sizes are beyond the device's limits."""
        found = lowered.fallbacks
        is_limit = bool(found) and all(isinstance(fallback.reason, DeviceLimit) for fallback in found)
        return is_limit and self.planner.tracer.is_dynamic

    @property
    def outlook(self) -> list[LoweredModel]:
        """A likely plan up to the model's end, one entry per stop for data."""
        if not self._outlook:
            self._outlook = [*islice(self._likely(), 1)]
        return self._outlook

    @property
    def stops(self) -> bool:
        """Whether plans of this model wait for computed data."""
        return any(lowered.trace.stop is not None for lowered in self.outlook)

    @property
    def is_stopping(self) -> bool:
        """Whether the plans made so far stop for computed data."""
        return any(lowered.trace.stop is not None for lowered in self._outlook)

    @property
    def unprepared(self) -> str:
        """Why nothing was prepared when the session was created; '' if something was."""
        return "" if self._outlook or "planner" not in self.__dict__ else self.planner.tracer.refusal

    def _prepare_further(self, lowered: LoweredModel, progress: Progress | None) -> int:
        """Compile the plans that follow this plan's stops for data, with guessed data."""
        compiled = 0
        for condition in (True, False):
            guesses, going = DataGuesses(EQUAL[-1], condition), lowered
            try:
                while (stop := going.trace.stop) is not None and (answer := guesses.answer(stop)) is not None:
                    going = self.allowed(self.planner.resume(going.trace, answer, None))
                    compiled += self.compile(going, progress)
                    if condition and self._outlook[0] is lowered:
                        self._outlook.append(going)
            except (ShapeError, OutOfMemoryError):
                pass  # the model does not accept the guess
            if not guesses.conditions:
                break
        return compiled

    def compile(self, lowered: LoweredModel, progress: Progress | None = None) -> int:
        """Compile the kernels of a plan on its backends."""
        with instrumentation.spanning("compile", model=self.source) as attributes:
            attributes["compiled"] = compiled = sum(
                backend.prepare(kernels, progress)
                for place, backend in self.backends.items()
                if (kernels := lowered.kernels(place))
            )
        return compiled

    def lower(self, shapes: InputShapes, known: Elements) -> LoweredModel:
        """Plan the model up to its end or to its first stop for data."""
        return self.allowed(self._lowered(shapes, known))

    def _lowered(self, shapes: InputShapes, known: Elements) -> LoweredModel:
        """The plan of `lower`, with fallbacks that may not be allowed."""
        with naming_out_of_memory(f"a plan of model '{self.source.name}'"):
            return self.planner.lower(shapes, known)

    def allowed(self, lowered: LoweredModel) -> LoweredModel:
        """Return the plan; raise `UnsupportedLayerError` for fallbacks that are not allowed."""
        if lowered.fallbacks and ("cpu" not in self.backends or not self.allow_fallback):
            reasons = "; ".join(f"layer '{f.layer}' ({f.op_type}): {f.reason}" for f in lowered.fallbacks[:8])
            raise UnsupportedLayerError(
                f"{self.backends['native'].name} cannot run {len(lowered.fallbacks)} step(s) of model "
                f"'{self.source.name}': {reasons}. allow_fallback=True runs them on the CPU"
            )
        return lowered

    @staticmethod
    def key(shapes: InputShapes, known: Elements) -> object:
        """The cache key of a plan: input shapes, and the input elements on which it depends."""
        return tuple(shapes.items()), tuple((n, a.shape, digest(a)) for n, a in sorted(known.items()))

    def recorded_plan(self, shapes: InputShapes, known: Elements) -> RecordedPlan:
        """The recorded plan for these input shapes, created now if it is new."""
        key = self.key(shapes, known)
        recorded = self.cache.get(key)
        if recorded is None:
            recorded = self._plan_for(InputsRequest(self, shapes, known))
            self.cache.keep(key, recorded)
        return recorded

    def _plan_for(self, request: PlanRequest) -> RecordedPlan:
        """A plan that serves a request: filled in, made now, or, within a frame, made in the background."""
        in_background, recorded = plans_in_background(), None
        if request.plans.ready:
            with instrumentation.spanning("fill", model=self.source):
                steps = request.filling(only_used=in_background or self.is_planning)
                recorded = in_one_step(steps) if in_background else finish(steps)
        if recorded is None and in_background:
            return self.background_plans.begin(request)
        if recorded is None:
            with instrumentation.spanning("plan", model=self.source):
                self.finish_background()
                recorded = request.cached() or self._new_plan(request)
        return recorded

    @collecting_rarely()
    def _new_plan(self, request: PlanRequest) -> RecordedPlan:
        if (found := request.filled_now()) is not None:
            return found
        lowered = request.static_plan()
        loads = self.compiling(lowered)
        on_compiled = partial(request.store_static, lowered)
        recorded = RecordedPlan(lowered, CompilingKernels(loads, request.before, on_compiled))
        if not loads:
            self.is_ready(recorded, wait=False)
        return recorded

    @property
    def may_plan_for_all(self) -> bool:
        """Whether a symbolic plan may be made: not for the first plan used, unless it is one."""
        if self.symbolic_plans.waiting or self.symbolic_plans.ready:
            return True
        return self.file is None or self.stored is None or bool(self.stored.plans) or self.stored.stops

    def begin_plan(self, shapes: InputShapes, known: Elements) -> RecordedPlan:
        """A plan for these input shapes that is made in the background from now on."""
        recorded = self.background_plans.begin(InputsRequest(self, shapes, known))
        self.cache.keep(self.key(shapes, known), recorded)
        return recorded

    def compiling(self, lowered: LoweredModel) -> tuple[PendingCompilation, ...]:
        """Start compiling a plan's missing kernels in the background, and return the compilation."""
        loads = (
            backend.prepare_async(kernels)
            for place, backend in self.backends.items()
            if (kernels := lowered.kernels(place))
        )
        return tuple(load for load in loads if load is not None)

    def is_ready(self, recorded: RecordedPlan, wait: bool) -> bool:
        """Whether a plan is recorded; it is recorded here once its kernels are compiled. `wait` blocks.

        Raises what went wrong while it was planned.
        """
        if isinstance(recorded.state, Planning):
            self.background_plans.work_on(recorded, wait)
        state = recorded.state
        if isinstance(state, Failed):
            raise state.error
        if isinstance(state, CompilingKernels) and (wait or all(load.done() for load in state.loads)):
            self._record_compiled(recorded, state)
        return not recorded.is_pending

    def _record_compiled(self, recorded: RecordedPlan, state: CompilingKernels) -> None:
        for load in state.loads:
            load.result()
        self.compile(recorded.lowered)
        state.on_compiled()
        try:
            with self.backends["native"].entered():
                finish(self._recording(recorded, state.before))
        except BaseException as error:
            # What was recorded is released, and its constants are used up.
            self.cache.forget(recorded)
            recorded.fail(error)
            raise
        recorded.state = Settled.READY
        self.cache.measure(recorded)

    @property
    def is_planning(self) -> bool:
        """Whether a thread is making a plan."""
        return self.background is not None and not self.background.is_done

    def finish_background(self) -> None:
        """Wait for the thread that is making a plan: only one does at a time."""
        if self.background is not None:
            self.background.wait()

    def continuation(
        self, recorded: RecordedPlan, known: Elements, results: Sequence[Any] | None = None
    ) -> RecordedPlan:
        """The plan that follows one which stopped for data, now that the data is known.

        Where it stopped for a NumPy function, `results` are what that returned; their shapes decide.
        """
        key: object = self.key({}, known) if results is None else tuple(map(_signature, results))
        if (following := self.cache.continuation(recorded, key)) is not None:
            return following
        following = self._plan_for(ContinuationRequest(self, recorded, known, results))
        self.cache.keep_continuation(recorded, key, following)
        return following

    def resumed(self, lowered: LoweredModel, known: Elements, results: Sequence[Any] | None) -> LoweredModel:
        """Continue planning after a stop for data; see `continuation`."""
        with naming_out_of_memory(f"a plan of model '{self.source.name}'"):
            return self.allowed(self.planner.resume(lowered.trace, known, results))

    def record(self, lowered: LoweredModel, before: RecordedPlan | None) -> RecordedPlan:
        """Buffers and programs for a plan; tensors of the plan before keep their buffers."""
        with self.backends["native"].entered():
            return finish(self.recording(lowered, before))

    def recording(self, lowered: LoweredModel, before: RecordedPlan | None) -> SmallSteps[RecordedPlan]:
        """`record` in small steps, between which the caller may do other work."""
        recorded = RecordedPlan(lowered)
        yield from self._recording(recorded, before)
        return recorded

    def _recording(self, recorded: RecordedPlan, before: RecordedPlan | None) -> SmallSteps[None]:
        trace = recorded.lowered.trace
        kept = {v.root.name for v in trace.kept}
        if trace.stop is not None:
            kept.add(self.planner.tracer.count.name)
        if before is not None:
            inputs: Sequence[Value] = trace.received
        else:
            inputs = [
                *(v for item in self.source.inputs for v in leaves(trace.values[item.name])),
                *self.extra_inputs(),
            ]
        yield from self.recorder.recording(recorded, before, inputs, kept)

    def extra_inputs(self) -> Sequence[Value]:
        """Inputs in addition to the model's: the number of schedules, for random operators."""
        return [self.planner.tracer.count] if self.is_random else []

    def _lasting(self) -> AbstractSet[str]:
        """Names of the model's own constants, in the plans made so far."""
        if "planner" in self.__dict__ or self.stored is None:
            return self.planner.tracer.constant_names
        return self.stored.lasting

    def release(self) -> None:
        """Free everything; with background planning, only after the plan in progress has finished."""
        if self.is_planning and plans_in_background():
            self.background_plans.stop_later(self._free)
            return
        self.background_plans.stop()
        self.finish_background()
        self._free()

    def _free(self) -> None:
        self.cache.release()
        self.symbolic_plans.release()
        self.recorder.release()
        for backend in self.backends.values():
            backend.dispose()


def _signature(result: Any) -> object:
    """The cache key of a NumPy function's result: shapes, types, and string elements."""
    if isinstance(result, list):
        return tuple(map(_signature, result))
    if result is None:
        return None
    array = np.asarray(result)
    return array.shape, array.dtype.name, digest(array) if array.dtype == object else None
