"""The quantised layers of com.microsoft against onnxruntime, by NumPy and on every backend."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, ValueInfoProto, helper

from engine.base.errors import ShapeError
from engine.compiler.interpreter import interpret
from engine.graph.importers.onnx_importer import read_onnx
from tests.engine.conftest import MakeWorker, answers
from tests.peer import open_session

draw = np.random.default_rng(5)


def u8(*shape: int) -> np.ndarray:
    return draw.integers(0, 256, shape).astype(np.uint8)


def i8(*shape: int) -> np.ndarray:
    return draw.integers(-128, 128, shape).astype(np.int8)


def factors(*shape: int) -> np.ndarray:
    """Weights of 7 bits: without VNNI, onnxruntime saturates sums with 8-bit weights that are inputs."""
    return draw.integers(-64, 64, shape).astype(np.int8)


def real(*shape: int) -> np.ndarray:
    return draw.standard_normal(shape).astype(np.float32)


def steps(*shape: int) -> np.ndarray:
    """Scales."""
    return (draw.random(shape) * 0.1 + 0.01).astype(np.float32)


def bias(size: int) -> np.ndarray:
    return draw.integers(-900, 900, size).astype(np.int32)


def q(scale: float, zero: int, dtype: Any = np.uint8) -> tuple[np.ndarray, np.ndarray]:
    """A scale and a zero point."""
    return np.array(scale, np.float32), np.array(zero, dtype)


class Subject(NamedTuple):
    """A layer: operator, inputs, attributes."""

    op_type: str
    arrays: tuple[np.ndarray | None, ...]
    attributes: dict[str, Any] = {}

    def model(self, dims: tuple[int | str, ...] | None = None) -> ModelProto:
        """A model of the layer alone; `dims` is the first input's shape where it is to be open."""
        names = [f"x{i}" if a is not None else "" for i, a in enumerate(self.arrays)]
        node = helper.make_node(self.op_type, names, ["y"], domain="com.microsoft", **self.attributes)
        inputs = [
            helper.make_tensor_value_info(
                name,
                helper.np_dtype_to_tensor_dtype(array.dtype),
                dims if dims and name == "x0" else array.shape,
            )
            for name, array in zip(names, self.arrays, strict=True)
            if array is not None
        ]
        graph = helper.make_graph([node], "one", inputs, [ValueInfoProto(name="y")])
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def feeds(self) -> dict[str, np.ndarray]:
        return {f"x{i}": a for i, a in enumerate(self.arrays) if a is not None}

    def expected(self) -> np.ndarray:
        """What onnxruntime computes."""
        session = open_session(self.model().SerializeToString())
        return np.asarray(session.run(None, self.feeds())[0])


A, B = u8(2, 3, 40), u8(3, 40)
PLANES, IMAGES = u8(2, 3, 7, 9), u8(2, 7, 9, 3)
IN, OTHER, OUT = q(0.0213, 120), q(0.0307, 100), q(0.0417, 128)
WINDOW = {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 1]}


