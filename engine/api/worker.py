"""`Worker`: a model bound to a backend."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Mapping, Sequence
from functools import partial
from threading import get_ident
from typing import Any

import numpy as np

from engine.api.asset import ModelAsset, ModelLoader, ModelSource
from engine.api.plan_report import PlanReport, report_on
from engine.backends.base import BackendType, Precision, Progress
from engine.backends.select import (
    DeviceChoice,
    create_backend,
    create_backends,
    load_backends,
    may_use_opengl,
)
from engine.backends.tensor_data import changes
from engine.base import instrumentation
from engine.base.errors import DeviceError, DisposedError, InputError
from engine.base.lifetime import Disposable
from engine.base.sliced_thread import SlicedThread
from engine.base.spelling import answers_spelling
from engine.compiler.lower import LoweredModel
from engine.compiler.trace import InputShapes
from engine.device.gl.device import GLDevice
from engine.device.jobs.system import JobHandle, JobSystem
from engine.graph.model import Model
from engine.runtime.budget import Budget
from engine.runtime.cost_model import StepCosts
from engine.runtime.executor import Executor
from engine.runtime.inputs import InputValue, check_kinds
from engine.runtime.loading.driver_warm_up import warm_up_driver
from engine.runtime.loading.handle import Loading, Steps
from engine.runtime.loading.workers import COMPILING, READING, Shapes, session_steps, shapes_of, warm_up_steps
from engine.runtime.memory_report import WorkerMemory, memory_of
from engine.runtime.outputs import with_outputs
from engine.runtime.plans.recorded_plan import CompilingKernels, Failed, Planning
from engine.runtime.plans.session import Session
from engine.runtime.sliced_schedule import Schedule


@answers_spelling
class Worker(Executor):
    """Runs a model: `schedule` enqueues and returns, outputs are tensors that arrive later.

    Inherited from `engine.runtime.executor.Executor`: `schedule`, `pump`, `peek_output` and `copy_output`.

    One worker runs its schedules in order; several workers run independently. All calls are made on the
    thread that made the worker (with OpenGL, the thread of its context), on others they raise `ThreadError`;
    without OpenGL a worker whose thread has ended belongs to the one that uses it next.
    """

    def __init__(
        self,
        model: Model | ModelAsset,
        backend_type: BackendType = BackendType.CPU,
        *,
        outputs: Sequence[str] | None = None,
        device: DeviceChoice = None,
        allow_fallback: bool = True,
        debug: bool = False,
        jobs: JobSystem | None = None,
        precision: Precision = "float32",
        deterministic: bool = False,
        slice_ms: float = 0.5,
        progress: Progress | None = None,
    ) -> None:
        """Bind a model to a backend and compile its kernels.

        Args:
            model: what `ModelLoader.load` returned, or an asset.
            backend_type: where to run.
            outputs: names of what to compute; by default the model's outputs. Any value that a layer yields
                can be asked for (`gameglue inspect MODEL --layers` lists them). Layers that none of it needs
                are left out.
            device: for the GPU types: a `GLDevice` or `CLDevice`, "gl" or "opencl"; by default the moderngl
                context that is current on this thread, else a private one.
            allow_fallback: whether layers that the backend lacks may run on the CPU.
            debug: whether every `schedule` also checks that computed integers fit a GPU's 32 bits. Slow.
            jobs: job threads of the CPU backend; by default those that all workers share.
            precision: how the CPU backend multiplies: "float32", or "bf16" or "int8" where the processor has
                instructions for it. Products and convolutions with known weights are rounded to that (sums
                are not), where it saves time; all else stays float32.
            deterministic: whether the same inputs give the same bits however many job threads there are, for
                replays and lockstep between machines whose processors are alike. On a GPU they always do.
            slice_ms: how long one slice of `schedule_iterable` may keep the device busy, in milliseconds.
            progress: called with (kernels ready, kernels wanted) while they compile.

        Raises:
            DeviceError: The device is missing, or the processor cannot compute in the precision.
            UnsupportedLayerError: A layer cannot run.
        """
        self._disposed = True  # until the session exists, there is nothing to dispose
        super().__init__()
        if isinstance(model, ModelAsset):
            model = ModelLoader.load(model)
        if not isinstance(model, Model):
            raise InputError(
                f"a Worker takes a Model or ModelAsset, not {type(model).__name__}; use ModelLoader.load"
            )
        if outputs is not None:
            model = with_outputs(model, outputs)
        check_kinds(model)
        native, fallback = create_backends(backend_type, device, jobs, precision, deterministic)
        self._attach_session(Session(model, native, fallback, allow_fallback), backend_type, debug, slice_ms)
        try:
            with (
                native.entered(),
                instrumentation.spanning("prepare", worker=self, model=model) as attributes,
            ):
                attributes["compiled"] = self._session.prepare(progress)
                self._prepare_symbolic_path()
        except BaseException:
            self.dispose()
            raise

    @classmethod
    def load_async(
        cls,
        model: ModelSource | Model | ModelAsset,
        backend_type: BackendType = BackendType.CPU,
        *,
        shapes: Shapes | Sequence[Shapes] | None = None,
        outputs: Sequence[str] | None = None,
        device: DeviceChoice = None,
        allow_fallback: bool = True,
        debug: bool = False,
        jobs: JobSystem | None = None,
        precision: Precision = "float32",
        deterministic: bool = False,
        slice_ms: float = 0.5,
    ) -> Loading[Worker]:
        """Load a worker in the background. Await the handle, or poll `is_done()` and take `result()`.

        Args:
            model: A model, an asset, bytes or a path.
            backend_type: As in the constructor.
            shapes: Sizes or input shapes to prepare, as for `warm_up`; not needed for static models.
            outputs: As in the constructor.
            device: As in the constructor.
            allow_fallback: As in the constructor.
            debug: As in the constructor.
            jobs: As in the constructor.
            precision: As in the constructor.
            deterministic: As in the constructor.
            slice_ms: As in the constructor.

        Returns:
            A handle, whose `result()` raises what went wrong.
        """
        name = getattr(model, "name", None) or str(model)[:80]
        loading: Loading[Worker] = Loading(name=str(name))

        def steps() -> Steps[Worker]:
            found = model
            if not isinstance(found, Model):
                loading.report(READING, 0.0)
                found = yield SlicedThread(lambda: ModelLoader.load(model))  # type: ignore[arg-type]
            if outputs is not None:
                found = with_outputs(found, outputs)
            check_kinds(found)
            loading.report(COMPILING, 0.2)
            options = (jobs, precision, deterministic)
            native, is_on_gl = None, False
            if may_use_opengl(backend_type, device):
                yield SlicedThread(load_backends)
                # The context belongs to the caller's thread.
                native = create_backend(backend_type, device, jobs, precision, deterministic)
                is_on_gl = isinstance(native.owner, GLDevice)
                yield None

            def open_session() -> Session:
                opened = create_backends(backend_type, device, *options, native)
                return Session(found, *opened, allow_fallback)

            source = model.path if isinstance(model, ModelAsset) else model
            driver_warm_up = None
            if isinstance(source, str | os.PathLike) and outputs is None:
                task = "engine.api.freeze_support:run_driver_warm_up"
                driver_warm_up = partial(warm_up_driver, task, source, backend_type, shapes, allow_fallback)
            session = yield from session_steps(loading, open_session, is_on_gl, driver_warm_up)
            worker = cls.__new__(cls)
            Disposable.__init__(worker)
            worker._attach_session(session, backend_type, debug, slice_ms)
            loading.worker = worker
            try:
                wanted = worker._wanted(shapes, must=shapes is not None)
                yield from warm_up_steps(loading, session, wanted, lambda: True)
            except BaseException:
                worker.dispose()
                raise
            return worker

        return loading.begin(steps())

    def warm_up(self, shapes: Shapes | Sequence[Shapes] | None = None) -> Loading[None]:
        """Prepare the first schedule: make its plan, and compile its kernels and use them once.

        `shapes` are what the inputs will have: sizes of named dimensions (`{"batch": 1}`), shapes of inputs
        (`{"x": (1, 3)}`), or both, or a list of such; not needed for a model without dynamic dimensions. An
        array stands for its shape, and gives the elements of an input whose elements decide the plan.

        It continues in the background: await the handle, poll `is_done()`, or in a script call `wait()`. The
        worker may be used meanwhile; no result, no random number and no input of a schedule is touched.

        Raises:
            InputError: The model does not take the shapes.
        """
        self._check_alive()
        loading: Loading[None] = Loading(name=f"warm-up of {self.model.name}", worker=self)
        wanted = self._wanted(shapes, must=True)
        self._loads[:] = [load for load in self._loads if not load.is_over] + [loading]
        return loading.begin(warm_up_steps(loading, self._session, wanted, lambda: self._latest is None))

    def _wanted(
        self, shapes: Shapes | Sequence[Shapes] | None, *, must: bool
    ) -> list[tuple[InputShapes, Mapping[str, np.ndarray]]]:
        given = [shapes or {}] if shapes is None or isinstance(shapes, Mapping) else list(shapes)
        is_open = any(
            i.kind != "tensor" or i.shape is None or not i.shape.is_static for i in self.model.inputs
        )
        if not must and (is_open or self._session.host_inputs):
            return []
        return [shapes_of(self.model, self._session.host_inputs, one) for one in given]

    def _attach_session(
        self, session: Session, backend_type: BackendType, debug: bool, slice_ms: float
    ) -> None:
        """Initialise the worker for a session."""
        self._execute(session, debug, slice_ms)
        self.model = session.source
        self.backend_type = backend_type
        self._loads: list[Loading[None]] = []
        self._costs: StepCosts | None = None

    def dispose(self) -> None:
        """Free the worker's memory and drop its pending work; a second call does nothing.

        Readbacks that were requested still arrive.

        Raises:
            ThreadError: It is called on another thread than the worker's.
        """
        if not self._disposed:
            self._check_thread()
        super().dispose()

    @property
    def device(self) -> Any:
        """The `GLDevice`, `CLDevice` or `JobSystem` that does the work."""
        return self._native.owner

    # Scheduling

    @property
    def fence(self) -> JobHandle | None:
        """The last job that this worker scheduled, for jobs to depend on; None if all are done.

        Raises:
            InputError: On a GPU, where no job can wait for it: request a readback.
        """
        self._check_alive()
        if not self._native.is_host:
            raise InputError("job threads cannot wait for a GPU; read the output back, then schedule the job")
        last = self._native.fence()
        return None if last is None else last.pin_run()

    def reset_random(self, schedule_count: int = 0) -> None:
        """Reset random operators to their state after `schedule_count` schedules of this worker.

        For replays: what they draw depends on the layer's seed and name, the element and the number of
        schedules before. Other models compute the same whenever they are scheduled.
        """
        self._check_alive()
        if schedule_count < 0:
            raise InputError(f"a worker cannot have been scheduled {schedule_count} times")
        self._schedules = schedule_count

    def set_input(self, name: str, value: InputValue) -> None:
        """Keep a value for an input, used by every `schedule` that does not give it."""
        kept = self._kept
        try:
            if kept[name] is value:
                return  # nothing changes, whichever thread this is
        except KeyError:  # not given yet, unknown, or the worker was disposed
            self._check_alive()
            self._inputs.keep(name, value)
        else:
            if get_ident() != self._thread:
                self._check_thread()
            kept[name] = value
            changes.latest = object()  # a call of `add` takes as long as all else here

    @property
    def _kept_inputs(self) -> Mapping[str, InputValue]:
        """What `set_input` has given so far, by name."""
        return dict(self._inputs.kept)

    def schedule_iterable(
        self, *inputs: InputValue | Mapping[str, InputValue], **named: InputValue
    ) -> Schedule:
        """Begin one inference that is enqueued slice by slice, as the `Schedule` returned is iterated.

        Takes what `schedule` takes, and copies it. Outputs are the same to the bit. A `schedule` that comes
        later waits behind it.
        """
        with instrumentation.working_for(self), instrumentation.spanning("schedule"):
            budget = Budget(self.costs, self._session.backends)
            run = self._schedule_sliced(inputs, named, budget)
        if instrumentation.installed:
            self._report_inputs(inputs, named)
        run.check()
        return Schedule(self, run, budget)

    @property
    def costs(self) -> StepCosts:
        """Expected cost of each step of the latest plan, as measured by `schedule_iterable`."""
        if self._costs is None:
            worker = weakref.ref(self)
            self._costs = StepCosts(self._session.backends, lambda: _plans_of(worker()))
        return self._costs

    # Reports

    def plan_report(self) -> PlanReport:
        """Report on the latest plan, as far as it was made; before the first schedule, on a likely plan."""
        self._check_alive()
        latest = self._latest.recorded_plans if self._latest is not None else ()
        states = [recorded.state for recorded in latest]
        compiling = sum(load.missing for s in states if isinstance(s, CompilingKernels) for load in s.loads)
        planning = any(isinstance(state, Planning | Failed) for state in states)
        unprepared = self._session.unprepared
        return report_on(self.model, self._native, self._plans, unprepared, compiling, planning)

    @property
    def _plans(self) -> Sequence[LoweredModel]:
        """The compiled segments of the latest plan; before any schedule, those of a likely one."""
        plans = (
            [recorded.lowered for recorded in self._latest.recorded_plans] if self._latest is not None else []
        )
        return plans or self._session.outlook

    def memory(self) -> WorkerMemory:
        """How much memory this worker holds now: weights, temporaries, inputs and outputs."""
        self._check_alive()
        return memory_of(self._session)

    def _dispose(self) -> None:
        for load in self._loads:
            load.cancel()
        self._queue.abandon(
            DisposedError("the worker was disposed before this schedule had enqueued all its work")
        )
        super()._dispose()
        # A lost context, or one whose window was closed first, has freed everything already.
        with contextlib.suppress(DeviceError), self._native.entered():
            self._session.release()


def _plans_of(worker: Worker | None) -> Sequence[LoweredModel]:
    return () if worker is None or worker.is_disposed else worker._plans
