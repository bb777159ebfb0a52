"""Depthwise convolutions with channels last, against those with channels first, evaluated by NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.backends.cpu.backend import CPUBackend
from engine.backends.cpu.kernels.convolution.nhwc_windows import tune_nhwc_depthwise
from engine.compiler.plan import Tuner
from engine.kernels.expr import Expr, acc, arg, lit, load, maximum, minimum
from engine.kernels.value import Value
from tests.engine.backends.cpu.hinted import Case, conv_case, random_windows, run_tuned
from tests.engine.backends.cpu.last import assert_close, first_to_last
from tests.engine.backends.steps import F32

PLAIN: dict[str, Any] = {"strides": (1, 1), "dilations": (1, 1), "pads": (0, 0), "ends": (0, 0)}
SAME: dict[str, Any] = {"pads": (1, 1), "ends": (1, 1)}


def case(x: tuple[int, ...], kernel: tuple[int, ...], seed: int = 0, **changes: Any) -> Case:
    settings = {**PLAIN, "group": x[1], "epilogue": None, **changes}
    return conv_case(seed, x, (x[1], 1, *kernel), **settings)


SHAPES: dict[str, tuple[Any, ...]] = {
    "3x3": ((2, 40, 11, 20), (3, 3), SAME),
    "3x3 stride 2": ((1, 32, 15, 23), (3, 3), {**SAME, "strides": (2, 2)}),
    "5x5": ((1, 24, 14, 14), (5, 5), {"pads": (2, 2), "ends": (2, 2)}),
    "5x5 stride 2": ((1, 16, 14, 15), (5, 5), {"pads": (1, 2), "ends": (2, 2), "strides": (2, 2)}),
    "no padding": ((2, 16, 9, 12), (3, 3), {}),
    "dilated": ((1, 17, 14, 23), (3, 3), {"dilations": (2, 3), "pads": (2, 3), "ends": (2, 3)}),
    "windows wider than the input": ((1, 18, 2, 3), (3, 5), {"pads": (1, 2), "ends": (1, 2)}),
    "many channels": ((1, 300, 7, 7), (3, 3), SAME),
    "edges of many windows": ((2, 24, 13, 25), (11, 11), {"pads": (5, 5), "ends": (5, 5)}),
    "one axis": ((2, 20, 31), (4,), {"strides": (2,), "dilations": (1,), "pads": (1,), "ends": (2,)}),
}


@pytest.mark.parametrize("name", SHAPES)
def test_named_shapes(backend: CPUBackend, name: str) -> None:
    x, kernel, changes = SHAPES[name]
    last, expected = first_to_last(case(x, kernel, **changes))
    assert_close(run_tuned(backend, last), expected)


@pytest.mark.parametrize("channels", [2, 15, 16, 17, 129])
@pytest.mark.parametrize("epilogue", ["bias", "residual", "position"])
def test_epilogues(backend: CPUBackend, epilogue: str, channels: int) -> None:
    last, expected = first_to_last(case((2, channels, 9, 19), (3, 3), **SAME), epilogue)
    assert_close(run_tuned(backend, last), expected, 1.0 if epilogue == "position" else 0.0)


@pytest.mark.parametrize("bound", ["literal", "argument", "known", "unknown"])
@pytest.mark.parametrize("high", [0.5, np.nan])
def test_bounds_let_what_is_not_a_number_through(backend: CPUBackend, bound: str, high: float) -> None:
    given = case((1, 20, 9, 19), (3, 3), **SAME)
    given.arrays["x"][0, 3, 4, 5] = np.nan
    given.arrays["x"][0, 7, 1, 2] = np.inf
    last, plain = first_to_last(given)

    def limit(name: str, number: float) -> Expr:
        if bound == "literal":
            return lit(number, "float32")
        if bound == "argument":
            return arg(number, "float32")
        array = last.arrays[name] = np.full(1, number, np.float32)
        return load(Value(name, (1,), F32, None, array if bound == "known" else None), lit(0))

    assert last.compute is not None
    last.compute.epilogue = minimum(maximum(acc("float32"), limit("low", 0.0)), limit("high", high))
    with np.errstate(invalid="ignore"):
        expected = np.minimum(np.maximum(plain, np.float32(0.0)), np.float32(high))
    assert np.isnan(expected).any()
    assert (expected == 0.5).any() or np.isnan(expected).all()
    assert_close(run_tuned(backend, last), expected)


def test_random_shapes(backend: CPUBackend) -> None:
    rng = np.random.default_rng(9)
    for tried in range(16):
        size, kernel, given = random_windows(rng, 30)
        last, expected = first_to_last(case((1, int(rng.integers(2, 40)), *size), kernel, tried, **given))
        assert_close(run_tuned(backend, last), expected)


def test_several_outputs_per_channel_are_left_to_others() -> None:
    given = conv_case(0, (1, 4, 5, 5), (8, 1, 3, 3), **PLAIN, group=4, epilogue=None)
    last, _ = first_to_last(given)
    assert last.compute is not None
    tuner = Tuner(last.compute, lambda name, make: name, lambda elements, dtype: "")
    assert not tune_nhwc_depthwise(last.compute, tuner, 2)
    assert not tuner.steps
