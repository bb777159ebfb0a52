"""Random examples of an operator: a table entry says what may be drawn, one check compares all backends.

An `Example` is one layer with its arrays. Dimensions have names, as in an exported model, so that a new size
needs no new kernel; sizes are drawn with 0 and 1 among them. What the layer should yield comes from ONNX's
reference evaluator, or from a function of NumPy arrays where the evaluator cannot say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from engine import ModelLoader
from engine.compiler.interpreter import interpret
from tests.engine.conftest import MakeWorker, answers
from tests.onnx_cases import compare

Dims = tuple[str | int, ...]
Draw = Callable[[st.SearchStrategy[Any]], Any]
Expected = Callable[..., Any]

SIZES = st.sampled_from([0, 1, 1, 2, 3, 5, 8])
FILLED = st.sampled_from([1, 2, 3, 5, 8])


@dataclass(frozen=True)
class Example:
    """One layer: its inputs (None: left out; those without dimensions are constants of the model)."""

    op_type: str
    inputs: Sequence[tuple[np.ndarray, Dims | None] | None]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    opset: int = 25
    outputs: int = 1
    expected: Expected | None = None

    @property
    def arrays(self) -> list[np.ndarray | None]:
        """The layer's inputs."""
        return [None if pair is None else pair[0] for pair in self.inputs]

    @property
    def feeds(self) -> dict[str, np.ndarray]:
        """What the model is given."""
        return {f"x{i}": g[0] for i, g in enumerate(self.inputs) if g is not None and g[1] is not None}

    def proto(self) -> onnx.ModelProto:
        """The model of the one layer."""
        names = ["" if pair is None else f"x{i}" for i, pair in enumerate(self.inputs)]
        infos, constants = [], []
        for name, pair in zip(names, self.inputs, strict=True):
            if pair is None:
                continue
            array, dims = pair
            if dims is None:
                constants.append(numpy_helper.from_array(array, name))
            else:
                kind = helper.np_dtype_to_tensor_dtype(array.dtype)
                infos.append(helper.make_tensor_value_info(name, kind, dims))
        made = [f"y{i}" for i in range(self.outputs)]
        node = helper.make_node(self.op_type, names, made, name="it", **self.attributes)
        outputs = [onnx.ValueInfoProto(name=name) for name in made]
        graph = helper.make_graph([node], "one", infos, outputs, constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)

    def answer(self) -> list[np.ndarray]:
        """What the layer should yield."""
        if self.expected is None:
            return list(ReferenceEvaluator(self.proto()).run(None, self.feeds))
        found = self.expected(*self.arrays, **self.attributes)
        return list(found) if isinstance(found, tuple) else [found]


Subject = st.SearchStrategy[Example]


def tensor(
    draw: Draw, sizes: Mapping[str, int], dims: Dims, dtype: str = "float32", low: float = -4, high: float = 4
) -> tuple[np.ndarray, Dims]:
    """An array over named dimensions; floats have whole numbers and halves among them."""
    shape = [sizes[n] if isinstance(n, str) else n for n in dims]
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool), dims
    if np.dtype(dtype).kind in "iu":
        return rng.integers(int(low), int(high) + 1, shape).astype(dtype), dims
    x = rng.uniform(low, high, shape)
    rounded = np.clip(np.round(x * 2) / 2, low, high)
    return np.where(rng.random(shape) < 0.2, rounded, x).astype(dtype), dims


def sizes_of(draw: Draw, *names: str, of: st.SearchStrategy[int] = SIZES) -> dict[str, int]:
    """A size for each name."""
    return {name: draw(of) for name in names}


def ints(*values: int) -> tuple[np.ndarray, None]:
    """A constant tensor of integers."""
    return np.array(values, np.int64), None


def check(example: Example, actual: Sequence[np.ndarray], bound: float) -> None:
    """Compare the outputs with what they should be."""
    for found, expected in zip(actual, example.answer(), strict=True):
        compare(found, np.asarray(expected), bound)


def by_numpy(example: Example) -> list[np.ndarray]:
    """The outputs, by evaluating the definition."""
    model = ModelLoader.load(example.proto().SerializeToString())
    found = interpret(model, example.feeds)
    return [found[o.name] for o in model.outputs]


def on_backend(example: Example, channel: str, make_worker: MakeWorker) -> list[np.ndarray]:
    """The outputs on a backend."""
    model = ModelLoader.load(example.proto().SerializeToString())
    with make_worker(model, channel) as worker:
        return answers(worker, example.feeds)


FEW = settings(max_examples=8)


EVERY_DAY = 12
"""One subject in so many runs on the backends every day; the long suite runs them all."""


def hold_by_numpy(subject: Subject) -> None:
    """Every drawn example agrees when its formulas are evaluated."""

    @given(subject)
    @settings(FEW, max_examples=12)
    def holds(example: Example) -> None:
        check(example, by_numpy(example), 1e-5)

    holds()


def hold_on(subject: Subject, channel: str, make_worker: MakeWorker) -> None:
    """Every drawn example agrees on a backend."""

    @given(subject)
    @settings(FEW)
    def holds(example: Example) -> None:
        check(example, on_backend(example, channel, make_worker), 1e-5 if channel == "cpu" else 1e-4)

    holds()


def everyday(table: Mapping[str, Subject]) -> list[Any]:
    """The names of the subjects as test parameters, all but a share of them for the long suite only."""
    return [
        pytest.param(name, marks=() if crc32(name.encode()) % EVERY_DAY == 0 else pytest.mark.long)
        for name in table
    ]
