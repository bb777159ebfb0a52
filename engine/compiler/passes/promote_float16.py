"""Promotes float16 and bfloat16 arithmetic to float32, for which backends have tuned kernels.

Weights are converted once, and tensors between layers stay float32. A tensor is rounded to its declared type
only where that shows: in an output, at the border of a subgraph, and for layers that are not listed here. In
onnxruntime's CPU provider it is the same: it converts around each layer that has no float16 kernel, and takes
out pairs of conversions between two such layers, those of the file included. Layers that only move
elements of a tensor that exists in half precision stay as they are, and move fewer bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from engine.compiler.plan import storable
from engine.graph.model import CONTRIB, Layer, Model

_CODES = {"float16": 10, "bfloat16": 16}
"""The types that are promoted, with their numbers in ONNX."""

_FLOAT32 = 1

_MOVING = frozenset(
    """Compress Concat Expand Flatten Gather GatherElements GatherND Identity Reshape ReverseSequence Scatter
    ScatterElements ScatterND Slice Split Squeeze TensorScatter Transpose Unsqueeze""".split()
)

_COMPUTING = frozenset(
    """Abs Acos Acosh Add AffineGrid ArgMax ArgMin Asin Asinh Atan Atanh Attention AveragePool
    BatchNormalization CausalConvWithState CastLike Ceil Celu CenterCropPad Clip Col2Im Conv ConvTranspose Cos
    Cosh CumProd CumSum DeformConv DepthToSpace DequantizeLinear Det DFT Div Dropout Einsum Elu Equal Erf Exp
    Floor GRU Gelu Gemm GlobalAveragePool GlobalLpPool GlobalMaxPool Greater GreaterOrEqual GridSample
    GroupNormalization HardSigmoid HardSwish Hardmax InstanceNormalization IsNaN LRN LSTM LayerNormalization
    LeakyRelu Less LessOrEqual Log LogSoftmax LpNormalization LpPool MatMul Max MaxPool MaxUnpool Mean
    MeanVarianceNormalization Min Mish Mod Mul Neg NonZero OneHot PRelu Pad Pow RMSNormalization RNN Range
    Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd
    ReduceSum ReduceSumSquare Relu Resize RoiAlign RotaryEmbedding Round STFT Selu Shape Shrink Sigmoid Sign
    SimplifiedLayerNormalization Sin Sinh Size Softmax Softplus Softsign SpaceToDepth Sqrt Sub Sum Swish Tan
    Tanh ThresholdedRelu Tile TopK Trilu Upsample Where""".split()
)

_FUSED = frozenset(
    """Attention BiasAdd BiasGelu BiasSplitGelu EmbedLayerNormalization FastGelu FusedConv FusedGemm
    FusedMatMul Gelu GroupNorm GroupQueryAttention LayerNormalization MatMulNBits MultiHeadAttention
    NhwcConv NhwcFusedConv NhwcMaxPool QuickGelu RotaryEmbedding SimplifiedLayerNormalization
    SkipGroupNorm SkipLayerNormalization SkipSimplifiedLayerNormalization TransposeMatMul""".split()
)
"""Layers of onnxruntime's own."""

_ALIKE = frozenset(
    """Add Concat Conv ConvTranspose Div Equal FusedConv FusedMatMul Gemm Greater GreaterOrEqual
    GroupNormalization InstanceNormalization Less LessOrEqual MatMul Max Mean Min Mod Mul PRelu Sub
    Sum""".split()
)
"""Layers whose inputs have one type, so that one of them determines the others'."""

_DECIDES = {
    "CastLike": 1, "DequantizeLinear": 1, "EmbedLayerNormalization": 2, "OneHot": 2, "RMSNormalization": 1,
    "Where": 1,
}  # fmt: skip
"""Which input has the type of the results, where it is not the first."""

_CACHES = {"GroupQueryAttention": {1: 3, 2: 4}}
"""Results that have the type of an input which is never converted, by their positions: caches are large."""

_RESULTS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(
        """ArgMax ArgMin Equal Greater GreaterOrEqual IsNaN Less LessOrEqual NonZero Shape Size""".split(), ()
    ),
    **dict.fromkeys(
        """BatchNormalization Dropout EmbedLayerNormalization LayerNormalization MaxPool
        SimplifiedLayerNormalization TopK""".split(),
        (0,),
    ),
    **dict.fromkeys(["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"], (0, 3)),
}
"""Which results have that type, where not all do."""

