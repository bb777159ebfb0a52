"""Products with the weights of chosen experts: many rows are listed by expert, few read them as they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine import BackendType, Worker
from engine.backends.base import Backend
from engine.base.shapes import DynamicTensorShape
from engine.compiler.plan import Compute
from engine.kernels.expr import Expr, arg, cast, index, lit, reduce
from engine.kernels.hint import Hint
from engine.kernels.value import Value
from engine.operators.contrib.block_quantized import unpacked_number
from tests.engine.backends.steps import biased, result_of, tuned_plan, value
from tests.engine.operators.single import one_layer

FLOAT32 = np.dtype(np.float32)
MICROSOFT = "com.microsoft"


class Case:
    """A product's arrays, and what it is in float64."""

    def __init__(
        self, rows: int, count: int, sizes: tuple[int, int, int], *, shared: bool, used: int, is_packed: bool
    ) -> None:
        """Rows choose among the first `used` experts."""
        draw, (experts, n, k) = np.random.default_rng(rows), sizes
        self.shared, self.sizes, self.is_packed = shared, sizes, is_packed
        chosen = draw.integers(0, used, (rows, count)).astype(np.int32)
        x = draw.standard_normal((rows if shared else rows * count, k)).astype(np.float32)
        self.arrays = {"chosen": chosen, "x": x}
        if is_packed:
            numbers = draw.integers(0, 16, (experts * n, k))
            scales = draw.uniform(0.1, 0.2, (experts * n, 1)).astype(np.float32)
            self.arrays |= {"words": (numbers[:, ::2] | numbers[:, 1::2] << 4).astype(np.uint8)}
            self.arrays["scales"] = scales
            w = ((numbers - 8) * scales.astype(np.float64)).reshape(sizes)
        else:
            self.arrays["w"] = draw.standard_normal(sizes).astype(np.float32)
            w = self.arrays["w"].astype(np.float64)
        self.arrays["bias"] = draw.standard_normal(n).astype(np.float32)
        by_pair = x[:, None] if shared else x.reshape(rows, count, k)
        products = np.einsum("rck,rcnk->rcn", np.broadcast_to(by_pair, (rows, count, k)), w[chosen])
        self.expected = np.maximum(products + self.arrays["bias"], 0)

    def compute(self, known: bool, static: bool) -> Compute:
        """The step, with a bias and a rectifier."""
        tensors = {
            name: value(name, x, known and name == "w", static or name not in ("chosen", "x"))
            for name, x in self.arrays.items()
        }
        chosen, x = tensors["chosen"], tensors["x"]
        attributes: dict[str, Any] = {"shared": self.shared}
        (_, n, k), count = self.sizes, chosen.shape[1]
        if self.is_packed:
            words, scales = tensors["words"], tensors["scales"]

            def weight(line: Expr, c: Expr) -> Expr:
                return (cast(unpacked_number(words, (line,), c, 4), "float32") - 8.0) * scales[line, lit(0)]

            attributes |= {"experts": self.sizes[0], "n": n, "k": k, "weight": weight}
            hint = Hint("expert_matmul_nbits", (chosen, x, words, scales), attributes)
        else:

            def weight(line: Expr, c: Expr) -> Expr:
                return tensors["w"].at(line * arg(k) + c)

            hint = Hint("expert_matmul", (chosen, x, tensors["w"]), attributes)
        t, s, column = map(index, range(3))
        line = cast(chosen[t, s], "index") * arg(n) + column
        row = t if self.shared else t * arg(count) + s
        body = reduce("sum", k, lambda c: x[row, c] * weight(line, c))
        shape = self.expected.shape
        return Compute(
            Value("y", shape, FLOAT32), shape, body, "layer", "MoE", hint, biased(tensors["bias"], 2)
        )


@pytest.mark.spread("form")
@pytest.mark.parametrize("is_packed", [False, True], ids=["floats", "packed"])
@pytest.mark.parametrize("static", [True, False], ids=["static", "open"])
@pytest.mark.parametrize(
    ("rows", "count", "sizes", "shared", "used"),
    [
        (9, 1, (8, 5, 6), True, 8),
        (33, 2, (5, 37, 24), True, 5),
        (33, 2, (5, 37, 24), False, 4),
        (50, 3, (6, 16, 10), False, 1),
    ],
)
def test_rows_are_listed_by_expert(
    form: Backend, rows: int, count: int, sizes: tuple[int, int, int], shared: bool, used: int,
    static: bool, is_packed: bool,
) -> None:  # fmt: skip
    case = Case(rows, count, sizes, shared=shared, used=used, is_packed=is_packed)
    compute = case.compute(known=False, static=static)
    plan = tuned_plan(form, compute)
    found = result_of(form, plan, case.arrays, compute.output)
    np.testing.assert_allclose(found, case.expected, rtol=0, atol=1e-4 * np.abs(case.expected).max())


def test_known_weights_are_packed_while_loading(form: Backend) -> None:
    case = Case(20, 2, (4, 21, 8), shared=True, used=4, is_packed=False)
    compute = case.compute(known=True, static=True)
    plan = tuned_plan(form, compute)
    assert len(plan.steps) == 3
    found = result_of(form, plan, case.arrays, compute.output)
    np.testing.assert_allclose(found, case.expected, rtol=0, atol=1e-4 * np.abs(case.expected).max())


@pytest.mark.parametrize("rows", [1, 3, 4, 5, 40])
@pytest.mark.parametrize(
    ("backend", "device"),
    [
        pytest.param(BackendType.GPU_COMPUTE, "gl", marks=pytest.mark.gl),
        pytest.param(BackendType.GPU_COMPUTE, "opencl", marks=pytest.mark.opencl),
    ],
)
def test_few_and_many_rows_share_a_plan(backend: BackendType, device: Any, rows: int) -> None:
    """The number of rows is open: 4 experts, 1 of them for a row, so that up to 4 rows are few."""
    draw = np.random.default_rng(rows)
    first, second = (draw.standard_normal((4, 12, 12)).astype(np.float32) for _ in range(2))
    x, scores = (draw.standard_normal((rows, width)).astype(np.float32) for width in (12, 4))
    model = one_layer("MoE", [x, scores, first, None, second], {"k": 1}, known=[2, 4], domain=MICROSOFT)
    source = model.replace(
        inputs=tuple(
            replace(item, shape=DynamicTensorShape(("rows", width)))
            for item, width in zip(model.inputs, (12, 4), strict=True)
        )
    )
    shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    best = scores.argmax(1)
    hidden = np.maximum(np.einsum("ri,rhi->rh", x, first[best]), 0)
    expected = np.einsum("rh,roh->ro", hidden, second[best]) * shares.max(1)[:, None]
    with Worker(source, backend, device=device, allow_fallback=False) as worker:
        worker.schedule(x, scores)
        found = worker.peek_output().download_to_array()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 * np.abs(expected).max())
