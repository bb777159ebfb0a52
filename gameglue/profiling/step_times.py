"""Times of the steps of a worker's plan, on any backend."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from engine import Worker
from engine.backends.base import Backend
from engine.compiler.passes.channels_last import SUFFIX
from engine.compiler.plan import Step
from engine.kernels.value import leaves


@dataclass(frozen=True)
class PlannedStep:
    """A step of a plan with its layer.

    values: the names, in the model, of the tensors that its output holds: several where some are views of it,
    none where it works for another step of the same layer. shape: of the last of them, else None.
    """

    step: Step
    values: tuple[str, ...]
    shape: tuple[int, ...] | None

    @property
    def kernel(self) -> str:
        """The tuned kernel's name where it has one, "tuned" or "generic"."""
        return "generic" if self.step.is_generic else getattr(self.step.kernel, "name", "tuned")


class RepeatedSchedule:
    """The latest schedule of a worker, run again as often as one likes; every call waits for its end.

    Inputs stay as that schedule has left them. Copies between backends and NumPy functions are not repeated.
    Good until the worker's next schedule.
    """

    def __init__(self, worker: Worker) -> None:
        run = worker._latest
        assert run is not None, "schedule first"
        assert run.finished, "wait for an output first"
        self._stages = [
            (run.session.backends[submission.place], submission.program, segment.plan)
            for recorded in run.recorded_plans
            for submission, segment in zip(recorded.submissions, recorded.lowered.segments, strict=True)
        ]
        held: dict[str, dict[str, tuple[int, ...]]] = {}
        for recorded in run.recorded_plans:
            for name, entry in recorded.lowered.trace.values.items():
                for value in leaves(entry):
                    if value.known is None:
                        held.setdefault(value.root.name, {})[in_model(name)] = value.shape
        steps = [step for _, _, plan in self._stages for step in plan.steps]
        self.steps = tuple(_planned(step, held.get(step.output, {})) for step in steps)
        """All steps in the order of execution."""

    def whole(self) -> None:
        """Run the plan as it is."""
        before: Backend | None = None
        for backend, program, _ in self._stages:
            if before is not None and before is not backend:
                before.synchronize()
            backend.run(program)
            backend.flush()
            before = backend
        if before is not None:
            before.synchronize()

    def stepwise(self) -> list[float]:
        """Run the plan and return the seconds of each step."""
        return [s for backend, program, plan in self._stages for s in backend.time_steps(program, plan)]


def in_model(name: str) -> str:
    """The value's name in the model, without the suffix that layout passes add."""
    return name.removesuffix(SUFFIX)


def _planned(step: Step, names: dict[str, tuple[int, ...]]) -> PlannedStep:
    return PlannedStep(step, tuple(names), list(names.values())[-1] if names else None)


def interquartile_mean(values: Iterable[float]) -> float:
    """The interquartile mean, for clocks of microsecond resolution."""
    ordered = sorted(values)
    cut = len(ordered) // 4
    kept = ordered[cut : len(ordered) - cut]
    return sum(kept) / len(kept)
