"""Quantisation against ONNX's reference evaluator and NumPy, and on every backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from onnx.reference import ReferenceEvaluator

from engine.base.dtypes import integer_range
from engine.base.errors import ShapeError
from engine.operators.casting import ONNX_TYPES
from tests.engine.conftest import MakeWorker, answers
from tests.engine.operators.single import one_layer, run

NUMBER = {name: code for code, name in ONNX_TYPES.items()}
FLOAT32 = np.dtype(np.float32)
PROPERTY = settings(max_examples=8)


def f32(*values: float) -> np.ndarray:
    """A vector of float32."""
    return np.array(values, np.float32)


def scalar(value: float, dtype: str = "float32") -> np.ndarray:
    return np.array(value).astype(dtype)


def reference(
    op_type: str, arrays: Sequence[np.ndarray | None], attributes: Mapping[str, Any], opset: int
) -> list[np.ndarray]:
    """What ONNX's own evaluator says."""
    names = [f"x{i}" if a is not None else "" for i, a in enumerate(arrays)]
    node = helper.make_node(op_type, names, ["y"], **attributes)
    given = {n: a for n, a in zip(names, arrays, strict=True) if a is not None}
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in given.items()
    ]
    graph = helper.make_graph([node], "one", inputs, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    return ReferenceEvaluator(model).run(None, given)  # type: ignore[return-value]


def same(op_type: str, arrays: list[np.ndarray | None], opset: int = 25, **attributes: Any) -> np.ndarray:
    """The engine's answer, after a comparison with the evaluator's."""
    (found,) = run(op_type, arrays, attributes, opset=opset)
    (expected,) = reference(op_type, arrays, attributes, opset)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64))
    return found


def numbers(*shape: int, spread: float = 3.0) -> np.ndarray:
    return (np.random.default_rng(3).standard_normal(shape) * spread).astype(np.float32)


# Granularity and types


