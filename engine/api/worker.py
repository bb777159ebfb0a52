"""`Worker`: a model bound to a backend."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from threading import get_ident
from typing import Any, overload

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
from engine.base.errors import (
    CancelledError,
    DeviceError,
    DisposedError,
    InputError,
    ThreadError,
)
from engine.base.lifetime import Disposable
from engine.base.sliced_thread import SlicedThread
from engine.base.spelling import answers_spelling
from engine.compiler.lower import Lowered
from engine.compiler.trace import SCHEDULE_COUNT, InputShapes
from engine.device.gl.device import GLDevice
from engine.device.jobs.system import JobHandle, JobSystem
from engine.graph.model import Model
from engine.kernels.value import Value
from engine.runtime.cost_model import StepCosts
from engine.runtime.execution import Run
from engine.runtime.fast_path import FastPath, FastPathRun
from engine.runtime.inputs import CheckedInputs, Inputs, InputValue, Named, Positional, check_kinds
from engine.runtime.loading.driver_warm_up import warm_up_driver
from engine.runtime.loading.handle import Loading, Steps
from engine.runtime.loading.workers import COMPILING, READING, Shapes, session_steps, shapes_of, warm_up_steps
from engine.runtime.memory_report import WorkerMemory, memory_of
from engine.runtime.outputs import FastPathOutput, Outputs, RunOutput, as_list, with_outputs
from engine.runtime.pending_work import unfinished
from engine.runtime.recorded_plan import Planning
from engine.runtime.session import Session
from engine.runtime.slices import Schedule, SlicedRun
from engine.runtime.submission_queue import RunQueue
from engine.runtime.tensor import Tensor


@answers_spelling
class Worker(Disposable):
    """Runs a model: `schedule` enqueues and returns, outputs are tensors that arrive later.

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
        self._take(Session(model, native, fallback, allow_fallback), backend_type, debug, slice_ms)
        try:
            with native.entered(), instrumentation.spanning("prepare", worker=self, model=model) as facts:
                facts["compiled"] = self._session.prepare(progress)
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
            worker._take(session, backend_type, debug, slice_ms)
            loading.worker = worker
            try:
                yield from worker._warm_up_steps(loading, shapes)
            except BaseException:
                worker.dispose()
                raise
            return worker

        return loading.begin(steps())

    def warm_up(self, shapes: Shapes | Sequence[Shapes] | None = None) -> Loading[None]:
        """Make the first schedule like all others: its plan is made, its kernels are compiled and used once.

        `shapes` are what the inputs will have: sizes of named dimensions (`{"batch": 1}`), shapes of inputs
        (`{"x": (1, 3)}`), or both, or a list of such; not needed for a model without open dimensions. An
        array stands for its shape, and gives the elements of an input whose elements decide the plan.

        It goes on beside the frames: await the handle, poll `is_done()`, or in a script call `wait()`. The
        worker may be used meanwhile; no result, no random number and no input of a schedule is touched.

        Raises:
            InputError: The model does not take the shapes.
        """
        self._check_alive()
        loading: Loading[None] = Loading(name=f"warm-up of {self.model.name}", worker=self)
        wanted = self._wanted(shapes, must=True)
        self._loads[:] = [load for load in self._loads if not load.is_over] + [loading]
        return loading.begin(warm_up_steps(loading, self._session, wanted, lambda: self._latest is None))

    def _warm_up_steps(self, loading: Loading[Any], shapes: Shapes | Sequence[Shapes] | None) -> Steps[None]:
        wanted = self._wanted(shapes, must=shapes is not None)
        yield from warm_up_steps(loading, self._session, wanted, lambda: True)

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

    def _take(self, session: Session, backend_type: BackendType, debug: bool, slice_ms: float) -> None:
        """Become the worker of a session."""
        self._session = session
        model, native = session.source, session.backends["native"]
        self.model = model
        self.backend_type = backend_type
        self.slice_ms = slice_ms
        self._native = native
        self._loads: list[Loading[None]] = []
        self._inputs = Inputs(session, check_integers=debug)
        self._kept = self._inputs.kept
        self._outputs = Outputs(model)
        self._schedules = 0
        # Arrays like the last schedule's need none of its checks again: see `Direct`.
        self._may_take_fast_path = not (debug or self._inputs.have_wide_integers)
        # How many schedules there were before, for layers that draw random numbers.
        self._count = np.zeros(1, np.uint32) if session.is_random else None
        self._latest_path: FastPath | None = None
        self._queue = RunQueue()
        self._is_unfinished = False
        self._is_observed = False
        self._latest: Run | None = None
        self._costs: StepCosts | None = None
        self._thread = get_ident()
        self._disposed = False

    def _check_alive(self) -> None:
        if get_ident() != self._thread:
            self._check_thread()
        super()._check_alive()

    def _check_thread(self) -> None:
        """Raise `ThreadError` on another thread than the worker's, unless that has ended."""
        thread = get_ident()
        if thread == self._thread:
            return
        owner = next((t.name for t in threading.enumerate() if t.ident == self._thread), None)
        if owner is not None:
            raise ThreadError(
                f"the worker of model '{self.model.name}' belongs to the thread '{owner}', which made it:"
                " schedule, read back and dispose there, and pass arrays to other threads"
            )
        self._thread = thread

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
    def _fast_path(self) -> FastPath | None:
        """What the latest schedule comes down to, if the next one like it needs nothing else."""
        self._check_alive()
        return self._latest_path if self._latest_path is not None and self._latest_path.is_plain else None

    def _took_fast_path(self, fast_path: FastPath) -> None:
        """Note a schedule whose commands were enqueued by a plan in short."""
        latest = self._latest
        if fast_path is self._latest_path and type(latest) is FastPathRun:
            latest.turn += 1  # its plan is in use by one run as before
        else:
            self._latest_path, self._latest = fast_path, FastPathRun.after(latest, fast_path)

    @property
    def fence(self) -> JobHandle | None:
        """The last job of this worker's schedules so far, for jobs to depend on; None once all are done.


        Raises:
            InputError: On a GPU, where no job can wait for it: request a readback.
        """
        self._check_alive()
        if not self._native.is_host:
            raise InputError("job threads cannot wait for a GPU; read the output back, then schedule the job")
        last = self._native.fence()
        return None if last is None else last.of_this_run()

    def reset_random(self, schedule_count: int = 0) -> None:
        """Have random operators draw from here on as they did after so many schedules of this worker.

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

    def schedule(self, *inputs: InputValue | Mapping[str, InputValue], **named: InputValue) -> None:
        """Enqueue one inference and return without waiting for it.

        Inputs are arrays or tensors: in the model's order, by keyword, as one dict (for names that are no
        Python identifiers), or set before with `set_input`. Arrays are copied before this returns;
        the CPU backend reads a large tensor on the CPU where it lies, if nothing is in flight.

        Raises:
            InputError: An input's name, shape or dtype is wrong; the message names the input.
        """
        if instrumentation.installed and not self._is_observed and instrumentation.here():
            self._schedule_observed(inputs, named)
            return
        fast_path = self._latest_path  # None where anything is left to do first
        if fast_path is not None:
            if get_ident() != self._thread:
                self._check_thread()
            if self._count is not None:
                self._count[0] = self._schedules & 0xFFFFFFFF
                self._schedules += 1
            latest = self._latest
            given: Any = inputs
            if not inputs and not named:
                given = self._kept
                if type(latest) is FastPathRun and fast_path.take_kept(given):
                    latest.turn += 1
                    return
            elif named:
                given = () if inputs else named
            elif len(inputs) == 1 and type(inputs[0]) is dict:
                given = inputs[0]
            if type(latest) is FastPathRun and fast_path.take_again(given):
                latest.turn += 1
                return
            ordered = self._inputs.in_order(given) if type(given) is dict else given
            if fast_path.take(ordered, given):
                self._took_fast_path(fast_path)
                return
            other = self._fast_path_for(ordered)
            if other is not None and other.take(ordered):
                self._took_fast_path(other)
                return
            if self._count is not None:
                self._schedules -= 1
        checked = self._prepared(inputs, named)
        if not self._queue and self._take_checked(checked):
            return
        shapes, known, prepared = checked
        with self._entered():
            run = Run(self._session, self._session.recorded_plan(shapes, known), prepared)
            self._begin(run)
        run.check()
        if run.finished and self._may_take_fast_path and len(run.recorded_plans) == 1:
            run.recorded.fast_path = self._latest_path = run.recorded.fast_path or FastPath.of(
                self._session, run.recorded, self._inputs.names, known, self._count
            )
            if not known:
                self._session.cache.keep_fast_path(self._session.key(shapes, {}), run.recorded)

    def schedule_iterable(
        self, *inputs: InputValue | Mapping[str, InputValue], **named: InputValue
    ) -> Schedule:
        """Begin one inference that is enqueued slice by slice, as the `Schedule` returned is iterated.

        Takes what `schedule` takes, and copies it. Outputs are the same to the bit. A `schedule` that comes
        later waits behind it.
        """
        with instrumentation.working_for(self), instrumentation.spanning("schedule"):
            shapes, known, prepared = self._prepared(inputs, named)
            with self._entered():
                run = SlicedRun(
                    self._session, self._session.recorded_plan(shapes, known), prepared, self.costs
                )
                self._begin(run)
        if instrumentation.installed:
            self._tell_inputs(inputs, named)
        run.check()
        return Schedule(self, run)

    def _prepared(self, inputs: Positional, named: Named) -> CheckedInputs:
        """The inputs of the next run, checked."""
        self._check_alive()
        self._latest_path = None  # its plan may be dropped from here on
        given = self._inputs.check(inputs, named)
        if self._count is not None:
            self._count[0] = self._schedules & 0xFFFFFFFF
            given.tensors[SCHEDULE_COUNT] = self._count.copy()
        self._schedules += 1
        return given

    def _begin(self, run: Run) -> None:
        """Let a run join the queue, and enqueue what can be."""
        before, self._latest = self._latest, run
        if before is not None and before.is_over:
            before.let_go()
        self._queue.append(run)
        self._take_up_queue()
        if not run.started:
            run.hold_inputs()

    def _entered(self) -> AbstractContextManager[Any]:
        """A block in which several calls cost one change of GL context instead of one each."""
        return self._native.entered()

    @property
    def costs(self) -> StepCosts:
        """What each step of the latest plan is expected to take, by what `schedule_iterable` has measured."""
        if self._costs is None:
            worker = weakref.ref(self)
            self._costs = StepCosts(self._session.backends, lambda: _plans_of(worker()))
        return self._costs

    def _schedule_observed(self, inputs: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        """The same, told to observers."""
        self._is_observed = True
        try:
            with instrumentation.working_for(self), instrumentation.spanning("schedule", worker=self):
                self.schedule(*inputs, **named)
        finally:
            self._is_observed = False
        self._tell_inputs(inputs, named)

    def _tell_inputs(self, inputs: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        """Show observers the inputs that are arrays."""
        given = self._inputs.collect(inputs, named)
        for name, value in given.items():
            if isinstance(value, np.ndarray):
                instrumentation.value(self, name, value)

    def _fast_path_for(self, given: Sequence[Any]) -> FastPath | None:
        """The short way of a plan that was used before, for arrays of other shapes than the last ones."""
        if any(type(array) is not np.ndarray for array in given):
            return None
        return self._session.cache.fast_path(tuple([array.shape for array in given]))

    def _take_checked(self, given: CheckedInputs) -> bool:
        """Schedule by a plan that was used before, where all checked inputs are arrays."""
        fast_path = self._session.cache.fast_path(tuple(given.shapes.values()))
        arrays: Any = tuple(given.tensors[name] for name in given.shapes if name in given.tensors)
        if fast_path is None or not fast_path.take(arrays):
            return False
        self._took_fast_path(fast_path)
        return True

    def pump(self, budget_ms: float | None = None) -> bool:
        """Continue schedules that wait for data of their own; True when nothing is left to enqueue.

        With a budget, stops after about that many milliseconds of this thread's time. Never waits. Raises the
        error of a schedule that cannot go on and whose outputs nobody reads, once; the others go on.
        """
        if get_ident() != self._thread:
            self._check_thread()
        self._take_up_queue(budget_ms)
        self._queue.raise_failed()
        return not self._queue

    def _take_up_queue(self, budget_ms: float | None = None) -> None:
        """Enqueue whatever can be without waiting, and have hosts pump this worker while anything is left."""
        self._queue.take_up(self._latest, budget_ms)
        if bool(self._queue) != self._is_unfinished:
            self._is_unfinished = bool(self._queue)
            (unfinished.work.add if self._queue else unfinished.work.discard)(self)

    def _advance(self, run: Run) -> bool:
        """Go on as far as data has arrived; whether a run has enqueued all its work. Never waits."""
        if not run.is_over:
            self._take_up_queue()
        return run.finished

    def _drive(self, run: Run) -> None:
        """Block until a run, and those before it, have enqueued all their work."""
        if not run.is_over:
            with self._native.entered():
                while not run.is_over:
                    self._queue.step(self._latest, wait=True)
        run.check()

    def _cancel(self, run: Run, reason: CancelledError) -> None:
        """Take a run that is not over out of the queue; its outputs raise `reason`."""
        if self._queue.cancel(run, reason, self._latest):
            with self._entered():
                self._take_up_queue()

    # Results

    def _output(self, name: str | int | None) -> tuple[Run, str]:
        self._check_alive()
        if self._latest is None:
            raise InputError("nothing was scheduled yet; call schedule first")
        return self._latest, self._outputs.name(name)

    @overload
    def peek_output(self, name: str | int | None = None) -> Tensor: ...

    @overload
    def peek_output(self, name: str | int | None, kind: type[list[Any]]) -> list[Tensor]: ...

    def peek_output(self, name: str | int | None = None, kind: type[list[Any]] | None = None) -> Any:
        """An output of the latest schedule (by name or number; the first by default), owned by the worker.

        A `Tensor`; a list of them for an output that is a sequence; None for an optional without an element.
        With `list` as `kind`, type checkers know of the list, and `InputError` is raised where there is none.
        A sequence of maps is a tensor with one dict for each row, made when it is read.
        It is stale after the next `schedule`; a readback requested before stays good.

        Raises:
            ShapePending: The length of a sequence depends on data that is still being computed.
        """
        if kind is not None:
            return as_list(self.peek_output(name), name)
        run = self._latest
        if type(run) is FastPathRun and (source := run.fast_path.outputs.get(name)) is not None:
            return Tensor.of(FastPathOutput(self, run, source), owned=False)
        return self._output_of(*self._output(name))

    def _output_of(self, run: Run, name: str | int | None) -> Any:
        """An output of a run, in the form of `peek_output`."""
        self._check_alive()
        name = self._outputs.name(name)
        entry = run.recorded.lowered.trace.values.get(name)
        if type(entry) is Value:
            return Tensor.of(RunOutput(self, run, name, entry.dtype), owned=False)
        if run.error is None and name not in run.recorded.lowered.trace.values:
            self._advance(run)
        return self._outputs.of(self, run, name, lambda output: Tensor.of(output, owned=False))

    @overload
    def copy_output(self, name: str | int | None = None) -> Tensor: ...

    @overload
    def copy_output(self, name: str | int | None, kind: type[list[Any]]) -> list[Tensor]: ...

    def copy_output(self, name: str | int | None = None, kind: type[list[Any]] | None = None) -> Any:
        """A copy of an output of the latest schedule, on the same backend, that the caller owns.

        In the form of `peek_output`. Blocks only where the output's size is still being computed.
        """
        if kind is not None:
            return as_list(self.copy_output(name), name)
        run, name = self._output(name)
        self._drive(run)
        return self._outputs.of(self, run, name, lambda output: output.copied())

    def plan_report(self) -> PlanReport:
        """How the latest plan runs, as far as it was made; before the first schedule, how one may run."""
        self._check_alive()
        latest = self._latest.recorded_plans if self._latest is not None else ()
        compiling = sum(load.missing for recorded in latest for load in recorded.compiling)
        planning = any(isinstance(recorded.pending, Planning) for recorded in latest)
        unprepared = self._session.unprepared
        return report_on(self.model, self._native, self._plans, unprepared, compiling, planning)

    @property
    def _plans(self) -> Sequence[Lowered]:
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
        self._latest_path = None
        self._kept.clear()
        unfinished.work.discard(self)
        self._latest = None
        # A context that was lost, or whose window was closed first, took everything along.
        with contextlib.suppress(DeviceError), self._native.entered():
            self._session.release()


def _plans_of(worker: Worker | None) -> Sequence[Lowered]:
    return () if worker is None or worker.is_disposed else worker._plans
