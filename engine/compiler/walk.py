"""Traversal of a model's layers and subgraphs, which can stop for data and continue.

A `Walk` keeps its own stack: a `GraphFrame` for the model and one for each subgraph on the way. Where a layer
needs elements that nobody knows yet, the walk stops; a copy of its frames continues once they are known, as
often as they turn out differently.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import thread_time
from typing import Any

import numpy as np

from engine.base.errors import EngineError, ShapeError, UnsupportedLayerError
from engine.compiler.builders import ADVICE, MOST_KNOWN, MOST_MADE, ShapeBuilder
from engine.compiler.deferred_strings import moved_text, positions_in, with_strings
from engine.compiler.layer_errors import naming
from engine.compiler.value_conversion import as_arrays, as_constants, known_or_empty, mapped
from engine.graph.model import Layer, Model
from engine.kernels.size import smallest, whole
from engine.kernels.value import Entry, ListValue, Value, leaves
from engine.operators import OPERATORS, Operator
from engine.operators.control_flow_interface import Body, ControlFlow

Elements = Mapping[str, np.ndarray]
"""What was learned of tensors, by the name of their buffer: elements in row-major order, 1-D."""


class Graph:
    """A model or subgraph with resolved operators, and its constants as values."""

    def __init__(self, model: Model, graphs: dict[int, Graph], taken: set[str]) -> None:
        """`graphs` collects the subgraphs by the identity of their models, `taken` the constants' names."""
        self.model = model
        self.layers: list[Layer] = []
        self.operators: list[Operator] = []
        for given in model.layers:
            layer, operator = _resolved(given)
            self.layers.append(layer)
            self.operators.append(operator)
            for body in layer.subgraphs:
                graphs[id(body)] = Graph(body, graphs, taken)
        used = {n for layer in self.layers for n in layer.dependencies} | {o.name for o in model.outputs}
        self.wanted = [[name in used for name in layer.outputs] for layer in self.layers]
        self.declared = {o.name: o.dtype for o in model.outputs if o.dtype is not None}
        self.constants: dict[str, Value] = {}
        for name, array in model.constants.items():
            unique, number = name, 2
            while unique in taken:
                unique, number = f"{name} ({number})", number + 1
            taken.add(unique)
            self.constants[name] = Value(unique, array.shape, array.dtype, None, array)

    def check_type(self, layer: Layer, name: str, dtype: np.dtype) -> None:
        """Raise for an output whose type differs from the declared one, as NumPy promotes to float64."""
        declared = self.declared.get(name, dtype)
        if dtype != declared:
            raise ShapeError(
                f"{layer} yields {dtype.name} for '{name}', which the model declares as {declared.name}; "
                f"convert it with .astype(numpy.{declared.name}), or change the declaration"
            )


def _resolved(layer: Layer) -> tuple[Layer, Operator]:
    """What runs for a layer, and its operator, which accepts it."""
    found = OPERATORS.find(layer.domain, layer.op_type, layer.version)
    if found is None:
        reason = OPERATORS.unsupported(layer.domain, layer.op_type, layer.version)
        raise UnsupportedLayerError(f"{layer}: {reason}")
    found.check(layer)
    return _resolved(found.rewrite(layer)) if found.kind == "rewritten" else (layer, found)


MOST_SECONDS = 30.0
"""How long the processor may take to plan the runs of loops: what they compute on the host, too, is up to the
file.
"""

LayerKey = tuple[str, str]
"""A layer's name, and which of its steps is meant."""

CONTROL_PHASES = ("control", "next", "took")
"""The steps of a control-flow layer: reached, before a run of a body, after one."""


@dataclass(slots=True, eq=False)
class GraphFrame:
    """A stack frame of the traversal: a position in a graph. `control` is the state of a control-flow layer.

    `body` is the run of a subgraph that this is, None for the model itself. There were `began` tensors in the
    plan when it was entered, and `mark` formulas when the control-flow layer returned this run.
    """

    graph: Graph
    values: dict[str, Entry]
    path: str = ""
    body: Body | None = None
    position: int = 0
    steps: int = 0
    began: int = 0
    mark: int = 0
    control: ControlFlow | None = None

    def copy(self) -> GraphFrame:
        """Return a copy of this frame."""
        control = None if self.control is None else self.control.copy()
        return replace(self, values=dict(self.values), control=control)

    @property
    def layer(self) -> Layer:
        """The current layer."""
        return self.graph.layers[self.position]

    def step_path(self, phase: str) -> str:
        """Distinguishes the tensors that a control-flow layer creates at each step."""
        if phase not in CONTROL_PHASES:
            return self.path
        self.steps += 1
        return f"{self.path}/{self.steps}"


