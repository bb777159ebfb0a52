"""One operator as a model: operands, the graph around it, and the least work that it takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.images import smooth
from tests.networks import Inputs

MODEL_OPSET = 20
CONTRIB = "com.microsoft"
ML = "ai.onnx.ml"
_VERSIONS = {CONTRIB: 1, ML: 3}
_WORDS = np.array(["walk", "run", "jump", "wait", "talk", "hide", "seek", "trade"], object)

_TAPS = {
    "Resize": {"linear": 2, "cubic": 4},
    "GridSample": {"": 2, "linear": 2, "bilinear": 2, "cubic": 4, "bicubic": 4},
}
"""Elements along an axis that an interpolation blends, by its mode."""

Make = Callable[[np.random.Generator], np.ndarray]


@dataclass(frozen=True)
class Operand:
    """An input of an operator: what it holds, and whether the model has it as a constant."""

    make: Make
    is_constant: bool = False
    name: str = ""

    def array(self, seed: int) -> np.ndarray:
        """Its elements, the same for the same seed."""
        return np.array(self.make(np.random.default_rng(seed)), order="C")


def x(*shape: int, dtype: str = "float32", least: float | None = None, most: float | None = None) -> Operand:
    """An input: normal random numbers, or uniform ones in [least, most) where these are given.

    Integers are below 100, those of one byte any, unless `least` and `most` say otherwise. Strings are words.
    """
    return Operand(lambda rng: _random(rng, shape, dtype, least, most))


def w(*shape: int, dtype: str = "float32", least: float | None = None, most: float | None = None) -> Operand:
    """A constant like `x`; normal numbers are scaled by the elements of a row, as weights are."""
    scale = float(np.prod(shape[1:])) ** -0.5 if len(shape) > 1 and least is None else 1.0

    def make(rng: np.random.Generator) -> np.ndarray:
        made = _random(rng, shape, dtype, least, most)
        return (made * scale).astype(made.dtype) if np.issubdtype(made.dtype, np.floating) else made

    return Operand(make, is_constant=True)


def given(values: Any, dtype: str = "int64") -> Operand:
    """A constant with these elements."""
    return Operand(lambda rng: np.array(values, dtype), is_constant=True)


def image(*shape: int, dtype: str = "float32") -> Operand:
    """A smooth picture as an input."""
    return Operand(lambda rng: smooth(shape, 0, 0, 255 if dtype == "uint8" else 1).astype(dtype))


def fixed(make: Make) -> Operand:
    """An input that is made in another way."""
    return Operand(make)


def constant(make: Make) -> Operand:
    """A constant that is made in another way."""
    return Operand(make, is_constant=True)


NONE = Operand(lambda rng: np.empty(0), name="none")
"""An optional operand that is not there."""


def _random(
    rng: np.random.Generator, shape: Sequence[int], dtype: str, least: float | None, most: float | None
) -> np.ndarray:
    if dtype == "object":
        return np.asarray(rng.choice(_WORDS, shape), object)
    if dtype == "bool":
        return np.asarray(rng.random(shape) < 0.5)
    wanted = np.dtype(dtype)
    if np.issubdtype(wanted, np.integer):
        limits = np.iinfo(wanted)
        low = (limits.min if wanted.itemsize == 1 else 0) if least is None else int(least)
        high = (limits.max + 1 if wanted.itemsize == 1 else 100) if most is None else int(most)
        return rng.integers(low, high, shape, wanted)
    if least is not None and most is not None:
        return np.asarray(rng.random(shape) * (most - least) + least, wanted)
    return np.asarray(rng.standard_normal(shape), wanted)


@dataclass(frozen=True)
class Case:
    """A line of the table: an operator, or the few that exporters write for one, at one size.

    outputs: how many the operator has here. types: of outputs that cannot be inferred.
    is_random: whether its elements are not to be compared.
    """

    op: str
    detail: str
    operands: Sequence[Operand]
    nodes: Sequence[onnx.NodeProto]
    outputs: Sequence[str]
    opset: int = MODEL_OPSET
    is_random: bool = False
    types: Sequence[str] = ()
    graphs: Mapping[str, onnx.GraphProto] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The operator and its size."""
        return f"{self.op} {self.detail}"

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """Inputs and constants, by name."""
        return {o.name: o.array(i) for i, o in enumerate(self.operands) if o is not NONE}

    @property
    def inputs(self) -> Inputs:
        """What the model is given."""
        return {o.name: self.arrays[o.name] for o in self.operands if o is not NONE and not o.is_constant}

    @property
    def dtype(self) -> str:
        """The element type of the first operand."""
        dtype = next(iter(self.arrays.values())).dtype
        return "string" if dtype.kind in "OU" else dtype.name

    def source(self) -> bytes:
        """The model's bytes."""
        known = self.inputs
        graph = helper.make_graph(
            list(self.nodes),
            "one",
            [_declared(name, array) for name, array in known.items()],
            [
                helper.make_tensor_value_info(
                    name, helper.np_dtype_to_tensor_dtype(np.dtype(self.types[i])), None
                )
                if i < len(self.types)
                else onnx.ValueInfoProto(name=name)
                for i, name in enumerate(self.outputs)
            ],
            [numpy_helper.from_array(a, n) for n, a in self.arrays.items() if n not in known],
        )
        domains = {node.domain for node in self.nodes} - {""}
        opsets = [helper.make_opsetid("", self.opset)]
        opsets += [helper.make_opsetid(domain, _VERSIONS[domain]) for domain in sorted(domains)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        if len(self.types) < len(self.outputs):
            model = onnx.shape_inference.infer_shapes(model, data_prop=True)
        return bytes(model.SerializeToString())

    def multiplications(self, outputs: Sequence[np.ndarray]) -> int:
        """How many products of two numbers the operator sums; 0 for one that moves or maps elements.

        A comparison on the way down a tree counts as one, and that of two boxes as four: both areas, what
        they share, and the quotient.
        """
        first, second = (*self.arrays.values(), np.empty(0))[:2]
        size = sum(int(output.size) for output in outputs)
        if "ConvTranspose" in self.op:
            return int(first.size) * math.prod(second.shape[1:])
        if "Conv" in self.op:
            weights = next((a for n, a in self.arrays.items() if n.startswith(("w", "v1"))), second)
            weights = weights if weights.ndim == first.ndim else self._largest_constant(first.ndim)
            return size * math.prod(weights.shape[1:])
        if self.op in ("Loop", "Scan"):
            # Each step, an entry of a 3-D operand, multiplies a row by a matrix.
            steps = next(a for a in self.arrays.values() if a.ndim == 3)
            return len(steps) * self.arrays["w"].size
        if self.op in ("LSTM", "GRU", "RNN", "DynamicQuantizeLSTM"):
            products = sum(a.size for a in list(self.arrays.values())[1:3] if a.ndim == 3)
            return math.prod(first.shape[:2]) * products
        if "MatMul" in self.op or "Gemm" in self.op or self.op == "Einsum":
            return size * int(first.shape[-1])
        if "Attention" in self.op:
            return 2 * int(first.size) * int(second.shape[-2])
        if "MoE" in self.op:
            # Rows, those of the weights of an expert, and how many of them a row takes.
            layers = [a.shape for a in self.arrays.values() if a.ndim == 3]
            sizes = sum(n * m * (2 if self.op == "QMoE" else 1) for _, n, m in layers)
            return int(first.shape[0]) * sizes * _attribute(self.nodes[0], "k")
        if self.op in _TAPS and (taps := _TAPS[self.op].get(_text(self.nodes[0], "mode"))):
            # Resizing goes along one axis after another; places to sample differ in all of them.
            axes = sum(n != m for n, m in zip(first.shape, outputs[0].shape, strict=True))
            return size * (taps * axes if self.op == "Resize" else taps ** (first.ndim - 2))
        if self.op.startswith("TreeEnsemble"):
            # Each row goes down every tree.
            leaves = len(
                _numbers(self.nodes[0], "class_treeids") or _numbers(self.nodes[0], "target_treeids")
            )
            trees = len(set(_numbers(self.nodes[0], "nodes_treeids")))
            return int(first.shape[0]) * trees * (leaves // trees - 1).bit_length()
        if self.op == "NonMaxSuppression":
            # A box that is kept is compared with those of its class that were kept before.
            kept = np.unique(outputs[0][:, :2], axis=0, return_counts=True)[1]
            return 4 * int((kept * (kept - 1) // 2).sum())
        if self.op == "SVMRegressor":
            return int(first.size) * _attribute(self.nodes[0], "n_supports")
        if self.op in ("DFT", "STFT"):
            # By the fast algorithm: half a complex product for each of its levels and each complex number.
            points = first.shape[1] if self.op == "DFT" else self.arrays["v2"].size
            return size * (points.bit_length() - 1)
        return 0

    def _largest_constant(self, rank: int) -> np.ndarray:
        fitting = [a for a in list(self.arrays.values())[1:] if a.ndim == rank]
        return max(fitting, key=lambda a: a.size, default=np.empty(0))


def _attribute(node: onnx.NodeProto, name: str) -> int:
    return next(int(a.i) for a in node.attribute if a.name == name)


def _numbers(node: onnx.NodeProto, name: str) -> Sequence[int]:
    return next((a.ints for a in node.attribute if a.name == name), ())


def _text(node: onnx.NodeProto, name: str) -> str:
    return next((a.s.decode() for a in node.attribute if a.name == name), "")


def _declared(name: str, array: np.ndarray) -> onnx.ValueInfoProto:
    is_text = array.dtype.kind in "OU"
    element = TensorProto.STRING if is_text else helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, element, array.shape)


def case(
    op: str,
    detail: str,
    *operands: Operand,
    outputs: int = 1,
    opset: int = MODEL_OPSET,
    domain: str = "",
    types: Sequence[str] = (),
    **attributes: Any,
) -> Case:
    """One operator with its operands in order, and its attributes."""
    named = tuple(o if o is NONE else replace(o, name=f"v{i}") for i, o in enumerate(operands))
    results = [f"out{i}" for i in range(outputs)]
    names = ["" if o is NONE else o.name for o in named]
    node = helper.make_node(op, names, results, domain=domain, **attributes)
    is_random = op.startswith("Random") or op in ("Multinomial", "Bernoulli")
    return Case(op, detail, named, [node], results, opset, is_random, types)


def chain(
    op: str,
    detail: str,
    lines: Sequence[str],
    *,
    opset: int = MODEL_OPSET,
    outputs: int = 1,
    **operands: Operand,
) -> Case:
    """Several operators, a line of ONNX's text syntax each; the last one gives `out`, or `out0`, `out1`, ...

    Operands are named as the lines name them.
    """
    results = ["out"] if outputs == 1 else [f"out{i}" for i in range(outputs)]
    text = "\n".join(lines)
    opsets = ", ".join(f'"{d}" : {v}' for d, v in {"": opset, **_VERSIONS}.items())
    parsed = onnx.parser.parse_model(f"<ir_version: 10, opset_import: [{opsets}]> g () => () {{ {text} }}")
    named = tuple(replace(o, name=name) for name, o in operands.items())
    return Case(op, detail, named, list(parsed.graph.node), results, opset)