_NAMED_IN = {
    "Bernoulli": "dtype", "EyeLike": "dtype", "Multinomial": "dtype", "RandomNormal": "dtype",
    "RandomNormalLike": "dtype", "RandomUniform": "dtype", "RandomUniformLike": "dtype",
    "BlackmanWindow": "output_datatype", "HammingWindow": "output_datatype", "HannWindow": "output_datatype",
    "DequantizeLinear": "output_dtype",
}  # fmt: skip
"""Attributes that give the type of the result as a number; without them it is the first input's."""


def promote_float16(model: Model) -> Model:
    """Compute in float32 what the model computes in float16 or bfloat16."""
    if not _has_halves(model):
        return model
    scope = _GraphRewriter(model, None)
    promoted = scope.promoted()
    return promoted if scope.count else model


@storable
def as_float32(array: np.ndarray) -> np.ndarray:
    """The elements as float32."""
    return array.astype(np.float32)


def _half(dtype: np.dtype[Any] | None) -> int:
    return 0 if dtype is None else _CODES.get(dtype.name, 0)


def _has_halves(model: Model) -> bool:
    if any(_half(item.dtype) for item in model.inputs) or any(
        _half(a.dtype) for a in model.constants.values()
    ):
        return True
    codes = _CODES.values()
    for layer in model.layers:
        for value in layer.attributes.values():
            if isinstance(value, np.ndarray) and _half(value.dtype):
                return True
        named = "to" if layer.op_type == "Cast" else _NAMED_IN.get(layer.op_type, "")
        if layer.attributes.get(named) in codes or any(map(_has_halves, layer.subgraphs)):
            return True
    return False


