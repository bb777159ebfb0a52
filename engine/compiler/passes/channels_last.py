"""NHWC layout around convolutions, for backends whose vectors run along channels.

A convolution reads and yields (N, *spatial, C), and what follows it does too as long as it can: elementwise
layers, pools, resizing, concatenation... Transposes stand only where such a region begins or ends, and one
that the model has itself is used. A value 'x' is called 'x/channels_last' in that form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from engine.graph.model import CONTRIB, Layer, Model
from engine.operators.convolution import taps_first
from engine.operators.layout import CHANNELS_LAST, LAST

SUFFIX = "/channels_last"

_FEW_CHANNELS = 4
"""Up to so many planes are read as planes by a network's first convolution."""

_LEAST_OUTPUTS = 16
"""Output channels of a group from which vectors along channels are worth it."""

_FEW_PRODUCTS = 32
"""So many products of a sum take less time than its way back to channels first."""

_FEW_OUTPUTS = 4
"""So many sums of all planes take less time than to put channels last."""

_FEW_INPUTS = 128
"""Input channels of which windows of one element are gathered in less time than channels are put last."""

_RANKS = (3, 4, 5)

_ONE_INPUT = frozenset(
    "Abs Cast Ceil Celu Clip Cos Dropout Elu Erf Exp Floor Gelu HardSigmoid HardSwish Identity"
    " IsNaN LeakyRelu Log Mish Neg Not Reciprocal Relu Round Selu Sigmoid Sign Sin Softplus"
    " Softsign Sqrt Swish Tanh ThresholdedRelu".split()
)
"""Elementwise in their first input; the others are numbers."""

_BROADCAST = frozenset(
    "Add And Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min Mul Or PRelu Pow Sub Sum Where"
    " Xor".split()
)
_REDUCTIONS = frozenset("ReduceL1 ReduceL2 ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum".split())


def channels_last(model: Model) -> Model:
    """Rewrite convolutions over one to three axes, and the layers between them, to NHWC."""
    return _Rewriting(model).result()


def to_last(rank: int) -> tuple[int, ...]:
    """The order of (N, C, *spatial)'s axes in (N, *spatial, C)."""
    return (0, *range(2, rank), 1)


def to_first(rank: int) -> tuple[int, ...]:
    """The order of (N, *spatial, C)'s axes in (N, C, *spatial)."""
    return (0, rank - 1, *range(1, rank - 1))


