"""`BackgroundPlans`: plans that are made in the background, one after another.

A `SlicedThread` plans, compiles kernels, allocates memory and records plans with symbolic sizes; the
commands of others are recorded on the worker's thread, in small steps. Hosts advance both as they advance
loading (`engine.runtime.loading.handle.advance_loads`), and so does polling what waits for the plan.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from engine.backends.base import Backend
from engine.backends.growable_memory import GrowableMemory
from engine.base.errors import DeviceError
from engine.base.generators import SmallSteps, within
from engine.base.sliced_thread import SlicedThread
from engine.compiler.lower import LoweredModel
from engine.compiler.plan_walk import Trace
from engine.runtime.loading.handle import Loading, Steps
from engine.runtime.pending_work import plans_in_background
from engine.runtime.plans.plan_requests import PlanRequest
from engine.runtime.plans.recorded_plan import Planning, RecordedPlan
from engine.runtime.plans.shared_memory import allocating_ahead
from engine.runtime.plans.symbolic_plans import SymbolicPlan

if TYPE_CHECKING:
    from engine.runtime.plans.session import Session

T = TypeVar("T")


class PlanInProgress:
    """A plan that is being made in the background, awaited by a `Loading`."""

    def __init__(self, session: Session, recorded: RecordedPlan) -> None:
        self._session = session
        self._recorded = recorded

    def advance(self, seconds: float) -> bool:
        """Work on it for `seconds`; returns whether it is done or has failed."""
        return self._session.background_plans.advance(self._recorded, 1e3 * seconds)

    def wait(self) -> bool:
        """Block until then."""
        return self._session.background_plans.advance(self._recorded, None)

    def result(self) -> None:
        """Raise the error, if any."""
        self._session.is_ready(self._recorded, wait=False)


class BackgroundPlans:
    """The plans of one session that are being made, the oldest first."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._line: deque[RecordedPlan] = deque()
        self._loading: Loading[None] | None = None
        # What is to be allocated ahead, in this order.
        self._near: dict[GrowableMemory[Any, Any], None] = {}

    def begin(self, request: PlanRequest) -> RecordedPlan:
        """Start making a plan; it is empty until `Session.is_ready` returns True."""
        request.hold()
        recorded = RecordedPlan(LoweredModel(Trace({}, [], {})), Planning(request))
        self._line.append(recorded)
        self._begin()
        return recorded

    def allocate_ahead(self, near: Sequence[GrowableMemory[Any, Any]] = ()) -> None:
        """Allocate shared memory ahead of need during later frames, once no plan is pending."""
        recorder = self._session.recorder
        if recorder.near:
            near, recorder.near = [*near, *recorder.near], []
        if near and plans_in_background():
            self._near |= dict.fromkeys(near)
            self._begin()

    def _begin(self) -> None:
        if self._loading is None or self._loading.is_over:
            self._loading = Loading(self._steps(), name=f"plans of {self._session.source.name}")
        # `schedule`, which calls this, does none of it.
        self._loading.postpone()

    def work_on(self, recorded: RecordedPlan, wait: bool) -> None:
        """Work on a plan that is being made, if no host does. `wait` blocks until it was made or failed."""
        if self._loading is not None:
            self._loading.take_over()
            if wait:
                self.advance(recorded, None)
            else:
                self._loading.is_done()

    def advance(self, recorded: RecordedPlan, budget_ms: float | None) -> bool:
        """Work for `budget_ms`, or without one until a plan was made or failed; returns whether it was."""

        def is_over() -> bool:
            return not isinstance(recorded.state, Planning)

        if self._loading is not None and not is_over():
            if budget_ms is None:
                self._loading.advance_until(is_over)
            else:
                self._loading.advance(budget_ms)
        return is_over()

    def stop(self) -> None:
        """Make no further plans, and wait for the one that is being made."""
        self._line.clear()
        self._near.clear()
        if self._loading is not None:
            self._loading.stop()

    def stop_later(self, then: Callable[[], None]) -> None:
        """Make no further plans, and call `then` once the plan in progress has finished. Never waits."""
        self._line.clear()
        self._near.clear()
        if self._loading is not None:
            self._loading.cancel()
        native = self._session.backends["native"]

        def steps() -> Steps[None]:
            yield from _others_done(self._session)
            _in_context(native, then)

        self._loading = Loading(steps(), name=f"the end of {self._session.source.name}")

    def _steps(self) -> Steps[None]:
        native = self._session.backends["native"]
        while self._line or self._near:
            if not self._line:
                near, self._near = [*self._near], {}
                with suppress(DeviceError):
                    yield from in_small_steps(self._session, allocating_ahead(near, native))
                continue
            recorded = self._line[0]
            # A plan that was dropped meanwhile is planned no more.
            if isinstance(recorded.state, Planning):
                try:
                    yield from self._plan(recorded, recorded.state)
                except Exception as error:  # noqa: BLE001 - raised where the plan is needed
                    self._session.cache.forget(recorded)
                    recorded.fail(error)
            if self._line:
                self._line.popleft()

    def _plan(self, recorded: RecordedPlan, planning: Planning) -> Steps[None]:
        session, request = self._session, planning.request
        # A plan that was made meanwhile may do.
        made = yield from in_small_steps(session, request.filling(only_used=True))
        if made is None:
            sized = yield from on_a_thread(session, request.compiled)
            if sized is not None:
                yield from binding(session, sized, partial(request.plans.use, sized))
                made = yield from in_small_steps(session, request.filling(only_used=True))
        if made is None and recorded.state is planning:
            lowered = yield from on_a_thread(session, lambda: self._planned(request))
            if recorded.state is planning:
                made = yield from in_small_steps(session, session.recording(lowered, request.before))
        if made is None:
            return
        if recorded.state is planning:
            recorded.become(made)
            session.cache.measure(recorded)
        else:
            with session.backends["native"].entered():
                made.release()

    def _planned(self, request: PlanRequest) -> LoweredModel:
        """A static plan for these sizes, with compiled kernels and, on host backends, packed weights."""
        session, lowered = self._session, request.static_plan()
        session.compile(lowered)
        request.store_static(lowered)
        if session.backends["native"].is_host:
            for segment in lowered.segments:
                session.recorder.pack(segment, segment.plan.packed)
        return lowered


