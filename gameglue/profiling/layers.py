"""Times by layer, for this engine and for onnxruntime.

Both fuse layers, each in its own way. A row is what this engine runs as one; a node of onnxruntime belongs to
the row that covers the layer whose output the node yields, or is named after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from time import perf_counter

import numpy as np
import onnx

from engine import Worker
from engine.graph.model import Model
from gameglue.profiling.benchmark_cases import infer
from gameglue.profiling.compare import CallTimes, alternate
from gameglue.profiling.onnxruntime_profile import OrtNode, OrtProfile, all_nodes
from gameglue.profiling.step_times import PlannedStep, RepeatedSchedule, interquartile_mean

_RUNS, _SECONDS = 12, 1.0
_REORDERING = ("ReorderInput", "ReorderOutput")


@dataclass(frozen=True)
class LayerTime:
    """One layer of this engine, in seconds.

    values: the model's tensors that it computes. peer_seconds: None where onnxruntime has no node for it.
    """

    layer: str
    op_type: str
    shape: tuple[int, ...] | None
    kernels: tuple[str, ...]
    values: frozenset[str]
    seconds: float
    peer_seconds: float | None = None

    @property
    def is_generic(self) -> bool:
        """Whether no kernel of it is tuned."""
        return set(self.kernels) == {"generic"}

    @property
    def speed(self) -> float | None:
        """How many times as fast as onnxruntime: above 1, this engine is faster. None without both times."""
        return self.peer_seconds / self.seconds if self.peer_seconds and self.seconds else None


@dataclass(frozen=True)
class OrtTime:
    """A node of onnxruntime that belongs to no layer here, in seconds."""

    name: str
    op_type: str
    seconds: float


@dataclass(frozen=True)
class LayerTimes:
    """All layers in the order of execution; seconds.

    whole: the plan run as it always is. peer_whole: a run of onnxruntime, which keeps its profile meanwhile;
    None where there was no onnxruntime.
    """

    layers: tuple[LayerTime, ...]
    whole: CallTimes
    peer_whole: CallTimes | None = None
    peer_only: tuple[OrtTime, ...] = ()

    @property
    def total(self) -> float:
        """Total time of all layers."""
        return sum(item.seconds for item in self.layers)

    @property
    def peer_total(self) -> float:
        """All kernels of onnxruntime together."""
        matched = sum(item.peer_seconds or 0.0 for item in self.layers)
        return matched + sum(item.seconds for item in self.peer_only)


def measure_layers(
    worker: Worker,
    inputs: Mapping[str, np.ndarray],
    *,
    peer: OrtProfile | None = None,
    runs: int = 20,
    seconds: float = 60.0,
    progress: Callable[[int, int], object] = lambda done, wanted: None,
) -> LayerTimes:
    """Time the layers of a worker's model on these inputs. Blocks.

    The plan as it is, the plan with its steps timed, and onnxruntime take turns; of the two runs in a turn
    the first warms up. A layer's time is the mean of the middle half of its runs.

    peer: onnxruntime's side, which this ends.
    runs: turns of each.
    seconds: shared out evenly; what has spent its share sits out the turns left.
    progress: called with (turns over, turns in all).
    """
    infer(worker, inputs)
    repeated = RepeatedSchedule(worker)
    taken: list[list[float]] = []
    contenders: dict[str, Callable[[], object]] = {
        "whole": repeated.whole,
        "steps": lambda: taken.append(repeated.stepwise()),
    }
    if peer is not None:
        contenders["peer"] = peer.run
    times = alternate(contenders, runs, turn=0.0, budget=seconds / len(contenders), progress=progress)
    # In each turn the first run warms up.
    each = [interquartile_mean(column) for column in zip(*taken[1::2], strict=True)]
    rows = by_layer(repeated.steps, each)
    if peer is None:
        return LayerTimes(rows, times["whole"])
    covered = cover(rows, worker.model, peer.proto)
    rows = tuple(replace(row, values=values) for row, values in zip(rows, covered, strict=True))
    paired, alone = match(rows, peer.finish())
    return LayerTimes(paired, times["whole"], times["peer"], alone)


def layer_times(worker: Worker) -> tuple[LayerTime, ...]:
    """Times of the layers of a worker's latest schedule: runs its plan again, and waits."""
    repeated = RepeatedSchedule(worker)
    taken: list[list[float]] = []
    deadline = perf_counter() + _SECONDS
    while len(taken) < 2 or (len(taken) < 2 * _RUNS and perf_counter() < deadline):
        taken.append(repeated.stepwise())
    # Of two runs the first warms up.
    each = [interquartile_mean(column) for column in zip(*taken[1::2], strict=True)]
    return by_layer(repeated.steps, each)


def by_layer(steps: Sequence[PlannedStep], seconds: Sequence[float]) -> tuple[LayerTime, ...]:
    """Group a layer's steps, with those fused into them, into one row, in execution order."""
    groups: dict[str, list[tuple[PlannedStep, float]]] = {}
    for planned, taken in zip(steps, seconds, strict=True):
        groups.setdefault(planned.step.layer, []).append((planned, taken))
    return tuple(_row(layer, members) for layer, members in groups.items())


def _row(layer: str, members: Sequence[tuple[PlannedStep, float]]) -> LayerTime:
    shapes = [planned.shape for planned, _ in members if planned.shape is not None]
    # The last of several kernels is what others are fused with; a layer is named once for each kernel.
    names = max((planned.step.op_type.split("+") for planned, _ in members), key=len)
    return LayerTime(
        layer,
        "+".join(name for name, _ in groupby(names)),
        shapes[-1] if shapes else None,
        tuple(dict.fromkeys(planned.kernel for planned, _ in members)),
        frozenset(name for planned, _ in members for name in planned.values),
        sum(taken for _, taken in members),
    )


def cover(rows: Sequence[LayerTime], model: Model, proto: onnx.ModelProto) -> list[frozenset[str]]:
    """The values of the file that each row computes, fused ones included."""
    producers = {name: node for node in all_nodes(proto.graph) for name in node.output if name}
    kept = {name for row in rows for name in row.values}
    taken: set[str] = set()
    found = []
    own = {layer.name: layer.outputs for layer in model.walk()}
    for row in rows:
        waiting = [*row.values, *own.get(row.layer, ())]
        values: set[str] = set()
        while waiting:
            name = waiting.pop()
            if name in taken or name not in producers:
                continue
            node = producers[name]
            values.update(n for n in node.output if n)
            taken.update(values)
            waiting += [n for n in node.input if n not in kept]
        found.append(frozenset(values))
    return found


def match(
    rows: Iterable[LayerTime], nodes: Iterable[OrtNode]
) -> tuple[tuple[LayerTime, ...], tuple[OrtTime, ...]]:
    """The rows with onnxruntime's times, and its nodes that belong to none of them.

    Every other run of a node warms up and does not count.
    """
    rows = tuple(rows)
    owner = {name: index for index, row in enumerate(rows) for name in row.values}
    peer_times: dict[int, float] = {}
    alone = []
    for node in nodes:
        seconds = interquartile_mean(node.seconds[1::2])
        # Reordering yields a layer's output a second time, in onnxruntime's own layout or out of it.
        names = () if node.op_type in _REORDERING else node.names
        index = next((owner[name] for name in names if name in owner), None)
        if index is None:
            alone.append(OrtTime(node.name, node.op_type, seconds))
        else:
            peer_times[index] = peer_times.get(index, 0.0) + seconds
    matched = tuple(replace(row, peer_seconds=peer_times.get(i)) for i, row in enumerate(rows))
    return matched, tuple(alone)