@pytest.mark.parametrize("name", ["uint8", "int8", "uint16", "int16", "int4", "uint4", "int2", "uint2"])
def test_integers_saturate(name: str) -> None:
    x = np.append(numbers(40), f32(np.inf, -np.inf, 1e9, -1e9, 0.25, -0.25, 0.75))
    low, high = integer_range(name)
    zero = scalar((low + high + 1) // 2 + 1, name)
    (found,) = run("QuantizeLinear", [x, scalar(0.5), zero])
    expected = np.clip(np.rint(x / np.float32(0.5)) + zero.astype(np.float32), low, high)
    np.testing.assert_array_equal(found.astype(np.float64), expected)
    assert found.dtype == zero.dtype
    back = same("DequantizeLinear", [found, scalar(0.5), zero])
    inside = (x / 0.5 + zero.astype(float) < high) & (x / 0.5 + zero.astype(float) > low)
    assert np.abs(back - x)[inside].max() <= 0.25


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"])
@pytest.mark.parametrize("saturate", [0, 1])
def test_8_bit_floats(name: str, saturate: int) -> None:
    x = np.append(numbers(40, spread=200.0), f32(1e6, -1e6, 0.0))
    found = same("QuantizeLinear", [x, scalar(0.5), scalar(0, name)], saturate=saturate)
    same("DequantizeLinear", [found, scalar(0.5), scalar(0, name)])


@pytest.mark.parametrize("name", ["float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"])
def test_smaller_floats(name: str) -> None:
    x = numbers(3, 40, spread=5.0)
    scales = f32(0.5, 1.0, 2.0)
    found = same("QuantizeLinear", [x, scales], opset=28, axis=0, output_dtype=NUMBER[name])
    same("DequantizeLinear", [found, scales], opset=28, axis=0)


@pytest.mark.parametrize(("axis", "shape"), [(1, (2, 3, 4)), (0, (3,)), (-3, (3, 2, 2)), (2, (2, 1, 3))])
def test_scales_along_an_axis(axis: int, shape: tuple[int, ...]) -> None:
    scales, zeros = f32(0.1, 0.5, 2.0), np.array([3, 100, 250], np.uint8)
    found = same("QuantizeLinear", [numbers(*shape), scales, zeros], axis=axis)
    same("DequantizeLinear", [found, scales, zeros], axis=axis)
    same("QuantizeLinear", [numbers(*shape), scales, zeros], opset=13, axis=axis)


def test_a_vector_needs_no_axis() -> None:
    (found,) = run("QuantizeLinear", [f32(1, 2), f32(0.5, 0.25), np.array([0, 1], np.uint8)])
    assert found.tolist() == [2, 9]


@pytest.mark.parametrize(
    ("axis", "block", "blocks"), [(1, 2, (2, 3, 3)), (-1, 2, (2, 5, 2)), (0, 5, (1, 5, 3))]
)
def test_blocks_the_last_of_them_short(axis: int, block: int, blocks: tuple[int, ...]) -> None:
    x = numbers(2, 5, 3)
    scales = np.abs(numbers(*blocks)) + np.float32(0.1)
    zeros = np.arange(scales.size).reshape(blocks).astype(np.int8)
    found = same("QuantizeLinear", [x, scales, zeros], axis=axis, block_size=block)
    same("DequantizeLinear", [found, scales, zeros], axis=axis, block_size=block)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_narrow_scales_divide_in_their_own_precision(name: str) -> None:
    x = numbers(200, spread=300.0).astype(name)
    found = same("QuantizeLinear", [x, scalar(0.37, name), scalar(0, "int16")], opset=21)
    back = same("DequantizeLinear", [found, scalar(0.37, name)], opset=21)
    assert back.dtype == x.dtype


def test_precision_and_output_types() -> None:
    x = numbers(200, spread=300.0)
    narrow = same("QuantizeLinear", [x, scalar(0.37)], precision=10, output_dtype=NUMBER["int16"])
    wide = same("QuantizeLinear", [x, scalar(0.37, "float16")], precision=1, output_dtype=NUMBER["int16"])
    assert np.any(narrow != wide)
    exponents = np.array([0.25, 2.0], np.float32).astype("float8_e8m0fnu")
    (found,) = run("QuantizeLinear", [f32(1, 3), exponents], {"output_dtype": NUMBER["int8"]})
    assert found.tolist() == [4, 2]
    (back,) = run("DequantizeLinear", [found, exponents], {"output_dtype": NUMBER["float16"]})
    assert back.dtype == np.float16
    assert back.tolist() == [1, 4]


def test_whole_numbers() -> None:
    x = np.array([-300, -7, 0, 7, 300, 100000], np.int32)
    (found,) = run("QuantizeLinear", [x, scalar(2.0), scalar(10, "uint8")])
    assert found.tolist() == [0, 6, 10, 14, 160, 255]
    np.testing.assert_array_equal(run("DequantizeLinear", [x, scalar(0.5)])[0], x * 0.5)


def test_empty_tensors() -> None:
    x = np.zeros((0, 3), np.float32)
    (found,) = run("QuantizeLinear", [x, f32(1, 2, 3), np.zeros(3, np.int8)])
    assert (found.shape, found.dtype) == ((0, 3), np.int8)


@pytest.mark.parametrize(
    "x", [f32(0, 2, -3, -2.5, 1.34, 0.5), f32(-1, -2.1, -1.3), f32(1, 2.1), numbers(7, 501)]
)
def test_dynamic_range(x: np.ndarray) -> None:
    levels, scale, zero = run("DynamicQuantizeLinear", [x], outputs=3)
    width = max(x.max(), 0) - min(x.min(), 0)
    np.testing.assert_allclose(scale, width / 255, rtol=1e-6)
    assert zero == np.rint(np.clip(-min(x.min(), 0) / scale, 0, 255))
    np.testing.assert_array_equal(levels, np.clip(np.rint(x / scale) + zero, 0, 255))
    assert (levels.dtype, zero.dtype, scale.shape) == (np.uint8, np.uint8, ())


def test_a_tensor_of_zeros_has_a_scale() -> None:
    levels, scale, zero = run("DynamicQuantizeLinear", [f32(0, 0)], outputs=3)
    assert (levels.tolist(), float(scale), int(zero)) == ([0, 0], 1.0, 0)


# Products


def integers(dtype: str, *shape: int) -> np.ndarray:
    low, high = integer_range(dtype)
    return np.random.default_rng(9).integers(low, high + 1, shape).astype(dtype)


PRODUCTS = [
    ((3, 4), (4, 5), (), ()), ((3, 4), (4, 5), (3,), (5,)), ((2, 3, 4), (4, 5), (2, 3, 1), (1, 5)),
    ((3, 4), (2, 4, 5), (), (2, 1, 5)), ((2, 1, 3, 4), (6, 4, 5), (), (6, 1, 5)), ((4,), (4, 5), (), ()),
    ((4,), (4,), (), ()), ((2, 0, 4), (4, 5), (), ()), ((3, 0), (0, 2), (), ()),
]  # fmt: skip


@pytest.mark.parametrize(("a", "b", "a_zeros", "b_zeros"), PRODUCTS)
def test_integer_products(
    a: tuple[int, ...], b: tuple[int, ...], a_zeros: tuple[int, ...], b_zeros: tuple[int, ...]
) -> None:
    one, other = integers("uint8", *a), integers("int8", *b)
    zeros = integers("uint8", *a_zeros), integers("int8", *b_zeros)
    column = zeros[0].reshape(-1, 1) if len(a_zeros) == 1 else zeros[0]
    expected = (one.astype(np.int32) - column) @ (other.astype(np.int32) - zeros[1])
    (found,) = run("MatMulInteger", [one, other, *zeros])
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, expected)
    (plain,) = run("MatMulInteger", [one, other])
    np.testing.assert_array_equal(plain, one.astype(np.int32) @ other.astype(np.int32))


