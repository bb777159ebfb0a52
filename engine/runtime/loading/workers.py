"""Background creation of workers, and plans made before the first schedule.

A `SlicedThread` makes plans, compiles kernels (the CPU's kernels in compile processes, GL programs in a
shared context) and creates buffers and textures. Command lists are recorded on the caller's thread, a few
steps at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from engine.backends.base import Progress
from engine.backends.partial_dispatch import StepRange
from engine.base.errors import InputError
from engine.base.sliced_thread import SlicedThread
from engine.compiler.lower import LoweredModel
from engine.compiler.plan import Plan
from engine.compiler.trace import InputShapes
from engine.compiler.walk import Elements
from engine.graph.model import Input, Model
from engine.runtime.loading.handle import Loading, Steps
from engine.runtime.plans.background_plans import (
    PlanInProgress,
    binding,
    compiling_on_a_thread,
    in_small_steps,
)
from engine.runtime.plans.recorded_plan import RecordedPlan
from engine.runtime.plans.session import Session

Shapes = Mapping[str, Any]
"""Sizes of named dimensions, or shapes of inputs (arrays stand for their shapes), or both, by name."""

Plans = list[tuple[object, LoweredModel]]

READING, COMPILING, RECORDING, RUNNING = (
    "reading the model", "compiling kernels", "recording", "running once",
)  # fmt: skip


def session_steps(
    loading: Loading[Any],
    open_session: Callable[[], Session],
    is_on_gl: bool,
    driver_warm_up: Callable[[], object] | None = None,
) -> Steps[Session]:
    """Create a session with its kernels compiled and, if the model's shapes are static, its plan recorded.

    Args:
        loading: The handle to report to.
        open_session: Creates the session; called on another thread.
        is_on_gl: Whether its buffers have to be created on the caller's thread.
        driver_warm_up: Creates the same worker in another process.
    """
    progress = _progress_of(loading, COMPILING, 0.2, 0.7)
    if not is_on_gl:

        def prepared() -> Session:
            session = open_session()
            session.prepare(progress)
            return session

        session: Session = yield SlicedThread(prepared)
        return session
    session = yield SlicedThread(open_session)
    native = session.backends["native"]
    compiled, plans = yield from compiling_on_a_thread(native, partial(session.prepare_plans, progress))
    if compiled and driver_warm_up is not None and native.owner.info.is_software:
        # Software renderers compile again in each context, when a program is used, but cache that on disk.
        loading.report(f"{COMPILING} for {native.owner.info.renderer}", 0.6)
        yield SlicedThread(driver_warm_up)
    loading.report(RECORDING, 0.7)
    for key, lowered in plans:
        recording = session.recording(lowered, None)
        session.cache.keep(key, (yield from in_small_steps(session, recording)))
    for home, sized in reversed(session.symbolic_plans.unbound):
        yield from binding(session, sized, partial(home.use, sized))
    return session


def warm_up_steps(
    loading: Loading[Any],
    session: Session,
    wanted: Sequence[tuple[InputShapes, Elements]],
    is_fresh: Callable[[], bool],
) -> Steps[None]:
    """Plan for these input shapes, and run each plan once on zeros.

    Args:
        loading: The handle to report to.
        session: The session.
        wanted: Input shapes, and the input elements on which plans depend.
        is_fresh: Whether nothing was scheduled yet, so that runs may overwrite outputs.
    """
    native = session.backends["native"]
    for number, (shapes, known) in enumerate(wanted):
        share = 0.3 / len(wanted)
        done = 0.7 + number * share
        key = session.key(shapes, known)
        if key not in session.cache.plans:
            loading.report(COMPILING, done)
            session.begin_plan(shapes, known)
        yield PlanInProgress(session, session.cache.plans[key])
        loading.report(RUNNING, done + share / 2)
        recorded = session.cache.plans.get(key)
        if recorded is None:
            continue
        steps = _first_run(session, recorded)
        # Plans may share the memory of outputs, which may hold the game's last result.
        while is_fresh() or not (native.shares or recorded.users):
            if next(steps, "end") == "end":
                break
            yield None


def _first_run(session: Session, recorded: RecordedPlan) -> Steps[None]:
    """Run a plan on zeros, as drivers compile when programs are used with real bindings.

    It ends at the first submission that needs data from another backend, and includes uploads and a readback.
    """
    for copies in recorded.inputs.values():
        for place, buffer in copies:
            backend = session.backends[place]
            if not backend.is_host:
                with backend.entered():
                    backend.upload(buffer, np.zeros(buffer.elements, buffer.dtype))
                yield None
    for submission in recorded.submissions:
        if submission.transfers:
            return
        backend = session.backends[submission.place]
        dispatch = backend.partial_dispatch(submission.program, submission.plan)
        # Part of each step is enough: drivers compile for the bindings, not for the size.
        for step, units in enumerate(dispatch.units):
            if units:
                with backend.entered():
                    if _reads_computed_integers(submission.plan, step):
                        backend.clear_temporaries(submission.program)
                    dispatch.enqueue([StepRange(step, 0, 1)], False)
                    backend.flush()
                yield None
    for name, place in recorded.placement.items():
        backend = session.backends[place]
        is_read = name in recorded.lowered.trace.values and (place, name) in recorded.buffers
        if is_read and not backend.is_host:
            with backend.entered():
                read = backend.readback(recorded.buffers[place, name])
                backend.flush()
            while not read.done():
                yield None
            return


def _reads_computed_integers(plan: Plan, number: int) -> bool:
    """Whether a step may use integers computed by other steps as indices or loop counts."""
    specs = [plan.buffers[name] for name in plan.steps[number].inputs if name in plan.buffers]
    left = [spec.dtype for spec in specs if spec.role == "temporary"]
    # Bytes are what quantised tensors and conditions consist of.
    return any(dtype.kind in "iu" and dtype.itemsize > 1 for dtype in left)


def _progress_of(loading: Loading[Any], stage: str, start: float, end: float) -> Progress:
    def progress(ready: int, total: int) -> None:
        loading.report(f"{stage} {ready}/{total}", start + (end - start) * ready / max(total, 1))

    return progress


def shapes_of(model: Model, host_inputs: frozenset[str], given: Shapes) -> tuple[InputShapes, Elements]:
    """Input shapes from named sizes and shapes, and the elements of inputs that decide the plan.

    Raises `InputError` that names what is unknown, does not fit, or is missing.
    """
    inputs = {item.name: item for item in model.inputs}
    dims = model.dim_names
    unknown = [name for name in given if name not in inputs and name not in dims]
    if unknown:
        named = ", ".join(f"'{n}'" for n in (*inputs, *dims))
        raise InputError(f"model '{model.name}' has no input or dimension '{unknown[0]}'; it has {named}")
    shapes: dict[str, tuple[int, ...]] = {}
    known: dict[str, np.ndarray] = {}
    for name, item in inputs.items():
        if item.kind != "tensor":
            raise InputError(f"input '{name}' is a {item.kind}: plans can be prepared for tensors only")
        value = given.get(name)
        if value is None:
            shapes[name] = _shape_of(item, given)
        elif isinstance(value, tuple | list) and all(isinstance(d, int | np.integer) for d in value):
            shapes[name] = tuple(int(d) for d in value)
        else:
            array = np.asarray(value, item.dtype)
            shapes[name] = array.shape
            if name in host_inputs:
                known[name] = array
        if item.shape is not None and not item.shape.matches(shapes[name]):
            raise InputError(f"input '{name}' needs the shape {item.shape}, got {shapes[name]}")
        if name in host_inputs and name not in known:
            raise InputError(
                f"the elements of input '{name}' decide the plan: give an array instead of its shape"
            )
    return shapes, known


def _shape_of(item: Input, given: Shapes) -> tuple[int, ...]:
    """The declared shape with the sizes that were given for its names."""
    sizes = [given.get(d, d) if isinstance(d, str) else d for d in item.shape or ()]
    still_open = [d for d in sizes if not isinstance(d, int | np.integer)]
    if item.shape is None or still_open:
        name = next((d for d in still_open if d), item.name)
        raise InputError(
            f"input '{item.name}' has the shape {item.shape}: give sizes for its dynamic dimensions, or its "
            f"shape, as in warm_up({{{name!r}: ...}})"
        )
    return tuple(int(d or 0) for d in sizes)
