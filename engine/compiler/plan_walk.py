"""Two traversals of a model: `SampleWalk` for the shapes of sample sizes, `PlanWalk` for a `Trace`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from engine.compiler.builders import PlanBuilder, ShapeBuilder, Shapes
from engine.compiler.plan import Compute
from engine.compiler.plan_memo import PlanMemo, TracedLayer
from engine.compiler.walk import Elements, GraphFrame, LayerKey, Stop, Walk
from engine.graph.model import Layer
from engine.kernels.value import Entry, Value, leaves


@dataclass
class Trace:
    """Formulas of consecutive layers.

    `stop` says why they end before the model does, `layer` at which layer (its name and type), `frames` how
    far every graph was walked, `received` the tensors that a NumPy function yielded just before.
    """

    values: dict[str, Entry]
    frames: list[GraphFrame]
    learned: Elements
    computes: list[Compute] = field(default_factory=list)
    stop: Stop | None = None
    kept: list[Value] = field(default_factory=list)
    received: tuple[Value, ...] = ()
    layer: tuple[str, str] = ("", "")

    def settle(self) -> None:
        """Release what only planning needs, if planning does not continue from here."""
        if self.stop is None:
            self.frames, self.computes, self.learned = [], [], {}

    def tensor(self, name: str) -> Value:
        """The tensor of a name in the model."""
        value = self.values[name]
        assert isinstance(value, Value), f"'{name}' is no tensor"
        return value


class SampleWalk(Walk):
    """Computes shapes only; `shapes` receives each layer's, None if its runs differ."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        # There are several of these for a model.
        self.most_seconds /= 4
        self.shapes: dict[LayerKey, Shapes | None] = {}
        self.runs: dict[str, set[int]] = {}
        """The numbers of runs that each layer has."""

    def learn(self, elements: Elements) -> None:
        """Receive the data that a stop needs; `run` then continues."""
        self.learned = {**self.learned, **elements}

    def built(self, builder: ShapeBuilder) -> None:
        super().built(builder)
        if builder.runs:
            self.runs.setdefault(builder.layer.name, set()).update(builder.runs)
        self._record((builder.layer.name, builder.phase), builder.shapes)

    def yielded(self, layer: Layer, outputs: Sequence[Value]) -> None:
        self._record((layer.name, "outputs"), [v.shape for v in outputs])

    def _record(self, key: LayerKey, shapes: Shapes) -> None:
        if self.shapes.setdefault(key, shapes) != shapes:
            self.shapes[key] = None


class PlanWalk(Walk):
    """Records the formulas of layers."""

    make_builder = PlanBuilder
    samples: Sequence[Mapping[LayerKey, Shapes | None]] | None = None
    """What the layers made in each of the model's samples, None without."""
    varying: Set[str] = frozenset()
    """The layers that have other numbers of runs in other samples."""
    memo: PlanMemo | None = None

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.computes: list[Compute] = []

    def building(self, frame: GraphFrame, phase: str, foldable: bool) -> ShapeBuilder:
        made = super().building(frame, phase, foldable)
        assert isinstance(made, PlanBuilder)
        made.recorded = self._recorded((frame.layer.name, phase))
        made.has_varying_runs = frame.layer.name in self.varying
        if len(self.frames) == 1 and phase == "kernel":
            made.memo = self.memo
        return made

    def mark(self) -> int:
        return len(self.computes)

    def hand_over(self, builder: ShapeBuilder, frame: GraphFrame) -> None:
        assert isinstance(builder, PlanBuilder)
        builder.of_run, self.computes = self.computes[frame.mark :], self.computes[: frame.mark]
        # What was cut to size in that run is none of the others'.
        self._exact.clear()

    def memoised(self, frame: GraphFrame, entries: tuple[Entry, ...]) -> bool:
        if self.memo is None or len(self.frames) > 1:
            return False
        made = self.memo.layers.get((frame.layer.name, entries))
        if made is None or (self.learned and any(v.root.name in self.learned for v in leaves(*entries))):
            return False
        self.computes += made.computes
        for value, signature in made.signatures:
            value.signature = signature
        frame.values.update(made.outputs)
        frame.position += 1
        return True

    def remember(
        self, frame: GraphFrame, layer: Layer, builder: ShapeBuilder, entries: tuple[Entry, ...]
    ) -> None:
        assert isinstance(builder, PlanBuilder)
        if builder.memo is None:
            return
        names = [name for name in layer.outputs if name]
        for name in names:
            value = frame.values[name]
            if isinstance(value, Value):
                frame.values[name] = builder.memo.known(value)
        outputs = {name: frame.values[name] for name in names}
        if not builder.foldable:
            signatures = tuple((v, v.signature) for v in leaves(*outputs.values()))
            made = TracedLayer(tuple(builder.computes), outputs, signatures)
            builder.memo.layers.keep((layer.name, entries), made)

    def _recorded(self, key: LayerKey) -> list[Shapes] | None:
        if self.samples is None:
            return None
        found = [shapes for s in self.samples if (shapes := s.get(key)) is not None]
        return found if len(found) == len(self.samples) else None

    def built(self, builder: ShapeBuilder) -> None:
        assert isinstance(builder, PlanBuilder)
        super().built(builder)
        self.computes += builder.computes

    def yielded(self, layer: Layer, outputs: Sequence[Value]) -> None:
        # What a layer makes on the way is matched by its order, which may depend on sizes; outputs are not.
        recorded = self._recorded((layer.name, "outputs"))
        if recorded is None or any(len(shapes) != len(outputs) for shapes in recorded):
            return
        for position, value in enumerate(outputs):
            columns = [shapes[position] for shapes in recorded]
            if all(len(c) == value.rank for c in columns):
                value.signature = tuple((*(c[a] for c in columns), n) for a, n in enumerate(value.shape))