class _Rewriting:
    """The new graph as it grows. `last` names a value's form with channels last, where there is one."""

    def __init__(self, model: Model, around: _Rewriting | None = None) -> None:
        self.model = model
        # New constants of subgraphs, too, belong to the model: what they are made of may be used by several.
        self.root: _Rewriting = self if around is None else around.root
        self.constants: dict[str, np.ndarray] = {
            **({} if around is None else around.constants),
            **model.constants,
        }
        self.layers: list[Layer] = []
        self.last: dict[str, str] = {} if around is None else dict(around.last)
        self.first = {item.name for item in model.inputs} | set(self.constants)
        self.first |= set() if around is None else around.first
        self.ranks: dict[str, int] = {} if around is None else dict(around.ranks)
        self.ranks |= {item.name: len(item.shape) for item in model.inputs if item.shape is not None}
        self.ranks |= {name: array.ndim for name, array in self.constants.items()}
        self.used = {name for layer in model.layers for name in layer.dependencies}
        self.used |= {output.name for output in model.outputs}
        self.wanted_last = _wanted_last(model)

    def result(self) -> Model:
        for layer in self.model.layers:
            rule = _rule_for(layer)
            changed = None if rule is None else rule(self, layer)
            if changed is None:
                self.keep(self._with_bodies(layer) if layer.subgraphs else layer)
            else:
                self.layers.append(changed)
        for output in self.model.outputs:
            self.as_first(output.name)
        constants = self.constants if self.root is self else self.model.constants
        return self.model.replace(layers=tuple(self.layers), constants=constants)

    def _with_bodies(self, layer: Layer) -> Layer:
        """Rewrite a layer's subgraphs; values of this graph that they read keep the model's layout."""
        for name in layer.dependencies:
            self.as_first(name)
        return layer.with_subgraphs(lambda body: _Rewriting(body, self).result())

    def keep(self, layer: Layer) -> None:
        """Keep a layer as it is in the model."""
        for name in layer.dependencies:
            self.as_first(name)
        self.layers.append(layer)
        self.first.update(layer.outputs)
        if (rank := _rank_after(layer, self)) is not None:
            self.ranks |= dict.fromkeys(layer.outputs, rank)

    def as_first(self, name: str) -> str:
        """A value with its axes as the model has them; transposed here if it is not there yet."""
        if name in self.last and name not in self.first:
            self._transpose(self.last[name], name, to_first(self.ranks[name]))
            self.first.add(name)
        return name

    def as_last(self, name: str) -> str:
        """A value with channels last; transposed here if it is not there yet. Its rank must be known."""
        if name not in self.last:
            self.last[name] = name + SUFFIX
            order = to_last(self.ranks[name])
            if name in self.constants:
                array = np.ascontiguousarray(self.constants[name].transpose(order))
                self.last[name] = self.added(name + SUFFIX, array)
            else:
                self._transpose(name, name + SUFFIX, order)
        return self.last[name]

    def _transpose(self, source: str, target: str, perm: Sequence[int]) -> None:
        name = f"{target}/transposed"
        self.layers.append(Layer("Transpose", name, (source,), (target,), {"perm": tuple(perm)}, "", 13))

    def lasting(self, layer: Layer, rank: int, **changes: Any) -> Layer:
        """The layer with NHWC outputs, recorded as such, without unused outputs."""
        names = [name if name in self.used else "" for name in layer.outputs]
        while names and not names[-1]:
            names.pop()
        for name in filter(None, names):
            self.last[name] = name + SUFFIX
            self.ranks[name] = rank
        outputs = tuple(name + SUFFIX if name else "" for name in names)
        return layer.replace(outputs=outputs, **changes)

    def yields_one(self, layer: Layer) -> bool:
        """Whether only its first output is used."""
        return not self.used.intersection(layer.outputs[1:])

    def constant(self, layer: Layer, position: int) -> np.ndarray | None:
        """An input's elements; None if it is missing or computed."""
        name = layer.inputs[position] if position < len(layer.inputs) else ""
        return self.constants.get(name)

    def added(self, name: str, array: np.ndarray) -> str:
        """Add a constant and return its name, which is unique among subgraphs, too."""
        known = self.root.constants
        while self.root is not self and name in known and not np.array_equal(known[name], array):
            name += "'"
        self.constants[name] = known[name] = array
        return name

    def rank_of(self, name: str) -> int | None:
        """The rank of a value that has channels last, None for any other."""
        return self.ranks[name] if name in self.last and name not in self.constants else None


Rule = Callable[[_Rewriting, Layer], Layer | None]
"""The layer in its new form (whose inputs exist), or None where it stays as it is."""


def _rule_for(layer: Layer) -> Rule | None:
    op_type = layer.op_type
    if layer.subgraphs or (layer.domain and (layer.domain, op_type) != (CONTRIB, "FusedConv")):
        return None
    if op_type in _ONE_INPUT:
        return _one_input
    if op_type in _BROADCAST:
        return _broadcast
    return _reduction if op_type in _REDUCTIONS else _RULES.get(op_type)


def _wanted_last(model: Model) -> set[str]:
    """Values that some layer gains by reading with channels last.

    Elementwise layers of one input gain nothing themselves.
    """
    wanted = set[str]()
    for layer in reversed(model.layers):
        rule = _rule_for(layer)
        if rule is not None and (rule is not _one_input or not wanted.isdisjoint(layer.outputs)):
            wanted.update(layer.inputs)
    return wanted


def _rank_after(layer: Layer, graph: _Rewriting) -> int | None:
    """The rank of an unchanged layer's outputs, if it is known."""
    if layer.domain:
        return None
    if layer.op_type in ("Flatten", "Gemm"):
        return 2
    if layer.op_type == "Reshape":
        wanted = graph.constant(layer, 1)
        return None if wanted is None else wanted.size
    if layer.op_type in _ONE_INPUT | {"Transpose", "Conv", "MaxPool", "AveragePool", "Softmax"}:
        return graph.ranks.get(layer.inputs[0])
    if layer.op_type in _BROADCAST or layer.op_type == "Concat":
        ranks = [graph.ranks.get(name) for name in layer.inputs]
        return None if None in ranks else max(r for r in ranks if r is not None)
    return None