def test_quantised_matrix_product_by_row_and_column() -> None:
    a, b = integers("int8", 3, 40), integers("uint8", 40, 5)
    a_scale, b_scale = f32(0.1, 0.2, 0.3), f32(0.1, 0.01, 0.3, 0.2, 0.05)
    a_zero, b_zero = np.array([1, -2, 3], np.int8), np.array([128, 1, 2, 3, 4], np.uint8)
    (found,) = run("QLinearMatMul", [a, a_scale, a_zero, b, b_scale, b_zero, scalar(9.7), scalar(5, "int8")])
    real = (a.astype(float) - a_zero[:, None]) * a_scale[:, None] @ ((b.astype(float) - b_zero) * b_scale)
    np.testing.assert_array_equal(found, np.clip(np.rint(real / 9.7) + 5, -128, 127))


def test_quantised_product_of_8_bit_floats() -> None:
    a, b = numbers(3, 4).astype("float8_e4m3fn"), numbers(4, 2).astype("float8_e4m3fn")
    zero = scalar(0, "float8_e4m3fn")
    (found,) = run("QLinearMatMul", [a, scalar(0.5), zero, b, scalar(2.0), zero, scalar(1.0), zero])
    expected = (a.astype(np.float32) @ b.astype(np.float32)).astype(zero.dtype)
    np.testing.assert_array_equal(found.view(np.uint8), expected.view(np.uint8))


@pytest.mark.parametrize("attributes", [
    {}, {"pads": (1, 1, 1, 1)}, {"pads": (1, 0, 2, 1), "strides": (2, 1)}, {"auto_pad": "SAME_LOWER"},
    {"dilations": (2, 1), "pads": (2, 1, 2, 1)},
])  # fmt: skip
def test_integer_convolution(attributes: dict[str, Any]) -> None:
    """Padding counts as x's zero point, not as 0."""
    x, w = integers("uint8", 2, 3, 6, 7), integers("uint8", 4, 3, 3, 2)
    zero = scalar(117, "uint8")
    shifted = [x.astype(np.float32) - 117, w.astype(np.float32) - 3]
    (expected,) = run("Conv", shifted, attributes)
    (found,) = run("ConvInteger", [x, w, zero, scalar(3, "uint8")], attributes)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, expected)


def test_quantised_convolution_by_channel() -> None:
    x, w = integers("uint8", 1, 4, 6, 5), integers("int8", 6, 2, 3, 3)
    scales, bias = f32(0.1, 0.2, 0.3, 0.4, 0.5, 0.6) * 0.01, np.arange(-300, 300, 100).astype(np.int32)
    zeros = np.array([0, 1, -1, 2, 0, 3], np.int8)
    arrays = [
        x,
        scalar(0.5),
        scalar(128, "uint8"),
        w,
        scales,
        zeros,
        scalar(0.713),
        scalar(100, "uint8"),
        bias,
    ]
    attributes = {"group": 2, "pads": (1, 1, 1, 1)}
    (found,) = run("QLinearConv", arrays, attributes)
    real = w.astype(np.float32) - zeros.reshape(-1, 1, 1, 1)
    (total,) = run("Conv", [x.astype(np.float32) - 128, real, bias.astype(np.float32)], attributes)
    scale = (np.float32(0.5) * scales / np.float32(0.713)).reshape(-1, 1, 1)
    np.testing.assert_array_equal(found, np.clip(np.rint(total * scale) + 100, 0, 255))