def packed(bits: int, block: int, columns: int, zeros: str = "") -> Subject:
    """A product with 6 rows of packed weights."""
    blocks = -(-columns // block)
    zero = None
    if zeros:
        zero = u8(6, -(-blocks * bits // 8)) if zeros == "packed" else np.round(real(6, blocks) * 4) + 8
    arrays = real(2, 3, columns), u8(6, blocks, block * bits // 8), steps(6, blocks), zero, None, real(6)
    return Subject("MatMulNBits", arrays, {"K": columns, "N": 6, "bits": bits, "block_size": block})


SUBJECTS = {
    "add": Subject("QLinearAdd", (A, *IN, B, *OTHER, *OUT)),
    "multiply": Subject("QLinearMul", (A, *IN, B, *OTHER, *OUT)),
    "multiply signed": Subject("QLinearMul", (i8(4, 9), *q(0.1, -3, np.int8)) * 2 + q(0.517, 4, np.int8)),
    "sigmoid": Subject("QLinearSigmoid", (A, *IN, *q(1 / 256, 0))),
    "leaky": Subject("QLinearLeakyRelu", (A, *IN, *OUT), {"alpha": 0.2}),
    "where": Subject("QLinearWhere", (draw.integers(0, 2, (2, 3, 40)) > 0, A, *IN, B, *OTHER, *OUT)),
    "join": Subject("QLinearConcat", (*OUT, A, *IN, u8(2, 5, 40), *OTHER), {"axis": 1}),
    "softmax": Subject("QLinearSoftmax", (A, *IN, *q(1 / 256, 0)), {"axis": 1, "opset": 13}),
    "old softmax": Subject("QLinearSoftmax", (A, *IN, *q(1 / 256, 0)), {"axis": 1, "opset": 11}),
    "mean": Subject("QLinearGlobalAveragePool", (PLANES, *IN, *q(0.0071, 90)), {"channels_last": 0}),
    "mean, last": Subject("QLinearGlobalAveragePool", (IMAGES, *IN, *q(0.0071, 90)), {"channels_last": 1}),
    "pool": Subject("QLinearAveragePool", (PLANES, *IN, *q(0.0171, 90)), WINDOW),
    "pool, last": Subject(
        "QLinearAveragePool", (IMAGES, *IN, *q(0.0171, 90)), {**WINDOW, "channels_last": 1}
    ),
    "pool, padding": Subject(
        "QLinearAveragePool", (PLANES, *IN, *q(0.0171, 90)), {**WINDOW, "count_include_pad": 1}
    ),
    "gemm": Subject("QGemm", (u8(5, 7), *IN, factors(7, 6), *q(0.03, 3, np.int8), bias(6), *q(0.071, 128))),
    "gemm to floats": Subject(
        "QGemm",
        (u8(7, 5), *IN, factors(6, 7), steps(6), i8(6), bias(6)),
        {"transA": 1, "transB": 1, "alpha": 0.5},
    ),
    "product": Subject(
        "MatMulIntegerToFloat",
        (u8(2, 5, 7), factors(7, 6), *(x[0] for x in (IN, OTHER)), IN[1], np.array(3, np.int8), real(6)),
    ),
    "product by column": Subject(
        "MatMulIntegerToFloat", (u8(2, 5, 7), factors(7, 6), IN[0], steps(6), IN[1], i8(6), None)
    ),
    "dynamic product": Subject(
        "DynamicQuantizeMatMul", (real(5, 7), factors(7, 6), steps(6), i8(6), real(6))
    ),
    "4 bits": packed(4, 16, 40),
    "4 bits, zeros": packed(4, 16, 40, "packed"),
    "4 bits, plain zeros": packed(4, 32, 64, "plain"),
    "8 bits": packed(8, 16, 40, "packed"),
    "2 bits": packed(2, 16, 64, "packed"),
    "quantise": Subject("QuantizeLinear", (real(3, 5), steps(3), np.array([3, 1, 0], np.int8)), {"axis": 0}),
    "dequantise": Subject("DequantizeLinear", (u8(3, 5), *IN), {}),
}
ON_BACKENDS = ("add", "join", "old softmax", "pool, last", "gemm", "product by column", "4 bits, zeros")


def check(found: np.ndarray, expected: np.ndarray, bound: float) -> None:
    """Levels may differ by one where a quotient falls on the middle; that is rare."""
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    off = np.abs(found.astype(np.float64) - expected.astype(np.float64))
    if expected.dtype.kind == "f":
        assert off.max() <= bound * max(1.0, float(np.abs(expected).max()))
    else:
        assert len(np.unique(expected)) > 3, "the case says nothing"
        assert off.max() <= 1
        assert (off > 0).mean() <= 0.02


@pytest.mark.parametrize("name", SUBJECTS)
def test_the_formulas_give_onnxruntime_s_answer(name: str) -> None:
    subject = SUBJECTS[name]
    found = interpret(read_onnx(subject.model().SerializeToString()), subject.feeds())["y"]
    check(found, subject.expected(), 1e-5)


@pytest.mark.spread
@pytest.mark.parametrize("name", ON_BACKENDS)
def test_backends_give_onnxruntime_s_answer(name: str, channel: str, make_worker: MakeWorker) -> None:
    subject = SUBJECTS[name]
    worker = make_worker(read_onnx(subject.model().SerializeToString()), channel)
    check(answers(worker, subject.feeds())[0], subject.expected(), 1e-5 if channel == "cpu" else 1e-4)


def test_absent_zero_points_are_zero() -> None:
    scale = np.array(0.1, np.float32)
    x = np.array([-20, 5, 100], np.int8)
    model = read_onnx(
        Subject("QLinearAdd", (x, scale, None, x, scale, None, scale)).model().SerializeToString()
    )
    assert interpret(model, {"x0": x, "x1": scale, "x3": x, "x4": scale, "x6": scale})["y"].tolist() == [
        -40, 10, 127,
    ]  # fmt: skip


@pytest.mark.spread
def test_dynamic_products_of_any_height(channel: str, make_worker: MakeWorker) -> None:
    by, scales, zeros = factors(7, 6), steps(6), i8(6)
    subject = Subject("DynamicQuantizeMatMul", (real(5, 7), by, scales, zeros, real(6)))
    worker = make_worker(read_onnx(subject.model(("n", 7)).SerializeToString()), channel)

    @given(st.sampled_from([1, 2, 37, 300]), st.integers(0, 99))
    @settings(max_examples=8)
    def holds(rows: int, seed: int) -> None:
        x = np.random.default_rng(seed).standard_normal((rows, 7)).astype(np.float32)
        same = Subject(subject.op_type, (x, *subject.arrays[1:]))
        found, expected = answers(worker, same.feeds())[0], same.expected()
        # A level more or less, where a quotient falls on the middle, is a hundredth of the range here.
        off = np.abs(found - expected) / np.abs(expected).max()
        assert off.max() <= 0.02
        assert (off > 1e-5).mean() <= 0.02

    holds()


WRONG = [
    (Subject("QLinearConcat", (*OUT, A, IN[0]), {"axis": 1}), "2 inputs are no triples"),
    (
        Subject("QGemm", (u8(5, 7), *IN, factors(7, 6), *q(1, 0, np.int8), bias(90).reshape(3, 5, 6))),
        "cannot add C",
    ),
    (packed(4, 16, 40)._replace(attributes={"K": 41, "N": 6, "block_size": 16}), "K = 41"),
    (packed(4, 16, 40)._replace(attributes={"K": 40, "N": 6, "bits": 3, "block_size": 16}), "2, 4 or 8 bits"),
]


@pytest.mark.parametrize(("subject", "message"), WRONG)
def test_wrong_use(subject: Subject, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        interpret(read_onnx(subject.model().SerializeToString()), subject.feeds())