def _conv(graph: _Rewriting, layer: Layer) -> Layer | None:
    weights = graph.constant(layer, 1)
    if weights is None or weights.dtype != np.float32 or weights.ndim not in _RANKS:
        return None
    name, group, residual = layer.inputs[0], int(layer.attributes.get("group", 1)), layer.inputs[3:]
    attributes = dict(layer.attributes)
    if any(name in graph.constants for name in residual):
        return None
    outputs = weights.shape[0] // group
    is_depthwise = outputs == weights.shape[1] == 1 and name in graph.last
    is_worth_it = outputs >= _LEAST_OUTPUTS and prod(weights.shape[2:]) > 1
    if group > 1 and not is_worth_it and not is_depthwise:
        return None
    is_alone = name not in graph.last and layer.outputs[0] not in graph.wanted_last
    is_small = weights.shape[0] <= _FEW_OUTPUTS or weights.shape[1] <= _FEW_INPUTS
    if is_alone and is_small and prod(weights.shape[2:]) == 1:
        return None
    if name in graph.last or weights.shape[1] > _FEW_CHANNELS:
        graph.ranks[name] = weights.ndim
        source = graph.as_last(name)
    elif layer.outputs[0] not in graph.wanted_last and _is_quick_over_planes(attributes, weights):
        return None
    else:
        source, attributes["x_first"] = graph.as_first(name), 1
    w = layer.inputs[1]
    if "x_first" not in attributes and taps_first(weights.shape[2:], LAST):
        w = graph.added(f"{w}{SUFFIX}", np.ascontiguousarray(weights.swapaxes(1, 2)))
    # What a fused convolution adds has the output's layout.
    graph.ranks |= dict.fromkeys(residual, weights.ndim)
    added = [graph.as_last(name) for name in residual]
    inputs = (source, w, *layer.inputs[2:3], *added)
    return graph.lasting(
        layer, weights.ndim, inputs=inputs, attributes=attributes, domain=CHANNELS_LAST, version=1
    )


def _is_quick_over_planes(attributes: Mapping[str, Any], weights: np.ndarray) -> bool:
    """Whether a convolution of few channels takes less time than one with channels last and the way back."""
    kernel = weights.shape[2:]
    strides = attributes.get("strides", (1,) * len(kernel))
    # Windows that overlap are read from planes without gathering them.
    overlaps = all(step == 1 or step == 2 < taps for step, taps in zip(strides, kernel, strict=False))
    return (weights.ndim < 5 and overlaps) or prod(weights.shape[1:]) <= _FEW_PRODUCTS


def _conv_transpose(graph: _Rewriting, layer: Layer) -> Layer | None:
    weights = graph.constant(layer, 1)
    if weights is None or weights.ndim not in _RANKS or weights.dtype != np.float32:
        return None
    name, rank = layer.inputs[0], weights.ndim
    if not weights.size or layer.attributes.get("group", 1) != 1:
        return None
    if name not in graph.last and weights.shape[0] <= _FEW_CHANNELS:
        return None
    ones = (1,) * (rank - 2)
    steps, gaps = (layer.attributes.get(name, ones) for name in ("strides", "dilations"))
    if any(1 not in pair for pair in zip(steps, gaps, strict=True)):
        return None
    graph.ranks[name] = rank
    inputs = (graph.as_last(name), *layer.inputs[1:])
    return graph.lasting(layer, rank, inputs=inputs, domain=CHANNELS_LAST, version=1)


def _own(graph: _Rewriting, layer: Layer) -> Layer | None:
    """A layer that has a definition of its own over channels last."""
    rank = graph.rank_of(layer.inputs[0])
    if rank is None or not graph.yields_one(layer) or (layer.op_type == "DepthToSpace" and rank != 4):
        return None
    inputs = (graph.as_last(layer.inputs[0]), *layer.inputs[1:])
    return graph.lasting(layer, rank, inputs=inputs, domain=CHANNELS_LAST, version=1)


def _whole_plane(graph: _Rewriting, layer: Layer) -> Layer | None:
    rank = graph.rank_of(layer.inputs[0])
    if rank is None:
        return None
    op_type = "ReduceMax" if layer.op_type == "GlobalMaxPool" else "ReduceMean"
    attributes = {"axes": tuple(range(1, rank - 1)), "keepdims": 1}
    inputs = (graph.as_last(layer.inputs[0]),)
    return graph.lasting(layer, rank, inputs=inputs, op_type=op_type, attributes=attributes, version=13)


def _one_input(graph: _Rewriting, layer: Layer) -> Layer | None:
    rank = graph.rank_of(layer.inputs[0])
    if rank is None or not graph.yields_one(layer):
        return None
    others = [graph.as_first(name) for name in layer.inputs[1:]]
    return graph.lasting(layer, rank, inputs=(graph.as_last(layer.inputs[0]), *others))