WRONG = [
    ("QuantizeLinear", [numbers(2, 3), f32(1, 2), None], {}, "2 scales or zero points do not fit axis 1"),
    ("QuantizeLinear", [numbers(2, 3), scalar(1), scalar(0, "int8")], {"output_dtype": 2}, "output_dtype is"),
    ("QuantizeLinear", [numbers(4, 3), numbers(3, 3)], {"axis": 0, "block_size": 2}, r"need .* \[2, 3\]"),
    ("DequantizeLinear", [integers("int8", 2), scalar(1, "float8_e8m0fnu")], {}, "set output_dtype"),
    ("DynamicQuantizeLinear", [numbers(0)], {}, "without elements"),
    ("MatMulInteger", [integers("int8", 3, 4), integers("int8", 4, 2), integers("int8", 2)], {}, "2 zero po"),
    ("ConvInteger", [integers("int8", 1, 1, 4), integers("int8", 2, 1, 1), None, integers("int8", 3)], {},
     "3 zero points do not fit 2 output channels"),
]  # fmt: skip


@pytest.mark.parametrize(("op_type", "arrays", "attributes", "message"), WRONG)
def test_wrong_use(op_type: str, arrays: list[Any], attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        run(op_type, arrays, attributes, outputs=3 if op_type.startswith("Dynamic") else 1)


# On every backend


def test_backends_quantise_alike(channel: str, make_worker: MakeWorker) -> None:
    scales, zeros = f32(0.13, 0.57, 2.1), np.array([3, -100, 50], np.int8)
    shape = np.zeros((5, 3, 7), np.float32)
    there = make_worker(
        one_layer("QuantizeLinear", [shape, scales, zeros], known=(1, 2), dynamic=(0,)), channel
    )
    back = make_worker(
        one_layer("DequantizeLinear", [shape.astype(np.int8), scales, zeros], known=(1, 2), dynamic=(0,)),
        channel,
    )

    @given(st.sampled_from([0, 1, 3]), st.sampled_from([1, 2, 6]), st.integers(0, 2**32 - 1))
    @PROPERTY
    def holds(outer: int, inner: int, seed: int) -> None:
        x = (np.random.default_rng(seed).standard_normal((outer, 3, inner)) * 60).astype(np.float32)
        (levels,) = answers(there, x)
        (expected,) = run("QuantizeLinear", [x, scales, zeros])
        np.testing.assert_array_equal(levels, expected)
        (real,) = answers(back, levels)
        np.testing.assert_allclose(real, run("DequantizeLinear", [levels, scales, zeros])[0], rtol=1e-6)

    holds()


@pytest.mark.spread
def test_backends_multiply_integers_exactly(channel: str, make_worker: MakeWorker) -> None:
    worker = make_worker(
        one_layer(
            "MatMulInteger",
            [integers("uint8", 4, 6), integers("int8", 6, 3), integers("uint8", 4), integers("int8", 3)],
            dynamic=(0, 1, 2, 3),
        ),
        channel,
    )

    @given(st.sampled_from([1, 4]), st.sampled_from([0, 1, 6, 300]), st.sampled_from([1, 3]))
    @PROPERTY
    def holds(m: int, depth: int, n: int) -> None:
        zeros = integers("uint8", m), integers("int8", n)
        arrays = [integers("uint8", m, depth), integers("int8", depth, n), *zeros]
        (found,) = answers(worker, {f"x{i}": a for i, a in enumerate(arrays)})
        wide = [a.astype(np.int32) for a in arrays]
        np.testing.assert_array_equal(found, (wide[0] - wide[2][:, None]) @ (wide[1] - wide[3]))

    holds()


@pytest.mark.spread
def test_backends_convolve_integers_exactly(channel: str, make_worker: MakeWorker) -> None:
    x, w, zero = integers("uint8", 2, 4, 9, 8), integers("int8", 6, 2, 3, 3), scalar(117, "uint8")
    attributes = {"pads": (1, 1, 1, 1), "group": 2}
    model = one_layer(
        "ConvInteger", [x, w, zero, integers("int8", 6)], attributes, known=(1, 2, 3), dynamic=(0,)
    )
    worker = make_worker(model, channel)
    for shape in ((2, 4, 9, 8), (1, 4, 3, 5)):
        given = integers("uint8", *shape)
        worker.schedule(given)
        (expected,) = run("ConvInteger", [given, w, zero, integers("int8", 6)], attributes)
        np.testing.assert_array_equal(worker.peek_output().download_to_array(), expected)
