"""`Executor`: runs the schedules of one session in order, and continues what waits for data."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from threading import get_ident
from typing import Any, overload

import numpy as np

from engine.base import instrumentation
from engine.base.errors import CancelledError, InputError, ThreadError
from engine.base.lifetime import Disposable
from engine.compiler.trace import SCHEDULE_COUNT
from engine.runtime.budget import Budget
from engine.runtime.fast_path import FastPath
from engine.runtime.inputs import CheckedInputs, Inputs, InputValue, Named, Positional
from engine.runtime.outputs import Outputs, as_list
from engine.runtime.pending_work import thread_state
from engine.runtime.plans.recorded_plan import RecordedPlan
from engine.runtime.plans.session import Session
from engine.runtime.run import Run
from engine.runtime.run_queue import RunQueue
from engine.runtime.symbolic_fast_path import SymbolicFastPath
from engine.runtime.tensor import Tensor


class Executor(Disposable):
    """Schedules inferences of a session, one after another; the base of `Worker`.

    A schedule checks its inputs, finds the recorded plan for them, copies them to the plan's buffers and
    enqueues its programs. A plan of one program does that in its `FastPath`, which remembers the checks, and
    which later schedules with such inputs use at once. Any other is a `Run`, which stays in a queue while it
    waits for data.
    """

    def _execute(self, session: Session, check_integers: bool, slice_ms: float) -> None:
        """Initialise the executor for a session."""
        self.slice_ms = slice_ms
        self._session = session
        self._native = session.backends["native"]
        self._inputs = Inputs(session, check_integers)
        self._kept = self._inputs.kept
        self._outputs = Outputs(session.source)
        self._schedules = 0
        self._may_take_fast_path = not check_integers
        # How many schedules there were before, for layers that draw random numbers.
        self._count = np.zeros(1, np.uint32) if session.is_random else None
        self._latest: Run | None = None
        # The fast path of the latest plan; None where the next schedule has to be checked in full.
        self._latest_path: FastPath | None = None
        self._symbolic_path: SymbolicFastPath | None = None
        self._queue = RunQueue()
        self._is_pending = False
        self._is_observed = False
        self._thread = get_ident()
        self._disposed = False
        self._prepare_symbolic_path()

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
                f"the worker of model '{self._session.source.name}' belongs to the thread '{owner}', which "
                "made it: schedule, read back and dispose there, and pass arrays to other threads"
            )
        self._thread = thread

    def _entered(self) -> AbstractContextManager[Any]:
        """A block in which several calls cost one change of GL context instead of one each."""
        return self._native.entered()

    # Scheduling

    def schedule(self, *inputs: InputValue | Mapping[str, InputValue], **named: InputValue) -> None:
        """Enqueue one inference and return without waiting for it.

        Inputs are arrays or tensors: in the model's order, by keyword, as one dict (for names that are no
        Python identifiers), or set before with `set_input`. Arrays are copied before this returns;
        the CPU backend reads a large tensor on the CPU without a copy, if nothing is in flight.

        Raises:
            InputError: An input's name, shape or dtype is wrong; the message names the input.
        """
        if instrumentation.installed and not self._is_observed and instrumentation.here():
            self._schedule_observed(inputs, named)
            return
        path = self._latest_path  # None where the inputs have to be checked in full
        if path is not None:
            if get_ident() != self._thread:
                self._check_thread()
            if self._count is not None:
                self._count[0] = self._schedules & 0xFFFFFFFF
                self._schedules += 1
            given: Any = inputs
            is_kept = not inputs and not named
            if is_kept:
                given = self._kept
            elif named:
                given = () if inputs else named
            elif len(inputs) == 1 and type(inputs[0]) is dict:
                given = inputs[0]
            is_latest = self._latest is path
            if is_latest and path.form is not None and path.try_repeat(given, is_kept):
                path.turn += 1
                return
            ordered: Any = self._inputs.in_order(given) if type(given) is dict else given
            if path.try_schedule(ordered, given):
                if is_latest:
                    path.turn += 1
                else:
                    self._note_schedule(path)
                return
            if (other := self._schedule_other_shapes(ordered)) is not None:
                if is_latest and other is path:
                    path.turn += 1
                else:
                    self._note_schedule(other)
                return
            if self._count is not None:
                self._schedules -= 1
        checked = self._checked(inputs, named)
        with self._entered():
            if self._symbolic_path is not None and self._latest is None and not self._session.cache.plans:
                ordered = checked.in_order
                if (path := self._scheduled_symbolically(ordered, _shapes_of(ordered))) is not None:
                    self._note_schedule(path)
                    return
            recorded = self._session.recorded_plan(checked.shapes, checked.known)
            path = self._path_of(recorded, checked)
            if path is not None and not self._queue and path.try_schedule(checked.in_order):
                self._note_schedule(path)
                return
            run = self._begin(recorded, checked)
        run.check()
        if run.finished:
            self._latest_path = path

    def _schedule_sliced(self, inputs: Positional, named: Named, budget: Budget) -> Run:
        """Schedule one inference that enqueues what its budget allows."""
        checked = self._checked(inputs, named)
        with self._entered():
            recorded = self._session.recorded_plan(checked.shapes, checked.known)
            return self._begin(recorded, checked, budget)

    def _schedule_observed(self, inputs: Positional, named: Named) -> None:
        """Schedule, and report it to observers."""
        self._is_observed = True
        try:
            with instrumentation.working_for(self), instrumentation.spanning("schedule", worker=self):
                self.schedule(*inputs, **named)
        finally:
            self._is_observed = False
        self._report_inputs(inputs, named)

    def _report_inputs(self, inputs: Positional, named: Named) -> None:
        """Show observers the inputs that are arrays."""
        for name, value in self._inputs.collect(inputs, named).items():
            if isinstance(value, np.ndarray):
                instrumentation.value(self, name, value)

    def _checked(self, inputs: Positional, named: Named) -> CheckedInputs:
        """The inputs of the next run, checked in full."""
        self._check_alive()
        self._latest_path = None  # its plan may be dropped from here on
        given = self._inputs.check(inputs, named)
        if self._count is not None:
            self._count[0] = self._schedules & 0xFFFFFFFF
            given.tensors[SCHEDULE_COUNT] = self._count.copy()
        self._schedules += 1
        return given

    @property
    def _waits_for_plan(self) -> bool:
        """Whether the plan of the latest schedule is still being made or compiled."""
        return self._latest is not None and self._latest.recorded.is_pending

    def _plain_path(self) -> FastPath | None:
        """The latest fast path if it depends on the shapes and types of inputs only; else None."""
        self._check_alive()
        path = self._latest_path
        if path is None or not path.is_plain:
            return None
        if self._symbolic_path is not None:
            self._symbolic_path.keep(path)
        path.runner.settle()
        return path

    def _schedule_other_shapes(self, given: tuple[Any, ...]) -> FastPath | None:
        """Schedule inputs of other shapes, with a cached fast path or with a symbolic plan.

        Returns the fast path that took them; None if none did.
        """
        shapes = _shapes_of(given)
        symbolic = self._symbolic_path
        if symbolic is not None and shapes not in symbolic.seen:
            if (path := symbolic.schedule_arrays(given, shapes)) is not None:
                return path
        path = self._session.cache.fast_path(shapes)
        if path is not None:
            return path if path.try_schedule(given) else None
        return self._scheduled_symbolically(given, shapes)

    def _scheduled_symbolically(self, given: tuple[Any, ...], shapes: tuple[Any, ...]) -> FastPath | None:
        """Schedule inputs of new sizes with the current symbolic plan; returns the fast path or None."""
        path = self._symbolic_path
        if path is None or not path.is_next:
            self._prepare_symbolic_path()
            path = self._symbolic_path
        if path is None:
            return None
        with self._entered():
            return path.schedule(given, shapes)

    def _prepare_symbolic_path(self) -> None:
        """Prepare what `_scheduled_symbolically` uses, while loading or when another plan was used."""
        self._symbolic_path = SymbolicFastPath.of(self._session) if self._may_take_fast_path else None

    def _path_of(self, recorded: RecordedPlan, checked: CheckedInputs) -> FastPath | None:
        """The fast path of a plan, made when it is first scheduled; None if it has none."""
        if not self._may_take_fast_path or recorded.is_pending:
            return None
        if recorded.fast_path is None:
            known, names = checked.known, self._inputs.names
            recorded.fast_path = FastPath.of(self._session, recorded, names, known, self._count)
            if not known:
                self._session.cache.keep_fast_path(self._session.key(checked.shapes, {}), recorded)
        found: FastPath | None = recorded.fast_path
        return found

    def _note_schedule(self, path: FastPath) -> None:
        """Record a schedule whose commands a fast path has enqueued."""
        path.turn += 1
        before = self._latest
        if before is not path:
            path.hold()
            if before is not None:
                before.let_go()
            self._latest = path
        self._latest_path = path

    def _begin(self, recorded: RecordedPlan, checked: CheckedInputs, budget: Budget | None = None) -> Run:
        """Add a run to the queue, and enqueue what can be."""
        run = Run(self._session, recorded, checked.tensors, budget)
        run.hold()
        before, self._latest = self._latest, run
        if before is not None and before.is_over:
            before.let_go()
        self._queue.append(run)
        self._resume_queue()
        if not run.started:
            run.unbound.hold(self._native)
        return run

    # Pending work

    def _resume_queue(self, budget_ms: float | None = None) -> None:
        """Enqueue what needs no waiting, and register this worker with hosts while anything is left."""
        self._queue.resume(self._latest, budget_ms)
        if bool(self._queue) != self._is_pending:
            self._is_pending = bool(self._queue)
            (thread_state.pending.add if self._queue else thread_state.pending.discard)(self)

    def pump(self, budget_ms: float | None = None) -> bool:
        """Continue schedules that wait for readbacks; returns True when nothing is left to enqueue.

        With a budget, stops after about that many milliseconds of this thread's time. Never waits. Raises the
        error of a schedule that cannot continue and whose outputs nobody reads, once; the others continue.
        """
        if get_ident() != self._thread:
            self._check_thread()
        self._resume_queue(budget_ms)
        self._queue.raise_failed()
        return not self._queue

    def _advance(self, run: Run) -> bool:
        """Enqueue what can be without waiting. Returns whether the run has enqueued all its work."""
        if not run.is_over:
            self._resume_queue()
        return run.finished

    def _drive(self, run: Run) -> None:
        """Block until a run, and those before it, have enqueued all their work."""
        if not run.is_over:
            with self._entered():
                while not run.is_over:
                    self._queue.step(self._latest, wait=True)
        run.check()

    def _cancel(self, run: Run, reason: CancelledError) -> None:
        """Take a run that is not over out of the queue; its outputs raise `reason`."""
        if self._queue.cancel(run, reason, self._latest):
            with self._entered():
                self._resume_queue()

    # Outputs

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
        if (
            type(run) is FastPath
            and run.taken_turn != run.turn
            and (found := run.outputs.get(name) or run.output(name)) is not None
        ):
            storage, name, dtype, location = found
            # As `Tensor.of` for storage that is not its own: a call takes a tenth of this.
            tensor = Tensor.__new__(Tensor)
            tensor._data = storage(self, run, name, dtype, location)
            return tensor
        return self._output_of(self._latest_run(), name)

    @overload
    def copy_output(self, name: str | int | None = None) -> Tensor: ...

    @overload
    def copy_output(self, name: str | int | None, kind: type[list[Any]]) -> list[Tensor]: ...

    def copy_output(self, name: str | int | None = None, kind: type[list[Any]] | None = None) -> Any:
        """A copy of an output of the latest schedule, on the same backend, that the caller owns.

        In the form of `peek_output`. Blocks only where the output's size is still being computed. On the CPU,
        copies of an output after each schedule take over the memory in which it was computed.
        """
        if kind is not None:
            return as_list(self.copy_output(name), name)
        latest = self._latest
        if type(latest) is FastPath and latest.taken_turn != latest.turn and get_ident() == self._thread:
            if (data := latest.detach_output(name)) is not None:
                return Tensor.of(data)
        run, name = self._latest_run(), self._outputs.name(name)
        self._drive(run)
        return self._outputs.of(self, run, name, lambda output: output.copied())

    def take_outputs(self) -> dict[str, Any]:
        """Take all outputs of the latest schedule, by name, as arrays that the caller owns.

        Blocks until they are computed. The elements are those that `download_to_array` gives, but large
        outputs on the CPU are not copied: they are computed in the memory of the arrays. The worker keeps
        none of them, so tensors of `peek_output` are stale until the next `schedule`.

        Returns:
            Arrays of the shapes and types of the outputs. A list of arrays for a sequence, None for an
            optional without an element, a list of dicts for a sequence of maps.

        Raises:
            InputError: Nothing was scheduled yet.
            StaleTensorError: The outputs were taken before.
        """
        latest = self._latest
        if type(latest) is FastPath and latest.taken_turn != latest.turn and get_ident() == self._thread:
            if (taken := latest.take_outputs()) is not None:
                return taken
        run = self._latest_run()
        self._drive(run)
        arrays = self._outputs.arrays(self, run)
        run.note_taken()
        return arrays

    def _latest_run(self) -> Run:
        self._check_alive()
        if self._latest is None:
            raise InputError("nothing was scheduled yet; call schedule first")
        self._latest.check_untaken()
        return self._latest

    def _output_of(self, run: Run, name: str | int | None) -> Any:
        """An output of a run: a tensor, a list of them for a sequence, None for an empty optional."""
        self._check_alive()
        name = self._outputs.name(name)
        if run.error is None and name not in run.recorded.lowered.trace.values:
            self._advance(run)
        return self._outputs.of(self, run, name, lambda output: Tensor.of(output))

    def _dispose(self) -> None:
        self._latest = self._latest_path = self._symbolic_path = None
        self._kept.clear()
        thread_state.pending.discard(self)


def _shapes_of(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """The shapes of arrays and tensors; None among them where one is not known, or for anything else."""
    return tuple([item.shape if type(item) is np.ndarray else _shape_of(item) for item in given])


def _shape_of(item: Any) -> Any:
    if type(item) is Tensor and (data := item.elements_on_cpu) is not None:
        return data.shape_or_none
    return getattr(item, "sizes_or_none", None)