class _GraphRewriter:
    """One graph while it is rewritten, inside the graph whose layer holds it.

    A value of half precision has two forms: its own name stands for what the model declares, `wide` has the
    name of its float32 form. Either is made when a layer first wants it.
    """

    def __init__(self, graph: Model, outer: _GraphRewriter | None, title: str = "") -> None:
        """`title` distinguishes the layers that are made here from those of other graphs."""
        self.graph = graph
        self.outer = outer
        self.title = title
        self.layers: list[Layer] = []
        self.constants = dict(graph.constants)
        self.constant_factories: dict[str, Callable[[], np.ndarray]] = dict(graph.constant_factories)
        self.halves: dict[str, int] = {}
        """Values of half precision, with the number of their type."""
        self.wide: dict[str, str] = {}
        self.unmade: dict[str, Layer] = {}
        """How a value is made in its own type, until something wants it so."""
        self.unknown: set[str] = set()
        """Values that may be of half precision."""
        self.same: dict[str, str] = {}
        """Values that are the float32 form of another one."""
        self.count = 0
        """How many layers that compute were promoted, those of subgraphs included."""
        for item in graph.inputs:
            if code := _half(item.dtype):
                self.halves[item.name] = code
            elif item.kind != "tensor" or item.dtype.kind == "V":
                self.unknown.add(item.name)
        for name, array in graph.constants.items():
            if code := _half(array.dtype):
                self.halves[name] = code

    def promoted(self) -> Model:
        """The graph with its layers rewritten."""
        for layer in self.graph.layers:
            self._rewrite(layer)
        for output in self.graph.outputs:
            if self._resolved(output.name) != output.name:
                self._yield(output.name)
            self._make(output.name)
        used = {name for layer in self.layers for name in layer.dependencies}
        used |= {output.name for output in self.graph.outputs}
        constants = {
            name: array for name, array in self.constants.items() if name in used or name not in self.halves
        }
        makers = self.constant_factories if self.outer is None else {}
        return self.graph.replace(layers=tuple(self.layers), constants=constants, constant_factories=makers)

    def _yield(self, name: str) -> None:
        """Have an output that is the float32 form of another value exist under its own name."""
        source = self._resolved(name)
        yielded = {output.name for output in self.graph.outputs}
        makers = [layer for layer in self.layers if source in layer.outputs]
        if not makers or source in yielded or any(layer.subgraphs for layer in self.layers):
            self.layers.append(self._layer("Identity", source, name))
            return

        def renamed(names: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(name if n == source else n for n in names)

        self.layers = [
            layer.replace(inputs=renamed(layer.inputs), outputs=renamed(layer.outputs))
            if source in layer.inputs or source in layer.outputs
            else layer
            for layer in self.layers
        ]
        for forms in (self.same, self.wide):
            forms.update({key: name for key, form in forms.items() if form == source})
        self.unmade = {key: layer.replace(inputs=renamed(layer.inputs)) for key, layer in self.unmade.items()}

    # Values

    def _scopes(self) -> Iterator[_GraphRewriter]:
        """This scope and those around it."""
        scope: _GraphRewriter | None = self
        while scope is not None:
            yield scope
            scope = scope.outer

    def _defining(self, name: str) -> _GraphRewriter | None:
        """The scope in which a value of half precision is defined."""
        return next((scope for scope in self._scopes() if name in scope.halves), None)

    def _code(self, name: str) -> int:
        scope = self._defining(name)
        return 0 if scope is None else scope.halves[name]

    def _is_unknown(self, name: str) -> bool:
        return any(name in scope.unknown for scope in self._scopes())

    def _learn(self, name: str, code: int) -> None:
        """Note the type of a value that was unknown."""
        for scope in self._scopes():
            if name in scope.unknown:
                scope.unknown.remove(name)
                scope.halves[name] = code

    def _resolved(self, name: str) -> str:
        return next((scope.same[name] for scope in self._scopes() if name in scope.same), name)

    def _make(self, name: str) -> None:
        """Have a value exist in the type that the model declares."""
        scope = self._defining(name)
        if scope is not None and (maker := scope.unmade.pop(name, None)) is not None:
            scope.layers.append(maker)

    def _promoted(self, name: str) -> str:
        """The name of a value's float32 form."""
        scope = self._defining(name)
        assert scope is not None
        if name not in scope.wide:
            wide = scope.wide[name] = _wide_name(name)
            if name in scope.constants:
                make = scope.constant_factories[wide] = partial(as_float32, scope.constants[name])
                scope.constants[wide] = make()
            elif name in scope.unmade:
                # What another type was converted from, without a stop at half precision.
                maker = scope.unmade[name]
                scope.layers.append(scope._layer("Cast", maker.inputs[0], wide, _FLOAT32))
            else:
                scope.layers.append(scope._layer("Cast", name, wide, _FLOAT32))
        return scope.wide[name]

    def _exists(self, name: str) -> bool:
        """Whether a value of half precision exists as such, and is no constant."""
        scope = self._defining(name)
        return scope is not None and name not in scope.unmade and name not in scope.constants

    # Layers

    def _rewrite(self, layer: Layer) -> None:
        layer = layer.replace(inputs=tuple(map(self._resolved, layer.inputs)))
        halves = [name for name in layer.inputs if name and self._code(name)]
        if halves and layer.op_type in _ALIKE:
            for name in filter(self._is_unknown, layer.inputs):
                self._learn(name, self._code(halves[0]))
        if layer.subgraphs:
            self._rewrite_bodies(layer)
        elif layer.op_type == "Cast" and not layer.domain:
            self._rewrite_cast(layer, int(layer.attributes["to"]))
        elif layer.op_type == "CastLike" and (code := self._code(layer.inputs[1])):
            cast = self._layer("Cast", layer.inputs[0], layer.outputs[0], code)
            self._rewrite_cast(cast.replace(name=layer.name), code)
        elif self._stays(layer, halves):
            self._keep(layer)
        else:
            self._promote(layer)

    def _stays(self, layer: Layer, halves: Sequence[str]) -> bool:
        """Whether a layer, `halves` of whose inputs are of half precision, keeps its types."""
        if not halves or any(map(self._is_unknown, layer.inputs)) or not _is_listed(layer):
            return True
        if layer.op_type not in _MOVING:
            return False
        return any(map(self._exists, halves)) or all(n in self._constants_around(n) for n in halves)

    def _constants_around(self, name: str) -> Mapping[str, np.ndarray]:
        scope = self._defining(name)
        return {} if scope is None else scope.constants

    def _promote(self, layer: Layer) -> None:
        caches = {
            layer.outputs[result]: layer.inputs[position]
            for result, position in _CACHES.get(layer.op_type, {}).items()
            if result < len(layer.outputs) and position < len(layer.inputs) and layer.inputs[position]
        }
        for name, past in caches.items():
            self._make(past)
            if code := self._code(past):
                self.halves[name] = code
        inputs = tuple(
            self._promoted(n) if n and n not in caches.values() and self._code(n) else n for n in layer.inputs
        )
        code = self._code(layer.inputs[_DECIDES.get(layer.op_type, 0)])
        results = [layer.outputs[i] for i in _results(layer)] if code else []
        results = [name for name in results if name and name not in caches]
        for name in results:
            self.halves[name] = code
            self.wide[name] = _wide_name(name)
            self.unmade[name] = self._layer("Cast", self.wide[name], name, code)
        outputs = tuple(self.wide[name] if name in results else name for name in layer.outputs)
        self.layers.append(layer.replace(inputs=inputs, outputs=outputs))
        self.count += layer.op_type not in _MOVING

    def _keep(self, layer: Layer) -> None:
        """Keep a layer and record the types of its results."""
        for name in layer.dependencies:
            self._make(name)
        self.layers.append(layer)
        outputs = [name for name in layer.outputs if name]
        attribute = _NAMED_IN.get(layer.op_type)
        if layer.op_type == "ConstantOfShape":
            value = layer.attributes.get("value")
            code = _half(value.dtype) if isinstance(value, np.ndarray) else 0
            self.halves.update(dict.fromkeys(outputs, code) if code else {})
        elif attribute is not None and attribute in layer.attributes:
            code = int(layer.attributes[attribute])
            self.halves.update(dict.fromkeys(outputs, code) if code in _CODES.values() else {})
        elif _is_listed(layer) or attribute is not None:
            decides = layer.inputs[_DECIDES.get(layer.op_type, 0)] if layer.inputs else ""
            results = [layer.outputs[i] for i in _results(layer) if layer.outputs[i]]
            if code := self._code(decides):
                self.halves.update(dict.fromkeys(results, code))
            elif self._is_unknown(decides):
                self.unknown.update(results)
        elif layer.domain or any(self._code(n) or self._is_unknown(n) for n in layer.inputs):
            self.unknown.update(outputs)

    def _rewrite_cast(self, layer: Layer, to: int) -> None:
        source, name = layer.inputs[0], layer.outputs[0]
        code = self._code(source)
        if to in _CODES.values():
            self.halves[name] = to
            if code:
                source = self.wide[name] = self._promoted(source)
            self.unmade[name] = layer.replace(inputs=(source,))
        elif not code:
            self.layers.append(layer)
        elif to == _FLOAT32:
            scope = self._defining(source)
            if (
                scope is self
                and source not in self.wide
                and source not in self.constants
                and self._exists(source)
            ):
                self.wide[source] = name
                self.layers.append(layer)
            else:
                self.same[name] = self._promoted(source)
        else:
            self.layers.append(layer.replace(inputs=(self._promoted(source),)))

    def _rewrite_bodies(self, layer: Layer) -> None:
        bodies: dict[int, Model] = {}
        for body in layer.subgraphs:
            scope = _GraphRewriter(body, self, f"{self.title}{layer.name}/{len(bodies)}/")
            bodies[id(body)] = scope.promoted()
            self.count += scope.count
            if layer.op_type not in ("If", "Loop", "Scan"):
                self.unknown.update(filter(None, layer.outputs))
                continue
            first = 1 if layer.op_type == "Loop" else 0  # whether it continues
            for output, name in zip(body.outputs[first:], layer.outputs, strict=False):
                if code := scope._code(output.name):
                    self.halves[name] = code
                elif scope._is_unknown(output.name):
                    self.unknown.add(name)
        for name in layer.inputs:
            self._make(name)

        self.layers.append(layer.with_subgraphs(lambda body: bodies[id(body)]))

    def _layer(self, op_type: str, source: str, name: str, to: int = 0) -> Layer:
        """A layer of one input and one output; `to` is the type that it converts to."""
        attributes = {"to": to} if to else {}
        return Layer(op_type, f"{self.title}{name}: {op_type}", (source,), (name,), attributes, "", 13)


def _is_listed(layer: Layer) -> bool:
    if _NAMED_IN.get(layer.op_type) in layer.attributes:
        return False
    if layer.op_type == "BatchNormalization" and len(layer.outputs) > 1:
        return False  # in training, which yields more types
    if layer.domain == CONTRIB:
        return layer.op_type in _FUSED
    return not layer.domain and (layer.op_type in _COMPUTING or layer.op_type in _MOVING)


def _results(layer: Layer) -> range | list[int]:
    """The positions of the results that have the type of the input that decides."""
    count = len(layer.outputs)
    found = _RESULTS.get(layer.op_type)
    if layer.op_type == "Dropout" and layer.version < 10:
        found = None
    return range(count) if found is None else [i for i in found if i < count]


def _wide_name(name: str) -> str:
    return f"{name} as float32"
