"""Tracing: runs every operator's definition for given input shapes and records its formulas.

A kernel's structure may depend on what the model's symbolic shapes fix, never on one set of sizes. What
they fix is found by sampling: the shapes of all tensors are worked out for a few settings of the named
dimensions; a dimension that is the same in all of them is static, two that agree in all of them are the
same dimension (`Value.signature`). The sizes of the current run are appended as one more sample, so a
coincidence that the samples suggest and the run refutes is never believed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, combinations, count, repeat
from math import prod
from typing import Any, TypeAlias

import numpy as np

from engine.base.dtypes import TEXT
from engine.base.errors import EngineError, ShapeError
from engine.compiler.builders import Shapes
from engine.compiler.data_speculation import DataGuesses
from engine.compiler.plan import Compute
from engine.compiler.plan_memo import PlanMemo
from engine.compiler.plan_walk import PlanWalk, SampleWalk, Trace
from engine.compiler.sample_sizes import find_sizes, shrunk, vary
from engine.compiler.value_conversion import as_entries, mapped
from engine.compiler.walk import Elements, Graph, GraphFrame, LayerKey
from engine.graph.model import Input, Layer, Model
from engine.kernels.value import Entry, ListValue, Signature, Value
from engine.operators.builder import FAN_IN
from engine.operators.registry import Operator

SAMPLES: tuple[tuple[int, ...], ...] = (
    (1,) * 8,
    (11, 13, 17, 19, 23, 29, 31, 37),
    (64, 96, 128, 160, 192, 224, 256, 288),
    (5, 3, 7, 2, 9, 4, 8, 6),
)
"""Sizes given to a model's dynamic dimensions, in order of appearance; sets that a model refuses go
unused."""

EQUAL: tuple[tuple[int, ...], ...] = ((64,) * 8, (10,) * 8)
"""Further ones, for models that refuse those: exporters give names of their own to dimensions that have to be
equal.
"""

SMALL = (1, 64, 64, 128, 3, 4, 6, 8)
"""Sizes between those of samples, as of a small image: kernels for large and for small ones meet there."""

LARGE = (2, 480, 640, 512, 3, 4, 6, 8)
"""Sizes that no sample has, as of an image; a model that refuses them is not planned for them."""

SCHEDULE_COUNT = "schedule count"
"""The name of the hidden input that random operators read: how often the worker was scheduled before."""


class SequenceShape(tuple[tuple[int, ...], ...]):
    """The shapes of a sequence's tensors."""

    __slots__ = ()


InputShape: TypeAlias = "tuple[int, ...] | SequenceShape | None"
"""What is known of an input: a tensor's shape, those of a sequence, or None for an optional left empty."""
InputShapes = Mapping[str, InputShape]
ShapeOf = Callable[[np.ndarray], Sequence[int]]
"""What a plan takes for an array's shape."""


def leaf_names(name: str, shape: InputShape) -> list[tuple[str, tuple[int, ...]]]:
    """The tensors that an input consists of, by name and shape."""
    if isinstance(shape, SequenceShape):
        return [(f"{name}[{i}]", s) for i, s in enumerate(shape)]
    return [] if shape is None else [(name, shape)]


def leaf_shapes(shapes: InputShapes) -> dict[str, tuple[int, ...]]:
    """The shapes of all tensors that the inputs consist of."""
    return dict(leaf for name, shape in shapes.items() for leaf in leaf_names(name, shape))


@dataclass
class Sample:
    """The shapes of everything that the layers made, for one setting of the named dimensions."""

    shapes: dict[str, tuple[int, ...]]
    layers: dict[LayerKey, Shapes | None]
    runs: dict[str, set[int]] = field(default_factory=dict)
    """The numbers of runs of layers that have several."""
    steps: int = 0
    complete: bool = False
    fits: bool = False
    """Whether the model accepts these sizes, judged by shapes alone."""
    size_conflicts: tuple[tuple[int, int], ...] = ()
    error: str = ""

    @property
    def passed(self) -> int:
        """How many layers were passed."""
        return len(self.layers)

    @property
    def empty(self) -> int:
        """How many tensors have no elements."""
        return sum(0 in shape for shapes in self.layers.values() for shape in shapes or ())


