"""Products with weights packed into bytes: few rows read them as they are, many unpack them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from engine import BackendType, ModelLoader, Worker
from engine.backends.base import Backend
from engine.compiler.plan import Compute
from engine.kernels.expr import Expr, acc, cast, index, lit
from engine.kernels.hint import Hint
from engine.kernels.value import Value
from engine.operators.contrib.block_quantized import unpacked_number
from tests.engine.backends.steps import result_of, tuned_plan, value

FLOAT32 = np.dtype(np.float32)


def packed(numbers: np.ndarray, bits: int) -> np.ndarray:
    """Rows of small numbers as bytes, lowest bits first."""
    if bits == 8:
        return numbers.astype(np.uint8)
    even = numbers if numbers.shape[1] % 2 == 0 else np.pad(numbers, ((0, 0), (0, 1)))
    return (even[:, ::2] | even[:, 1::2] << 4).astype(np.uint8)


class Case:
    """A product's arrays, and what it is in float64."""

    def __init__(self, m: int, n: int, k: int, bits: int, block: int, has_zeros: bool, scales: str) -> None:
        draw = np.random.default_rng(m + n + k)
        numbers = draw.integers(0, 1 << bits, (n, k))
        zeros = draw.integers(0, 1 << bits, (n, k // block))
        self.k, self.bits, self.block = k, bits, block
        self.arrays = {
            "a": draw.standard_normal((m, k)).astype(np.float32),
            "words": packed(numbers, bits),
            "scales": draw.uniform(0.01, 0.02, (n, k // block)).astype(scales),
        }
        if has_zeros:
            self.arrays["zeros"] = packed(zeros, bits)
        middle = np.repeat(zeros, block, 1) if has_zeros else 1 << (bits - 1)
        weights = (numbers - middle) * np.repeat(self.arrays["scales"].astype(np.float64), block, 1)
        self.expected = self.arrays["a"].astype(np.float64) @ weights.T

    def compute(self, static: bool) -> Compute:
        """The step; only its hint matters, the formula is left empty."""
        m, n = self.expected.shape
        tensors = {name: value(name, x, static=static or name != "a") for name, x in self.arrays.items()}
        words, scales = tensors["words"], tensors["scales"]

        def weight(column: Expr, at: Expr) -> Expr:
            number = cast(unpacked_number(words, (column,), at, self.bits), "float32")
            block, middle = at // lit(self.block), lit(float(1 << (self.bits - 1)), "float32")
            if "zeros" in tensors:
                middle = cast(unpacked_number(tensors["zeros"], (column,), block, self.bits), "float32")
            return cast(scales[column, block], "float32") * (number - middle)

        attributes = {
            "m": m, "n": n, "k": self.k, "weight": weight, "bits": self.bits, "block": self.block,
            "is_assigned": False,
        }  # fmt: skip
        hint = Hint("matmul_nbits", tuple(tensors.values()), attributes)
        output = Value("y", (m, n), FLOAT32)
        return Compute(output, (m, n), lit(0.0, "float32"), "layer", "MatMulNBits", hint)


def assert_close(got: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(got, expected, rtol=0, atol=2e-5 * max(1.0, np.abs(expected).max()))


CASES: dict[str, Any] = {
    # m, n, k, bits, block, zero points, type of the scales
    "one row": (1, 40, 96, 4, 32, False, "float32"),
    "columns that do not fill a group": (1, 21, 256, 4, 64, True, "float32"),
    "three rows": (3, 18, 160, 4, 32, True, "float32"),
    "bytes": (2, 9, 128, 8, 64, False, "float32"),
    "bytes with zero points": (1, 35, 192, 8, 32, True, "float32"),
    "scales of half precision": (1, 24, 64, 4, 32, True, "float16"),
    "many rows": (9, 20, 64, 4, 32, True, "float32"),
    "one column": (1, 1, 1024, 4, 256, False, "float32"),
}


@pytest.mark.spread("form")
@pytest.mark.parametrize("static", [True, False], ids=["static", "open"])
@pytest.mark.parametrize("name", CASES)
def test_products(form: Backend, name: str, static: bool) -> None:
    case = Case(*CASES[name])
    compute = case.compute(static)
    assert_close(result_of(form, tuned_plan(form, compute), case.arrays, compute.output), case.expected)


def test_a_product_with_its_epilogue(form: Backend) -> None:
    case = Case(2, 19, 64, 4, 32, False, "float32")
    bias = np.random.default_rng(1).standard_normal(19).astype(np.float32)
    compute = case.compute(static=True)
    compute.epilogue = acc("float32") * cast(index(0) + lit(1), "float32") + value("bias", bias)[index(1)]
    got = result_of(form, tuned_plan(form, compute), {**case.arrays, "bias": bias}, compute.output)
    assert_close(got, case.expected * np.array([[1], [2]]) + bias)


@pytest.mark.parametrize(
    "device", [pytest.param("gl", marks=pytest.mark.gl), pytest.param("opencl", marks=pytest.mark.opencl)]
)
def test_one_plan_serves_one_row_and_many(device: Any) -> None:
    case = Case(12, 33, 128, 4, 32, True, "float32")
    layer = helper.make_node(
        "MatMulNBits", ["a", "words", "scales", "zeros"], ["y"], domain="com.microsoft",
        K=128, N=33, bits=4, block_size=32,
    )  # fmt: skip
    made = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, ["rows", size])
        for n, size in (("a", 128), ("y", 33))
    ]
    constants = [numpy_helper.from_array(x, name) for name, x in case.arrays.items() if name != "a"]
    graph = helper.make_graph([layer], "one", made[:1], made[1:], constants)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    source = helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    with Worker(
        ModelLoader.load(source), BackendType.GPU_COMPUTE, device=device, allow_fallback=False
    ) as worker:
        for rows in (1, 12, 4, 5, 2):
            worker.schedule({"a": case.arrays["a"][:rows]})
            assert_close(worker.peek_output().download_to_array(), case.expected[:rows])