@dataclass(frozen=True)
class Call:
    """A layer that is a NumPy function, and its inputs: it runs on the host once they have arrived."""

    layer: Layer
    operator: Operator
    inputs: tuple[Entry, ...]

    def run(self, elements: Callable[[Value], np.ndarray]) -> tuple[Any, ...]:
        """Call the function; returns arrays, lists of arrays or None."""
        arrays = [as_arrays(x, elements) for x in self.inputs]
        return self.operator.call(self.layer, arrays)


@dataclass(frozen=True)
class Stop:
    """Why a walk stopped: the tensors whose elements it needs, for itself or for a `call`.

    `repeats`: they decide how often, or whether, layers run.
    """

    needs: tuple[Value, ...]
    call: Call | None = None
    repeats: bool = False


class Walk(ABC):
    """Walks `frames` to the end or to a stop; subclasses handle each layer.

    Args:
        graphs: Subgraphs by the identity of their models.
        frames: How far the graphs were walked.
        learned: What is known of tensors.
        fan_in: How many tensors a kernel may read.
        count: What `Builder.schedule_count` gives.
        whole_layers: What the backend computes as one.
    """

    make_builder: type[ShapeBuilder] = ShapeBuilder

    def __init__(
        self,
        graphs: Mapping[int, Graph],
        frames: list[GraphFrame],
        learned: Elements,
        fan_in: int,
        count: Value,
        whole_layers: frozenset[str] = frozenset(),
    ) -> None:
        self.graphs = graphs
        self.frames = frames
        self.learned = learned
        self.fan_in = fan_in
        self.count = count
        self.whole_layers = whole_layers
        self._exact: dict[Value, Value] = {}
        self.steps = 0
        """How many tensors layers have made."""
        self.known_bytes = 0
        """What the host has worked out for runs of loops."""
        self.most_seconds = MOST_SECONDS
        self._started = 0.0

    def building(self, frame: GraphFrame, phase: str, foldable: bool) -> ShapeBuilder:
        """What the layer at `frame` builds with, for as many tensors as a plan has left.

        `phase` distinguishes the steps of a control-flow layer.
        """
        wanted = frame.graph.wanted[frame.position]
        made = self.make_builder(
            frame.layer, foldable, wanted, self.fan_in, frame.step_path(phase), self.elements, self.count
        )
        made.phase = phase
        made.whole_layers = frozenset() if foldable and phase not in CONTROL_PHASES else self.whole_layers
        made.most = max(0, MOST_MADE - self.steps)
        if len(self.frames) > 1:
            made.most_known = max(0, MOST_KNOWN - self.known_bytes)
        return made

    def built(self, builder: ShapeBuilder) -> None:
        """Called with the builder of each finished layer."""
        self.steps += len(builder.shapes)
        if builder.most_known is not None:
            self.known_bytes += builder.known_bytes

    def mark(self) -> int:
        """How many formulas there are."""
        return 0

    def hand_over(self, builder: ShapeBuilder, frame: GraphFrame) -> None:
        """Pass the formulas of a representative iteration to a builder."""

    def memoised(self, frame: GraphFrame, entries: tuple[Entry, ...]) -> bool:
        """Whether the layer at `frame` has memoised results for these inputs, and all are available."""
        return False

    def remember(
        self, frame: GraphFrame, layer: Layer, builder: ShapeBuilder, entries: tuple[Entry, ...]
    ) -> None:
        """Memoise a layer that was built from these inputs."""

    @abstractmethod
    def yielded(self, layer: Layer, outputs: Sequence[Value]) -> None:
        """Called with a layer's outputs."""

    def run(self) -> Stop | None:
        """Continue to the end (None) or to the next stop."""
        self._started = thread_time()
        while True:
            frame = self.frames[-1]
            stop: Stop | None = None
            try:
                if frame.control is not None:
                    with naming(frame.layer):
                        stop = self._control(frame, frame.control)
                elif frame.position < len(frame.graph.layers):
                    stop = self._layer(frame)
                elif len(self.frames) > 1:
                    with naming(self.frames[-2].layer):
                        stop = self._leave(frame)
                else:
                    return None
            except EngineError:
                if not self._give_up():
                    raise
            if stop is not None and not self._give_up():
                return stop

    def _give_up(self) -> bool:
        """Abandon the innermost tentative run, if there is one; its results are unused."""
        runs = (d for d, frame in enumerate(self.frames) if frame.body is not None and frame.body.tentative)
        depth = max(runs, default=0)
        if not depth:
            return False
        del self.frames[depth:]
        # What was cut to size for a layer that then failed was never handed to `built`.
        self._exact.clear()
        control = self.frames[-1].control
        assert control is not None
        control.abandon_iteration()
        return True

    # Names and elements

    def look_up(self, name: str, depth: int = -1) -> Entry:
        """The entry of a name in the frame at `depth` or in those around it."""
        frames = self.frames if depth == -1 else self.frames[: depth + 1]
        for frame in reversed(frames):
            if name in frame.values:
                return frame.values[name]
        raise ShapeError(f"nothing defines '{name}'")

    def elements(self, value: Value) -> np.ndarray | None:
        """The elements of a tensor in its shape, if they are known by now."""
        if value.known is not None:
            return value.known
        flat = self.learned.get(value.root.name)
        return None if flat is None else flat[: value.size].reshape(value.shape)

    def _unknown(self, values: Sequence[Value]) -> tuple[Value, ...]:
        return tuple(dict.fromkeys(v for v in values if v.size and self.elements(v) is None))

    def _bounded_axis(self, operator: Operator, layer: Layer, entries: Sequence[Entry]) -> int | None:
        """Along which axis a layer's outputs are bounded because inputs are; None where exact sizes count."""
        bounds = [v.bound for v in leaves(*entries) if v.bound is not None]
        counts = {b.count for b in bounds}
        if operator.bound is None or len(counts) != 1 or not self._unknown([*counts]):
            return None
        return operator.bound(layer, entries, self.elements)

    def _exactly(self, builder: ShapeBuilder, value: Value, whole: bool = False) -> Value:
        """The tensor as a layer sees it: of its exact size (or `whole`), with what elements are known."""
        if value.bound is not None:
            value = value.view(value.shape, value.signature) if whole else self._trimmed(builder, value)
        elements = self.elements(value)
        if value.known is not None or elements is None:
            return value
        return Value(value.name, value.shape, value.dtype, value.signature, elements)

    def _trimmed(self, builder: ShapeBuilder, value: Value) -> Value:
        if value not in self._exact:
            assert value.bound is not None
            axis = value.bound.axis
            number = self.elements(value.bound.count)
            assert number is not None
            size = smallest(whole(number.reshape(-1)[0]), value.shape[axis])
            shape = (*value.shape[:axis], size, *value.shape[axis + 1 :])
            if all(n == 1 for n in value.shape[:axis]):
                # The entries meant lie together at the front.
                self._exact[value] = value.view(shape)
            else:
                everything = value.view(value.shape)
                self._exact[value] = builder.compute(shape, value.dtype, lambda *i: everything[i])
        return self._exact[value]

    # Steps

    def _layer(self, frame: GraphFrame) -> Stop | None:
        layer, operator = frame.layer, frame.graph.operators[frame.position]
        found = tuple([self.look_up(name) if name else None for name in layer.inputs])
        if self.memoised(frame, found):
            return None
        new = f"{layer.name}{frame.path} positions"
        entries, names = moved_text(found, operator.moved_position, self.elements, new)
        if needs := self._unknown(positions_in(entries)):
            return Stop(needs, repeats=operator.kind == "control")
        entries = with_strings(entries, self.elements)
        given = leaves(*entries)
        texts = [v for v in given if v.dtype == object]
        # Kernels do not compute strings: a layer with one among its inputs reads all of them on the host.
        # The keys of a map, which are no tensor of their own, decide nothing about its values.
        is_text = any(isinstance(x, Value) and x.dtype == object for x in entries)
        is_hosted = is_text and operator.kind == "kernel"
        on_host = range(len(entries)) if is_hosted else operator.host_positions(layer)
        host = leaves(*(entries[i] for i in on_host))
        axis = self._bounded_axis(operator, layer, entries)
        if axis is None and (needs := self._unknown([v.bound.count for v in given if v.bound is not None])):
            return Stop(needs)
        exact = [v for v in (*host, *texts) if v.bound is None]
        if needs := self._unknown(exact):
            return Stop(needs, repeats=operator.kind == "control")
        foldable = operator.precision != "random" and all(self.elements(v) is not None for v in given)
        builder = self.building(frame, operator.kind, foldable or operator.kind != "kernel")
        inputs = tuple(mapped(x, lambda v: self._exactly(builder, v, axis is not None)) for x in entries)
        if needs := self._unknown(leaves(*(inputs[i] for i in on_host))):
            self.built(builder)
            return Stop(needs)
        with naming(layer, inputs):
            if operator.kind == "numpy":
                if needs := self._unknown(leaves(*inputs)):
                    self.built(builder)
                    return Stop(needs, Call(layer, operator, inputs))
                arrays = [as_arrays(x, known_or_empty) for x in inputs]
                self.bind(frame, as_constants(builder, operator.call(layer, arrays)))
            elif operator.kind == "control":
                frame.control = operator.open(builder, inputs)
            else:
                outputs = operator.build(builder, inputs)
                if names is not None:
                    outputs = tuple([builder.text(x, names) for x in leaves(*outputs)])
                if axis is not None:
                    count = next(v.bound.count for v in given if v.bound is not None)
                    outputs = tuple(mapped(x, lambda v: v.bounded(axis, count)) for x in outputs)
                self.bind(frame, outputs, builder.yields_nothing)
                if inputs == found:
                    self.remember(frame, layer, builder, found)
        self.built(builder)
        return None

    def _control(self, frame: GraphFrame, control: ControlFlow) -> Stop | None:
        builder = self.building(frame, "next", True)
        if needs := self._unknown(control.needs(builder)):
            return Stop(needs)
        mark = self.mark()
        body = control.next_iteration(builder)
        if body is None:
            results = control.results(builder)
            self.built(builder)
            frame.control = None
            self.bind(frame, results, empty=True)
            return None
        self.built(builder)
        self._enter(frame, body)
        self.frames[-1].mark = mark
        return None

    def _enter(self, frame: GraphFrame, body: Body) -> None:
        if thread_time() - self._started > self.most_seconds:
            raise ShapeError(
                f"{frame.layer}: planning its runs takes more than {self.most_seconds:g} seconds; {ADVICE}"
            )
        graph = self.graphs[id(body.graph)]
        names = [item.name for item in graph.model.inputs]
        if len(names) != len(body.inputs):
            raise ShapeError(f"{frame.layer}: its body takes {len(names)} inputs and gets {len(body.inputs)}")
        values: dict[str, Entry] = {**graph.constants, **dict(zip(names, body.inputs, strict=True))}
        path = frame.path + (f"[{body.label}]" if body.label else "")
        self.frames.append(GraphFrame(graph, values, path, body))
        self.frames[-1].began = self.steps

    def _leave(self, frame: GraphFrame) -> Stop | None:
        outputs = [self.look_up(o.name) for o in frame.graph.model.outputs]
        if needs := self._unknown(positions_in(outputs)):
            return Stop(needs)
        outputs = [*with_strings(outputs, self.elements)]
        outer = self.frames[-2]
        assert outer.control is not None
        assert frame.body is not None
        first = frame.body.exact_from
        exact = leaves(*outputs[first:])
        if needs := self._unknown([v.bound.count for v in exact if v.bound is not None]):
            return Stop(needs)
        builder = self.building(outer, "took", True)
        outputs[first:] = [mapped(x, lambda v: self._exactly(builder, v)) for x in outputs[first:]]
        if frame.body.stands_for_all:
            self.hand_over(builder, frame)
        outer.control.receive(builder, tuple(outputs))
        self.frames.pop()
        self.built(builder)
        made, left = self.steps - frame.began, outer.control.iterations_left()
        # Later runs may make less than one: only what is far beyond the limit is refused ahead.
        if made * left > 2 * MOST_MADE:
            raise ShapeError(
                f"{outer.layer}: {left:,} more runs of its body need more than {MOST_MADE:,} tensors in"
                f" the plan, as this one made {made}; {ADVICE}"
            )
        return None

    def bind(self, frame: GraphFrame, outputs: Sequence[Entry], empty: bool = False) -> None:
        """Bind a layer's results to names and continue. `empty` allows absent optionals."""
        layer = frame.layer
        if len(layer.outputs) > len(outputs):
            raise ShapeError(f"{layer} has {len(layer.outputs)} outputs; the operator yields {len(outputs)}")
        self.yielded(layer, leaves(*outputs))
        is_function = frame.graph.operators[frame.position].kind == "numpy"
        wanted = frame.graph.wanted[frame.position]
        for name, value, is_read in zip(layer.outputs, outputs, wanted, strict=False):
            if name:
                if value is None and is_read and not empty:
                    raise ShapeError(f"{layer}: its operator yields nothing for its output '{name}'")
                if is_function and isinstance(value, Value):
                    frame.graph.check_type(layer, name, value.dtype)
                frame.values[name] = value
        frame.position += 1

    # What a later part of the plan will read

    def pending(self, stop: Stop | None) -> list[Value]:
        """The tensors that must outlive this walk: outputs, what the stop needs, what later layers read."""
        found: list[Value] = [] if stop is None else list(stop.needs)
        entries: list[Entry] = []
        if stop is not None and stop.call is not None:
            found += leaves(*stop.call.inputs)
        for depth, frame in enumerate(self.frames):
            names = dict.fromkeys(o.name for o in frame.graph.model.outputs)
            for layer in frame.graph.layers[frame.position :]:
                names |= dict.fromkeys(layer.dependencies)
            for name in names:
                if any(name in f.values for f in self.frames[: depth + 1]):
                    entries.append(self.look_up(name, depth))
            if frame.control is not None:
                entries += frame.control.live_values()
        found += leaves(*entries)
        if stop is not None:
            found += [x.rows for x in entries if isinstance(x, ListValue) and x.rows is not None]
        found += [v.bound.count for v in found if v.bound is not None]
        return list(dict.fromkeys(found))
