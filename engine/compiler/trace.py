"""From layers to formulas: runs every operator's definition for given input shapes.

A kernel's structure may depend on what the model's symbolic shapes fix, never on one set of sizes. What
they fix is found by sampling: the shapes of all tensors are worked out for a few settings of the named
dimensions; a dimension that is the same in all of them is static, two that agree in all of them are the
same dimension (`Value.signature`). The sizes of the run at hand are appended as one more sample, so a
coincidence that the samples suggest and the run refutes is never believed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from engine.compiler.plan import Compute
from engine.dtypes import arithmetic_type
from engine.errors import EngineError, ShapeError, UnsupportedLayerError
from engine.kernels.evaluate import evaluate
from engine.kernels.expr import index, nodes
from engine.kernels.hint import Hint
from engine.kernels.kernel import number
from engine.kernels.value import Signature, Value
from engine.model import Layer, Model
from engine.operators import OPERATORS
from engine.operators.builder import FAN_IN, Builder, Formula, Groups
from engine.operators.registry import Operator, Registry

FOLD_LIMIT = 1 << 22
"""Largest tensor, in elements, evaluated ahead of time; a shape has a few, a weight up to millions."""

SAMPLES: tuple[tuple[int, ...], ...] = (
    (1,) * 8,
    (11, 13, 17, 19, 23, 29, 31, 37),
    (64, 96, 128, 160, 192, 224, 256, 288),
    (5, 3, 7, 2, 9, 4, 8, 6),
    # Exporters give dimensions names of their own that a model needs to be equal.
    (64,) * 8,
    (10,) * 8,
)
"""Sizes given to a model's open dimensions, in order of appearance; sets that a model refuses go unused."""


def space_of(shape: Sequence[int], groups: Groups | None) -> tuple[int, ...]:
    """The index space of an output: its shape, or the products over its groups of axes; never empty."""
    if groups is not None:
        return tuple(prod(shape[a] for a in group) for group in groups) or (1,)
    return tuple(shape) or (1,)


def extents_of(value: Value, groups: Groups | None) -> Signature | None:
    """The signature of an output's index space."""
    if value.signature is None:
        return None
    runs = groups if groups is not None else tuple((a,) for a in range(value.rank))
    signature = value.signature
    return tuple(tuple(map(prod, zip(*(signature[a] for a in run), strict=True))) for run in runs)


class ShapeBuilder(Builder):
    """Works out shapes, and elements where every input of the layer is known. Makes no kernels."""

    def __init__(self, layer: Layer, foldable: bool, wanted: Sequence[bool], fan_in: int = FAN_IN) -> None:
        self.layer = layer
        self.foldable = foldable
        self.wanted = wanted
        self.fan_in = fan_in
        self.shapes: list[tuple[int, ...]] = []

    def compute(
        self,
        shape: Sequence[int],
        dtype: np.dtype,
        formula: Formula,
        *,
        signature: Signature | None = None,
        hint: object = None,
        groups: Groups | None = None,
        elementwise: bool = False,
    ) -> Value:
        value = Value(f"{self.layer.name} #{len(self.shapes)}", shape, dtype)
        if min(value.shape, default=0) < 0:
            self.error(f"its output would have the shape {value.shape}; the input is too small for it")
        self.shapes.append(value.shape)
        if self.foldable and value.size <= FOLD_LIMIT:
            self.fold(value, formula, groups)
        return value

    def fold(self, value: Value, formula: Formula, groups: Groups | None) -> None:
        """Evaluate now, if the formula reads nothing unknown."""
        space = space_of(value.shape, groups)
        body = formula(*(index(a) for a in range(len(groups if groups is not None else value.shape))))
        kernel, values, inputs = number(body, len(space), value.dtype)
        if all(v.known is not None for v in inputs):
            arrays = [v.known for v in inputs if v.known is not None]
            value.known = evaluate(kernel, space, values, arrays).reshape(value.shape)

    def alias(self, x: Value, shape: Sequence[int]) -> Value:
        self.shapes.append(tuple(shape))
        if prod(shape) != x.size:
            self.error(f"cannot view {list(x.shape)} as {list(shape)}")
        return x.view(shape)

    def constant(self, array: np.ndarray) -> Value:
        self.shapes.append(array.shape)
        return Value(f"{self.layer.name} #{len(self.shapes)} known", array.shape, array.dtype, None, array)

    def wants(self, position: int) -> bool:
        return self.wanted[position] if position < len(self.wanted) else False