def _in_context(native: Backend, work: Callable[[], T]) -> T:
    with native.entered():
        return work()


def _others_done(session: Session) -> Steps[None]:
    """Wait for the thread that is making a plan."""
    while (other := session.background) is not None and not other.is_done:
        with suppress(Exception):
            yield other


def on_a_thread(session: Session, work: Callable[[], Any]) -> Steps[Any]:
    """Run planning work and its compilation on another thread; only one runs at a time.

    A schedule that needs a new plan at once waits for it.
    """
    yield from _others_done(session)
    return (yield from compiling_on_a_thread(session.backends["native"], work, session))


def compiling_on_a_thread(
    native: Backend, work: Callable[[], Any], session: Session | None = None
) -> Steps[Any]:
    """Run work that compiles a backend's kernels on another thread."""
    opening = native.background_opening()
    if opening is not None:
        yield SlicedThread(opening)
    try:
        opened = native.background_compilation()
        entered = opened.__enter__()
    except DeviceError:
        # Without a shared context, the programs compile here, within this frame.
        yield None
        with native.entered():
            return work()

    def there() -> Any:
        with entered():
            return work()

    thread = SlicedThread(there)
    if session is not None:
        session.background = thread
    try:
        return (yield thread)
    finally:
        if session is not None and session.background is thread:
            session.background = None
        thread.wait()
        opened.__exit__(None, None, None)


def binding(session: Session, sized: SymbolicPlan, use: Callable[[bool], None]) -> Steps[None]:
    """Bind a symbolic plan; `use` is called with whether that worked."""
    native, is_bound = session.backends["native"], False
    try:
        if native.is_host:
            yield from on_a_thread(session, lambda: sized.bind(session))
        else:
            yield from in_small_steps(session, sized.binding(session))
            yield from on_a_thread(session, lambda: sized.record_steps(session))
        is_bound = True
    finally:
        with native.entered():
            use(is_bound)


def in_small_steps(session: Session, steps: SmallSteps[T]) -> Steps[T]:
    """Record a plan's commands on the caller's thread, a few at a time, and offload other work."""
    entered = within(session.backends["native"].entered, steps)
    while True:
        try:
            work = next(entered)
        except StopIteration as end:
            found: T = end.value
            return found
        if work is None:
            yield None
        else:
            yield from on_a_thread(session, work.run)