MOST_RELATED = 5
"""Most dynamic dimensions among which a sum is looked for: batch, past, new and total length, say."""


Sum = tuple[int, int, int]
"""Which dynamic dimension is the sum of which two others, by their order of appearance."""


def possible_sums(count: int) -> Iterator[Sum]:
    """Every way in which one of `count` dimensions may be the sum of two others."""
    for total in range(count):
        for a, b in combinations([i for i in range(count) if i != total], 2):
            yield total, a, b


def with_sum(sizes: Sequence[int], way: Sum, empty: int | None = None) -> list[int]:
    """The sizes made to add up; the addend `empty`, if any, is 0."""
    total, a, b = way
    related = [*sizes]
    if empty is not None:
        related[empty] = 0
    related[total] = related[a] + related[b]
    return related


class Tracer:
    """Traces the operators' definitions of one model; holds its samples' shapes.

    `fan_in` is how many tensors a kernel may read: layers with many inputs become as many steps as it takes.
    `whole_layers` are the kinds of layers that the backend computes as one (see `Builder.whole_layers`).
    `is_random` says whether any layer draws numbers.
    """

    def __init__(
        self, model: Model, fan_in: int = FAN_IN, whole_layers: frozenset[str] = frozenset()
    ) -> None:
        self.model = model
        self.fan_in = fan_in
        self.whole_layers = whole_layers
        self.graphs: dict[int, Graph] = {}
        self.constant_names: set[str] = set()
        self.root = Graph(model, self.graphs, self.constant_names)
        self.memo: PlanMemo | None = None
        """Where plans for other shapes find what they have in common, once somebody wants that."""
        self._operators = {
            layer.name: op
            for graph in (self.root, *self.graphs.values())
            for layer, op in zip(graph.layers, graph.operators, strict=True)
        }
        self.is_random = any(op.precision == "random" for op in self._operators.values())
        self.starts: list[dict[str, tuple[int, ...]]] = []
        self.refusal = ""
        """Why nothing can be prepared, where the model takes none of the sizes that were tried."""
        self.samples = self._samples()
        width = len(self.samples) + 1
        for graph in (self.root, *self.graphs.values()):
            for value in graph.constants.values():
                value.signature = tuple((size,) * width for size in value.shape)
        self.count = Value(SCHEDULE_COUNT, (1,), np.dtype(np.uint32), ((1,) * width,))

    def operator_of(self, layer: Layer) -> Operator:
        """The operator of a layer of the model or of one of its subgraphs."""
        return self._operators[layer.name]

    def input_shapes(self, sizes: Sequence[int]) -> dict[str, tuple[int, ...]] | None:
        """The input shapes with dynamic dimensions set from `sizes`; None if a rank is unknown."""
        given = dict(zip(self._open_dims, chain(sizes, count(sizes[-1] + 2, 2)), strict=False))
        shapes: dict[str, tuple[int, ...]] = {}
        for item in self.model.inputs:
            if item.shape is None or item.kind != "tensor":
                return None
            dims = enumerate(item.shape)
            shapes[item.name] = tuple(
                [dim if isinstance(dim, int) else given[dim or (item.name, axis)] for axis, dim in dims]
            )
        return shapes

    @property
    def is_dynamic(self) -> bool:
        """Whether an input has a dynamic dimension or sequence length."""
        return any(
            item.shape is None or not item.shape.is_static or item.kind != "tensor"
            for item in self.model.inputs
        )

    def _samples(self) -> list[Sample]:
        if not self.is_dynamic and not self._stops():
            return []
        runs = [s for s in map(self._sample, SAMPLES) if s is not None]
        if sum(s.fits for s in runs) < 2:
            runs += [s for s in map(self._sample, EQUAL) if s is not None]
        # One alone may fit by chance: a size of 1 is broadcast where it should have been a sum.
        if sum(s.complete for s in runs) < 2 and 3 <= len(self._open_dims) <= MOST_RELATED:
            runs = self._related() or runs
        if self.is_dynamic and sum(s.fits for s in runs) < 2:
            runs = self._searched([s for s in runs if s.fits]) or runs
        elif self.is_dynamic and self._has_equal_sizes([s for s in runs if s.fits]):
            runs += self._searched([s for s in runs if s.fits])[1:]
        if any(s.fits for s in runs):
            runs = [s for s in runs if s.fits]
        elif runs:
            self.refusal = max(runs, key=lambda s: s.passed).error
        furthest = max((s.passed for s in runs), default=0)
        return [s for s in runs if s.passed == furthest and furthest]

    def _searched(self, fitting: list[Sample]) -> list[Sample]:
        """Search for samples of a model that accepts hardly any of the usual sizes."""
        opened = len(self._open_dims)
        if not opened or self.input_shapes([1] * opened) is None:
            return fitting

        def trial(sizes: tuple[int, ...]) -> Sample:
            sample = self._sample(sizes)
            assert sample is not None
            return sample

        def fits(sizes: tuple[int, ...]) -> bool:
            return trial(sizes).fits

        if fitting:
            sizes = self._sizes_of(fitting[0].shapes)
        else:
            found = find_sizes(self.model, opened, trial)
            if found is None:
                return []
            sizes = shrunk(found, fits)
        return [trial(s) for s in vary(sizes, fits)]

    def smallest(self, shapes: Mapping[str, tuple[int, ...]]) -> Mapping[str, tuple[int, ...]]:
        """Input shapes like a sample's, with each dynamic dimension as small as the model accepts."""

        def fits(sizes: tuple[int, ...]) -> bool:
            sample = self._sample(sizes)
            return sample is not None and sample.fits

        return self.input_shapes(shrunk(self._sizes_of(shapes), fits)) or shapes

    def _has_equal_sizes(self, fitting: Sequence[Sample]) -> bool:
        """Whether a dynamic dimension has one size in all samples, which would be taken for a fixed one."""
        columns = zip(*(self._sizes_of(s.shapes) for s in fitting), strict=True)
        return any(len(set(sizes)) == 1 for sizes in columns)

    def _sizes_of(self, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
        """The sizes of the dynamic dimensions in some input shapes, in the order of `input_shapes`."""
        return tuple([shapes[name][axis] for name, axis in self._open_dims.values()])

    @cached_property
    def _open_dims(self) -> dict[object, tuple[str, int]]:
        """The input and axis that have each symbolic size first, by its name or, without one, by these."""
        found: dict[object, tuple[str, int]] = {}
        for item in self.model.inputs:
            for axis, dim in enumerate(item.shape or ()):
                if not isinstance(dim, int):
                    found.setdefault(dim or (item.name, axis), (item.name, axis))
        return found

    def _related(self) -> list[Sample]:
        """Samples in which one size is the sum of two others, as a cache's length is; none if none fits."""
        for way in possible_sums(len(self._open_dims)):
            first = self._sample(with_sum(SAMPLES[1], way))
            if first is not None and first.complete:
                others = (self._sample(with_sum(SAMPLES[n], way)) for n in (3, 2))
                # A cache begins without entries, of which kernels read nothing.
                starts = (self._sample(with_sum(SAMPLES[3], way, empty)) for empty in way[1:])
                self.starts = [s.shapes for s in starts if s is not None and s.complete]
                return [first, *(s for s in others if s is not None)]
        return []

    def _sample(self, sizes: Sequence[int]) -> Sample | None:
        shapes = self.input_shapes(sizes)
        if shapes is None:
            return None
        found = Sample(shapes, {})
        for condition in (True, False):
            walk, guesses = self._sample_walk(shapes), DataGuesses(sizes, condition)
            try:
                while (stop := walk.run()) is not None and (answer := guesses.answer(stop)) is not None:
                    walk.learn(answer)
                found.complete = found.complete or stop is None
                found.fits = True
            except EngineError as error:
                # This setting of the dimensions is one that the model cannot take.
                found.error = str(error)
                found.size_conflicts = error.size_conflicts if isinstance(error, ShapeError) else ()
            for key, made in walk.shapes.items():
                if found.layers.setdefault(key, made) != made:
                    found.layers[key] = None
            for name, runs in walk.runs.items():
                found.runs.setdefault(name, set()).update(runs)
            found.steps = max(found.steps, walk.steps)
            if not guesses.conditions:
                break
        return found

    def _sample_walk(self, shapes: Mapping[str, tuple[int, ...]]) -> SampleWalk:
        values: dict[str, Entry] = dict(self.root.constants)
        for item in self.model.inputs:
            values[item.name] = Value(item.name, shapes[item.name], item.dtype)
        count = Value(SCHEDULE_COUNT, (1,), np.dtype(np.uint32))
        return SampleWalk(
            self.graphs, [GraphFrame(self.root, values)], {}, self.fan_in, count, self.whole_layers
        )

    def _stops(self) -> bool:
        """Whether a model of fixed input shapes has others that depend on data."""
        shapes = self.input_shapes(SAMPLES[0])
        try:
            return shapes is not None and self._sample_walk(shapes).run() is not None
        except EngineError:
            return False  # its error is raised, with its shapes, when it is planned

    def trace(self, shapes: InputShapes, known: Elements | None = None) -> Trace:
        """Formulas for given input shapes, to the model's end or to the first layer that needs data.

        `known` gives elements of inputs that the host has.
        """
        # Copies: plans are kept, and must not change with the caller's arrays.
        learned = {name: np.array(array).reshape(-1) for name, array in (known or {}).items()}

        def with_text(value: Value) -> Value:
            # Devices hold no text, so text that is passed through to an output is read from the plan.
            text = learned.get(value.root.name) if value.dtype == TEXT else None
            if text is None:
                return value
            return Value(value.name, value.shape, value.dtype, value.signature, text.reshape(value.shape))

        values: dict[str, Entry] = dict(self.root.constants)
        for item in self.model.inputs:
            values[item.name] = mapped(self._input(item, shapes[item.name]), with_text)
        return self._finish(self._plan_walk([GraphFrame(self.root, values)], learned), ())

    def resume(
        self,
        trace: Trace,
        known: Elements,
        results: Sequence[Any] | None = None,
        shape_of: ShapeOf = np.shape,
    ) -> Trace:
        """Continue from a stop with the elements that it needed or the results of its call.

        `shape_of` says which sizes a result has in the plan, where those are open.
        """
        assert trace.stop is not None
        frames = [frame.copy() for frame in trace.frames]
        learned = {**trace.learned, **{n: np.asarray(a).reshape(-1) for n, a in known.items()}}
        received: list[Value] = []
        walk = self._plan_walk(frames, learned)
        if results is not None:
            frame = frames[-1]
            name = f"{frame.layer.name}{frame.path}"

            def value(array: np.ndarray) -> Value:
                is_text = array.dtype == object
                made = Value(f"{name} result {len(received)}", shape_of(array), array.dtype, None, None)
                if is_text:
                    made.known = array
                received.append(made)
                return made

            walk.bind(frame, as_entries(results, value), empty=True)
        return self._finish(walk, tuple(received))

    @cached_property
    def varying(self) -> frozenset[str]:
        """The layers whose iteration counts differ between samples."""
        runs: dict[str, set[int]] = {}
        for sample in self.samples:
            for name, numbers in sample.runs.items():
                runs.setdefault(name, set()).update(numbers)
        return frozenset(name for name, numbers in runs.items() if len(numbers) > 1)

    def _plan_walk(self, frames: list[GraphFrame], learned: Elements) -> PlanWalk:
        walk = PlanWalk(self.graphs, frames, learned, self.fan_in, self.count, self.whole_layers)
        walk.memo = self.memo
        if self.samples or not self.is_dynamic:
            walk.samples = [s.layers for s in self.samples]
        walk.varying = self.varying
        return walk

    def _finish(self, walk: PlanWalk, received: tuple[Value, ...]) -> Trace:
        stop = walk.run()
        values = walk.frames[0].values
        kept = walk.pending(stop)
        trace = Trace(values, walk.frames, walk.learned, walk.computes, stop, kept, received)
        if stop is not None:
            # A body that was walked to its end is at none of its layers.
            at = next(f.layer for f in reversed(walk.frames) if f.position < len(f.graph.layers))
            trace.layer = at.name, at.op_type
        return trace

    def _input(self, item: Input, shape: InputShape) -> Entry:
        if isinstance(shape, SequenceShape):
            # The keys of a map, then its values.
            types = (TEXT, item.dtype) if item.kind == "map" else repeat(item.dtype)
            leaves_ = zip(leaf_names(item.name, shape), types, strict=False)
            items = tuple(self._given(name, sizes, dtype) for (name, sizes), dtype in leaves_)
            return ListValue(items, item.dtype)
        if shape is None:
            if item.kind != "optional":
                raise ShapeError(f"input '{item.name}' of model '{self.model.name}' has no shape")
            return None
        value = self._given(item.name, shape, item.dtype)
        value.signature = self._input_signature(item.name, shape)
        return value

    def _given(self, name: str, shape: tuple[int, ...], dtype: np.dtype) -> Value:
        return Value(name, shape, dtype) if self.memo is None else self.memo.tensor(name, shape, dtype)

    def _input_signature(self, name: str, shape: tuple[int, ...]) -> Signature | None:
        if self.is_dynamic and not self.samples:
            return None
        return tuple((*(s.shapes[name][axis] for s in self.samples), size) for axis, size in enumerate(shape))

    @property
    def grows_with_sizes(self) -> bool:
        """Whether plans have more steps at larger sizes, such as loops over a dynamic dimension."""
        fitting = [s for s in self.samples if s.fits]
        return bool(fitting) and max(fitting, key=_size).steps > 2 * min(s.steps for s in fitting)

    def others(self) -> list[dict[str, tuple[int, ...]]]:
        """Further input shapes, for kernels that are chosen by size."""
        known = self.representatives()
        fitting = [s for s in self.samples if s.fits and not s.empty]
        further = [s.shapes for s in fitting if s.shapes not in known]
        if not fitting or not self.is_dynamic:
            return []
        found = further[:1]
        if len(further) > 1:
            found.append(max(further[1:], key=lambda shapes: sum(map(prod, shapes.values()))))
        # Where a size is a number of steps, a plan for a large one takes long.
        beyond: tuple[tuple[int, ...], ...] = (SMALL, LARGE) if len({s.steps for s in fitting}) == 1 else ()
        if next(iter(self._open_dims.values()), ("", 0))[1] > 0:
            beyond = tuple(sizes[1:] for sizes in beyond)
        return [*found, *(shapes for sizes in beyond if (shapes := self.input_shapes(sizes)) is not None)]

    def representatives(self) -> list[dict[str, tuple[int, ...]]]:
        """Input shapes that represent all: the model's own if static, else its samples'.

        Where the number of steps depends on a size (a recurrent layer's length), the sample with the most and
        the largest one are among them; where a cache grows, one is without entries.
        """
        if not self.is_dynamic:
            shapes = self.input_shapes(SAMPLES[0])
            return [] if shapes is None else [shapes]
        fitting = [s for s in self.samples if s.fits]
        if not fitting:
            return []
        # The smallest: a device's limits are about the sizes that come, not about those made up here. But not
        # one that leaves tensors empty, of which nothing is computed.
        found = [min(fitting, key=lambda s: (s.empty, _size(s)))]
        # A repeated step is in a plan once, so the largest sizes need not make the longest plan.
        for other in (max(fitting, key=lambda s: s.steps), max(fitting, key=_size)):
            if all(other.steps != s.steps for s in found):
                found.append(other)
        return [s.shapes for s in found] + self.starts


def _size(sample: Sample) -> int:
    """How many elements the inputs of a sample have."""
    return sum(map(prod, sample.shapes.values()))


def live(computes: Sequence[Compute], wanted: Sequence[Value]) -> list[Compute]:
    """The computes that `wanted` depend on, in order."""
    needed = {v.root for v in wanted}
    kept = []
    for compute in reversed(computes):
        if compute.output in needed:
            kept.append(compute)
            needed.update(compute.reads)
    return kept[::-1]