class PlanBuilder(ShapeBuilder):
    """Works out shapes and records the formulas."""

    def __init__(
        self,
        layer: Layer,
        foldable: bool,
        wanted: Sequence[bool],
        fan_in: int,
        recorded: list[list[tuple[int, ...]]] | None,
    ) -> None:
        super().__init__(layer, foldable, wanted, fan_in)
        self.recorded = recorded
        self.computes: list[Compute] = []

    def signature(self, shape: Sequence[int]) -> Signature | None:
        """What the samples say about the tensor that is being made, with its present shape appended."""
        if self.recorded is None:
            return None
        position = len(self.shapes) - 1
        if any(len(r) <= position or len(r[position]) != len(shape) for r in self.recorded):
            return None
        return tuple((*(r[position][axis] for r in self.recorded), size) for axis, size in enumerate(shape))

    def compute(
        self,
        shape: Sequence[int],
        dtype: np.dtype,
        formula: Formula,
        *,
        signature: Signature | None = None,
        hint: object = None,
        groups: Groups | None = None,
        elementwise: bool = False,
    ) -> Value:
        value = super().compute(shape, dtype, formula, groups=groups)
        value.signature = self.signature(value.shape)
        if value.known is not None or value.size == 0:
            return value
        space = space_of(value.shape, groups)
        body = formula(*(index(a) for a in range(len(groups if groups is not None else value.shape))))
        expected = arithmetic_type(value.dtype)
        if body.dtype != expected and not (expected == "int32" and body.dtype == "index"):
            raise TypeError(f"{self.layer}: the formula yields {body.dtype}, its output needs {expected}")
        found = hint() if callable(hint) else None
        assert found is None or isinstance(found, Hint)
        compute = Compute(value, space, body, self.layer.name, self.layer.op_type, found)
        compute.extents = extents_of(value, groups)
        compute.elementwise = elementwise
        self.computes.append(compute)
        return value

    def alias(self, x: Value, shape: Sequence[int]) -> Value:
        view = super().alias(x, shape)
        view.signature = self.signature(view.shape)
        return view

    def constant(self, array: np.ndarray) -> Value:
        value = super().constant(array)
        value.signature = self.signature(value.shape)
        return value


@dataclass
class Trace:
    """Formulas of consecutive layers. `stopped_at` is the first layer that needs elements not yet known,
    `needs` the tensors it needs them of; None and empty at the model's end.
    """

    computes: list[Compute] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)
    stopped_at: int | None = None
    needs: tuple[str, ...] = ()