def _broadcast(graph: _Rewriting, layer: Layer) -> Layer | None:
    rank = max((graph.rank_of(name) or 0 for name in layer.inputs), default=0)
    if not rank:
        return None
    for name in layer.inputs:
        array = graph.constants.get(name)
        if array is None and graph.ranks.get(name) != rank or array is not None and array.ndim > rank:
            return None
    inputs = tuple(_operand(graph, name, rank) for name in layer.inputs)
    return graph.lasting(layer, rank, inputs=inputs)


def _operand(graph: _Rewriting, name: str, rank: int) -> str:
    """A tensor that is broadcast with others of a rank."""
    array = graph.constants.get(name)
    if array is None:
        return graph.as_last(name)
    if array.size == 1:
        return name
    shaped = array.reshape((1,) * (rank - array.ndim) + array.shape).transpose(to_last(rank))
    if prod(shaped.shape[:-1]) == 1:
        shaped = shaped.reshape(-1)
    return graph.added(f"{name}{SUFFIX} {rank}", np.ascontiguousarray(shaped))


def _batch_normalization(graph: _Rewriting, layer: Layer) -> Layer | None:
    rank = graph.rank_of(layer.inputs[0])
    parameters = [graph.constant(layer, position) for position in range(1, 5)]
    if rank is None or layer.attributes.get("training_mode", 0) or not graph.yields_one(layer):
        return None
    if any(p is None for p in parameters) or not layer.attributes.get("spatial", 1):
        return None
    scale, bias, mean, var = (np.asarray(p, np.float64) for p in parameters)
    factor = scale / np.sqrt(var + float(layer.attributes.get("epsilon", 1e-5)))
    dtype = graph.constants[layer.inputs[1]].dtype
    factor_name = graph.added(f"{layer.name}/factor", factor.astype(dtype))
    shift_name = graph.added(f"{layer.name}/shift", (bias - mean * factor).astype(dtype))
    scaled = f"{layer.outputs[0]}/scaled"
    inputs = (graph.as_last(layer.inputs[0]), factor_name)
    graph.layers.append(Layer("Mul", f"{layer.name}/factor", inputs, (scaled,), {}, "", 14))
    return graph.lasting(layer, rank, op_type="Add", inputs=(scaled, shift_name), attributes={})


def _concat(graph: _Rewriting, layer: Layer) -> Layer | None:
    ranks = [graph.rank_of(name) for name in layer.inputs]
    known = [rank for rank in ranks if rank is not None]
    if 2 * len(known) <= len(ranks):
        return None
    rank = known[0]
    for name in layer.inputs:
        graph.ranks[name] = rank
    attributes = {**layer.attributes, "axis": _moved(int(layer.attributes.get("axis", 1)), rank)}
    return graph.lasting(
        layer, rank, inputs=tuple(graph.as_last(name) for name in layer.inputs), attributes=attributes
    )


def _moved(axis: int, rank: int) -> int:
    """The position in (N, *spatial, C) of an axis of (N, C, *spatial)."""
    return to_last(rank).index(axis % rank)


def _along_axis(graph: _Rewriting, layer: Layer) -> Layer | None:
    """Split and the softmaxes, over one axis."""
    rank = graph.rank_of(layer.inputs[0])
    is_split = layer.op_type == "Split"
    if rank is None or not is_split and layer.version < 13:
        return None
    axis = int(layer.attributes.get("axis", 0 if is_split else -1))
    inputs = (graph.as_last(layer.inputs[0]), *layer.inputs[1:])
    attributes = {**layer.attributes, "axis": _moved(axis, rank)}
    return graph.lasting(layer, rank, inputs=inputs, attributes=attributes)


def _reduction(graph: _Rewriting, layer: Layer) -> Layer | None:
    rank = graph.rank_of(layer.inputs[0])
    axes = layer.attributes.get("axes")
    if len(layer.inputs) > 1 and layer.inputs[1]:
        listed = graph.constant(layer, 1)
        axes = None if listed is None else tuple(int(a) for a in listed.reshape(-1))
    if rank is None or not axes:
        return None
    moved = tuple(sorted(_moved(a, rank) for a in axes))
    source = graph.as_last(layer.inputs[0])
    changes: dict[str, Any] = {"inputs": (source,), "attributes": {**layer.attributes, "axes": moved}}
    if len(layer.inputs) > 1:
        name = graph.added(f"{layer.name}/axes{SUFFIX}", np.array(moved, np.int64))
        changes = {"inputs": (source, name)}
    if layer.attributes.get("keepdims", 1):
        return graph.lasting(layer, rank, **changes)
    left = [a for a in to_last(rank) if _moved(a, rank) not in moved]
    if left != sorted(left):
        return None
    # What is left has its axes in the model's order again.
    graph.first.update(layer.outputs)
    graph.ranks |= dict.fromkeys(layer.outputs, len(left))
    return layer.replace(**changes)


