"""`PlanReport`: how a model runs on a backend, returned by `Worker.plan_report`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.backends.base import Backend
from engine.compiler.lower import Fallback, LoweredModel, Segment
from engine.compiler.plan_walk import Trace
from engine.graph.model import Model
from engine.kernels.size import hint_of


@dataclass(frozen=True, slots=True)
class Transfer:
    """A tensor that moves between the backend and the CPU in every schedule."""

    tensor: str
    layer: str
    bytes_down: int
    bytes_up: int


@dataclass(frozen=True, slots=True)
class Wait:
    """A synchronisation point: a layer that needs computed data (a size, a condition) read back."""

    layer: str
    op_type: str
    bytes_down: int


@dataclass(frozen=True, slots=True)
class PlanReport:
    """How a worker runs its model: steps, kernels, and where it leaves its backend or waits for data.

    Waits happen in the background: `schedule` does not block.

    Attributes:
        backend: The backend's name.
        device: The device's name.
        layers: Layers of the model.
        steps: Steps after fusion that compute any elements.
        tuned_steps: Steps with a tuned kernel.
        kernels: Their kernels.
        fallbacks: Layers that run on the CPU instead, each with the reason.
        waits: Layers that need data read back before the plan continues.
        transfers: Copies between the backend and the CPU.
    """

    backend: str
    device: str
    layers: int
    steps: int
    tuned_steps: int
    kernels: int
    fallbacks: tuple[Fallback, ...]
    waits: tuple[Wait, ...]
    transfers: tuple[Transfer, ...]
    unprepared: str = ""
    """Why nothing was prepared when the worker was made: no sizes were found for the model's dynamic
    dimensions that it can take. The first schedule at any size then plans and compiles. '' where something
    was prepared.
    """
    compiling: int = 0
    """How many kernels of the latest plan are still being compiled, by background processes: its
    schedule continues when they are ready.
    """
    planning: bool = False
    """Whether the plan for the latest schedule's sizes is still being made in the background: the figures
    above are then those of what is planned so far.
    """

    def __str__(self) -> str:
        text = (
            f"{self.backend} on {self.device}: {self.layers} layers in {self.steps} steps "
            f"({self.tuned_steps} tuned), {self.kernels} kernels"
        )
        lines = [
            text,
            *(f"  on the CPU: layer '{f.layer}' ({f.op_type}): {f.reason}" for f in self.fallbacks),
            *(
                f"  waits for data of its own ({w.bytes_down} B): layer '{w.layer}' ({w.op_type})"
                for w in self.waits
            ),
        ]
        if self.planning:
            lines.append("  waits for its plan, which is being made in the background")
        if self.compiling:
            lines.append(f"  waits for {self.compiling} kernel{'s' * (self.compiling > 1)} being compiled")
        if self.unprepared:
            lines.append(f"  nothing prepared: no sizes found for its dynamic dimensions ({self.unprepared})")
        return "\n".join(lines)


def report_on(
    model: Model,
    backend: Backend,
    plans: Sequence[LoweredModel],
    unprepared: str = "",
    compiling: int = 0,
    planning: bool = False,
) -> PlanReport:
    """The report on the plans of a model's compiled segments, in order."""
    segments = [segment for lowered in plans for segment in lowered.segments]
    # A symbolic plan may have steps that these do without.
    steps = [step for segment in segments for step in segment.plan.steps if all(map(hint_of, step.space))]
    device = backend.owner
    info = getattr(device, "info", None)
    threads = getattr(device, "thread_count", 0)
    shown = (
        getattr(info, "renderer", None)
        or getattr(info, "name", None)
        or (f"{threads} job thread{'s' * (threads > 1)}" if threads else "this machine")
    )
    return PlanReport(
        backend=backend.name,
        device=str(shown),
        layers=sum(1 for _ in model.walk()),
        steps=len(steps),
        tuned_steps=sum(not s.is_generic for s in steps),
        kernels=len({part.kernel.key for step in steps for part in step.parts}),
        fallbacks=tuple(f for lowered in plans for f in lowered.fallbacks),
        waits=tuple(_wait(lowered.trace) for lowered in plans if lowered.trace.stop is not None),
        transfers=_transfers(segments),
        unprepared=unprepared,
        compiling=compiling,
        planning=planning,
    )


def _wait(trace: Trace) -> Wait:
    assert trace.stop is not None
    return Wait(*trace.layer, sum(v.size * v.dtype.itemsize for v in trace.stop.needs))


def _transfers(segments: Sequence[Segment]) -> tuple[Transfer, ...]:
    """Tensors that cross between the backend and the CPU in the middle of the model."""
    made: dict[str, str] = {}
    found = []
    for segment in segments:
        for name in segment.imports:
            if name in made and made[name] != segment.place:
                spec = segment.plan.buffers[name]
                size = spec.elements * spec.dtype.itemsize
                down, up = (size, 0) if made[name] == "native" else (0, size)
                reader = next(s.layer for s in segment.plan.steps if name in s.inputs)
                found.append(Transfer(name, reader, down, up))
        for name in segment.exports:
            made[name] = segment.place
    return tuple(found)
