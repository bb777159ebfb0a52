"""Plans with symbolic sizes that loading prepares for likely sizes and elements."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import product
from typing import TYPE_CHECKING

from engine.base.errors import EngineError
from engine.compiler.plan import AnyKernel
from engine.compiler.trace import EQUAL, SAMPLES, InputShapes
from engine.runtime.plans.plan_requests import InputsRequest
from engine.runtime.plans.symbolic_continuations import likely_continuations, likely_elements
from engine.runtime.plans.symbolic_plans import SymbolicPlan

if TYPE_CHECKING:
    from engine.runtime.plans.session import Session


def likely_symbolic_plan(
    session: Session, shapes: InputShapes, sizes: Sequence[int] = EQUAL[-1]
) -> SymbolicPlan | None:
    """The symbolic plan that covers these, made now unless there is one; None if there can be none.

    `sizes` are guesses at elements of inputs on which plans depend.
    """
    # Where a size is a number of steps, a plan serves one length: none is known to come.
    if not session.backends["native"].plans_for_all_sizes or session.planner.tracer.grows_with_sizes:
        return None
    known = likely_elements(session, shapes, sizes)
    return None if known is None else InputsRequest(session, shapes, known).found_or_made()


def kernels_of_others(session: Session) -> list[AnyKernel]:
    """The kernels of plans for sizes other than the representative ones, which are planned already.

    These are symbolic plans, if the model can be planned so. Otherwise some sizes are sampled if the
    backend chooses kernels by size.
    """
    kernels: list[AnyKernel] = []
    tracer, native = session.planner.tracer, session.backends["native"]
    others = tracer.others()
    # A loop of one run has a plan of its own.
    guesses = [EQUAL[-1], *(SAMPLES[:1] if session.host_inputs and tracer.varying else ())]
    for shapes, sizes in product([*tracer.representatives(), *others], guesses):
        # The model may not accept sizes that were only guessed.
        with suppress(EngineError):
            if (opened := likely_symbolic_plan(session, shapes, sizes)) is not None:
                for sized in (opened, *likely_continuations(session, opened)):
                    kernels += sized.lowered.kernels()
                    if on_cpu := sized.lowered.kernels("cpu"):
                        session.backends["cpu"].prepare(on_cpu)
            elif native.chooses_by_size and shapes in others:
                kernels += session.lower(shapes, {}).kernels()
    return kernels