def _pad(graph: _Rewriting, layer: Layer) -> Layer | None:
    rank = graph.rank_of(layer.inputs[0])
    pads = layer.attributes.get("pads")
    if len(layer.inputs) > 1:
        listed = graph.constant(layer, 1)
        pads = None if listed is None else tuple(int(n) for n in listed)
    if rank is None or pads is None or len(pads) != 2 * rank or any(layer.inputs[3:]):
        return None
    moved = [pads[side * rank + a] for side in (0, 1) for a in to_last(rank)]
    source = graph.as_last(layer.inputs[0])
    if len(layer.inputs) == 1:
        attributes = {**layer.attributes, "pads": tuple(moved)}
        return graph.lasting(layer, rank, inputs=(source,), attributes=attributes)
    name = graph.added(f"{layer.name}/pads{SUFFIX}", np.array(moved, np.int64))
    return graph.lasting(layer, rank, inputs=(source, name, *layer.inputs[2:]))


def _slice(graph: _Rewriting, layer: Layer) -> Layer | None:
    rank = graph.rank_of(layer.inputs[0])
    starts, axes = graph.constant(layer, 1), graph.constant(layer, 3)
    if rank is None or layer.version < 10 or starts is None:
        return None
    if axes is None and len(layer.inputs) > 3 and layer.inputs[3]:
        return None
    listed = range(starts.size) if axes is None else [int(a) for a in axes]
    name = graph.added(f"{layer.name}/axes{SUFFIX}", np.array([_moved(a, rank) for a in listed], np.int64))
    inputs = (graph.as_last(layer.inputs[0]), *layer.inputs[1:3], name, *layer.inputs[4:])
    return graph.lasting(layer, rank, inputs=inputs)


def _resize(graph: _Rewriting, layer: Layer) -> Layer | None:
    rank = graph.rank_of(layer.inputs[0])
    if rank is None:
        return None
    attributes = dict(layer.attributes)
    given = [graph.constant(layer, position) for position in range(1, len(layer.inputs))]
    if any(array is None for name, array in zip(layer.inputs[1:], given, strict=True) if name):
        return None
    inputs = list(layer.inputs)
    if "axes" in attributes:
        attributes["axes"] = tuple(_moved(int(a), rank) for a in attributes["axes"])
    else:
        if "scales" in attributes:
            attributes["scales"] = tuple(attributes["scales"][a] for a in to_last(rank))
        for position, array in enumerate(given, 1):
            if array is not None and array.size:
                sides = array.reshape(-1, rank)[:, to_last(rank)].reshape(-1)
                inputs[position] = graph.added(f"{layer.name}/{position}{SUFFIX}", sides)
    inputs[0] = graph.as_last(inputs[0])
    return graph.lasting(layer, rank, inputs=tuple(inputs), attributes=attributes)


def _transpose(graph: _Rewriting, layer: Layer) -> Layer | None:
    name = layer.inputs[0]
    perm = layer.attributes.get("perm")
    if perm is not None and len(perm) in _RANKS and tuple(perm) == to_first(len(perm)):
        # The model has the form with channels last already.
        graph.ranks[name] = graph.ranks[layer.outputs[0]] = len(perm)
        graph.last[layer.outputs[0]] = graph.as_first(name)
        graph.first.update(layer.outputs)
        return layer
    rank = graph.rank_of(name)
    if rank is None:
        return None
    order = perm or tuple(reversed(range(rank)))
    direct = tuple(to_first(rank)[a] for a in order)
    graph.first.update(layer.outputs)
    graph.ranks[layer.outputs[0]] = rank
    return layer.replace(inputs=(graph.as_last(name),), attributes={"perm": direct})


_RULES: dict[str, Rule] = {
    "Conv": _conv,
    "FusedConv": _conv,
    "ConvTranspose": _conv_transpose,
    "MaxPool": _own,
    "AveragePool": _own,
    "InstanceNormalization": _own,
    "LRN": _own,
    "DepthToSpace": _own,
    "GlobalAveragePool": _whole_plane,
    "GlobalMaxPool": _whole_plane,
    "BatchNormalization": _batch_normalization,
    "Concat": _concat,
    "Split": _along_axis,
    "Softmax": _along_axis,
    "LogSoftmax": _along_axis,
    "Pad": _pad,
    "Slice": _slice,
    "Resize": _resize,
    "Upsample": _resize,
    "Transpose": _transpose,
}