class Tracer:
    """Runs the operators' definitions of one model; holds what its samples say.

    `fan_in` is how many tensors a kernel may read: layers with many inputs become as many steps as it takes.
    """

    def __init__(self, model: Model, fan_in: int = FAN_IN, registry: Registry = OPERATORS) -> None:
        self.model = model
        self.fan_in = fan_in
        self.operators: list[Operator] = []
        for layer in model.layers:
            found = registry.find(layer.domain, layer.op_type, layer.version)
            if found is None:
                reason = registry.unsupported(layer.domain, layer.op_type, layer.version)
                raise UnsupportedLayerError(f"{layer}: {reason}")
            self.operators.append(found)
        used = {name for layer in model.layers for name in layer.dependencies} | {
            o.name for o in model.outputs
        }
        self.wanted = [[name in used for name in layer.outputs] for layer in model.layers]
        self.constants = {
            name: Value(name, array.shape, array.dtype, None, array)
            for name, array in model.constants.items()
        }
        self.samples = self._samples()
        width = len(self.samples) + 1
        for value in self.constants.values():
            value.signature = tuple((size,) * width for size in value.shape)

    def input_shapes(self, sizes: Sequence[int]) -> dict[str, tuple[int, ...]] | None:
        """The input shapes with dynamic dimensions set from `sizes`; None where a rank is unknown."""
        named: dict[str, int] = {}
        supply = iter([*sizes, *(sizes[-1] + 2 * n for n in range(1, 64))])
        shapes: dict[str, tuple[int, ...]] = {}
        for item in self.model.inputs:
            if item.shape is None:
                return None
            dims = []
            for size in item.shape:
                if isinstance(size, int):
                    dims.append(size)
                elif size is None:
                    dims.append(next(supply))
                else:
                    if size not in named:
                        named[size] = next(supply)
                    dims.append(named[size])
            shapes[item.name] = tuple(dims)
        return shapes

    @property
    def is_dynamic(self) -> bool:
        """Whether any input dimension is left open."""
        return any(item.shape is None or not item.shape.is_static for item in self.model.inputs)

    def _samples(self) -> list[Sample]:
        if not self.is_dynamic:
            return []
        runs = [s for s in map(self._sample, SAMPLES) if s is not None]
        furthest = max((len(s.layers) for s in runs), default=0)
        return [s for s in runs if len(s.layers) == furthest and furthest]

    def _sample(self, sizes: Sequence[int]) -> Sample | None:
        shapes = self.input_shapes(sizes)
        if shapes is None:
            return None
        values = dict(self.constants)
        for item in self.model.inputs:
            values[item.name] = Value(item.name, shapes[item.name], item.dtype)
        sample = Sample(shapes, [], values)
        for position, layer in enumerate(self.model.layers):
            inputs = [values[name] if name else None for name in layer.inputs]
            if self.missing(position, values):
                break
            builder = ShapeBuilder(layer, self.foldable(position, inputs), self.wanted[position], self.fan_in)
            try:
                outputs = self.operators[position].build(builder, tuple(inputs))
            except EngineError:
                # This setting of the dimensions is one that the model cannot take.
                break
            sample.layers.append(builder.shapes)
            _bind(layer, outputs, values)
        return sample

    def missing(self, position: int, values: Mapping[str, Value]) -> tuple[str, ...]:
        """Inputs of a layer whose elements are needed on the host and not known."""
        layer = self.model.layers[position]
        host = self.operators[position].host_positions(len(layer.inputs))
        names = [layer.inputs[i] for i in host]
        return tuple(dict.fromkeys(n for n in names if n and values[n].known is None and values[n].size))

    def foldable(self, position: int, inputs: Sequence[Value | None]) -> bool:
        """Whether a layer's result can be known ahead of time."""
        return self.operators[position].precision != "random" and all(
            x is None or x.known is not None for x in inputs
        )

    def trace(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        known: Mapping[str, np.ndarray] | None = None,
        start: int = 0,
        values: Mapping[str, Value] | None = None,
    ) -> Trace:
        """Formulas for given input shapes, from layer `start` (0, or where an earlier trace stopped).

        `known` gives elements that the host has: of inputs, or, when going on, of what was needed. `values`
        are the tensors that exist already (an earlier trace's).
        """
        known = known or {}
        result = Trace(values=dict(self.constants if values is None else values))
        env = result.values
        if values is None:
            for item in self.model.inputs:
                env[item.name] = Value(
                    item.name,
                    shapes[item.name],
                    item.dtype,
                    self._input_signature(item.name, shapes[item.name]),
                )
        for name, array in known.items():
            env[name] = _with_elements(env[name], array)
        for position in range(start, len(self.model.layers)):
            needs = self.missing(position, env)
            if needs:
                result.stopped_at, result.needs = position, needs
                return result
            layer = self.model.layers[position]
            inputs = [env[name] if name else None for name in layer.inputs]
            # After a stop shapes depend on data, of which the samples know nothing.
            recorded = self._recorded(position) if values is None else None
            builder = PlanBuilder(
                layer, self.foldable(position, inputs), self.wanted[position], self.fan_in, recorded
            )
            try:
                outputs = self.operators[position].build(builder, tuple(inputs))
            except EngineError:
                raise
            except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                shown = ", ".join("none" if x is None else f"{x.dtype.name}{list(x.shape)}" for x in inputs)
                raise ShapeError(f"{layer} cannot take inputs {shown}: {error}") from error
            result.computes.extend(builder.computes)
            _bind(layer, outputs, env)
        return result

    def _recorded(self, position: int) -> list[list[tuple[int, ...]]] | None:
        if self.samples:
            complete = len(self.samples[0].layers) > position
            return [s.layers[position] for s in self.samples] if complete else None
        return None if self.is_dynamic else []

    def _input_signature(self, name: str, shape: tuple[int, ...]) -> Signature | None:
        if self.is_dynamic and not self.samples:
            return None
        return tuple((*(s.shapes[name][axis] for s in self.samples), size) for axis, size in enumerate(shape))

    def representatives(self) -> list[dict[str, tuple[int, ...]]]:
        """Input shapes that stand for all: the model's own where they are fixed, else samples'.

        Where the number of steps depends on a size (a recurrent layer's length), the longest sample is one.
        """
        if not self.is_dynamic:
            shapes = self.input_shapes(SAMPLES[0])
            return [] if shapes is None else [shapes]
        if not self.samples:
            return []
        first, longest = self.samples[0], max(self.samples, key=lambda s: s.steps)
        return [first.shapes] if first.steps == longest.steps else [first.shapes, longest.shapes]


@dataclass
class Sample:
    """The shapes of everything that the layers made, for one setting of the named dimensions."""

    shapes: dict[str, tuple[int, ...]]
    layers: list[list[tuple[int, ...]]]
    values: dict[str, Value]

    @property
    def steps(self) -> int:
        """How many tensors the layers made on the way."""
        return sum(map(len, self.layers))


def _with_elements(value: Value, array: np.ndarray) -> Value:
    """The tensor once more, known from here on: what reads it reads a constant, and can be folded."""
    return Value(value.name, array.shape, value.dtype, value.signature, np.array(array, dtype=value.dtype))


def _bind(layer: Layer, outputs: Sequence[Value | None], values: dict[str, Value]) -> None:
    if len(layer.outputs) > len(outputs):
        raise ShapeError(f"{layer} has {len(layer.outputs)} outputs; the operator yields {len(outputs)}")
    for name, value in zip(layer.outputs, outputs, strict=False):
        if name:
            if value is None:
                raise ShapeError(f"{layer}: its output '{name}' is not available")
            values[name] = value


def live(computes: Sequence[Compute], wanted: Sequence[Value]) -> list[Compute]:
    """The computes that `wanted` depend on, in order."""
    needed = {v.root for v in wanted}
    kept = []
    for compute in reversed(computes):
        if compute.output in needed:
            kept.append(compute)
            needed.update(reads(compute))
    return kept[::-1]


def reads(compute: Compute) -> tuple[Value, ...]:
    """The tensors that a formula loads, each once."""
    formulas = (compute.body,) if compute.epilogue is None else (compute.epilogue, compute.body)
    return tuple(dict.fromkeys(node.attr for node in nodes(*formulas) if node.op == "load"))
