"""Elementwise operators on random tensors: every way to broadcast, sizes of 0 and 1, types and attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from tests.engine.conftest import MakeWorker
from tests.engine.operators.properties import (
    Dims,
    Draw,
    Example,
    Expected,
    Subject,
    everyday,
    hold_by_numpy,
    hold_on,
    sizes_of,
    tensor,
)
from tests.engine.operators.single import run

SHAPES: tuple[tuple[Dims, Dims], ...] = (
    (("n", "m", "k"), ("n", "m", "k")),
    (("n", "m", "k"), ("n", 1, "k")),
    (("n", "m", "k"), ("k",)),
    ((), ("n", "m")),
    (("n", 1), ("m",)),
    ((1, "n"), (1, 1, "n")),
)
"""Two tensors that broadcast together."""
PLAIN = SHAPES[:2]


@st.composite
def unary(
    draw: Draw, op_type: str, low: float = -4, high: float = 4, dtype: str = "float32",
    expected: Expected | None = None, **attributes: Any,
) -> Example:  # fmt: skip
    """One tensor; an attribute is a strategy or a value."""
    sizes = sizes_of(draw, "n", "m")
    dims = draw(st.sampled_from([(), ("n", "m")]))
    chosen = {a: draw(v) if isinstance(v, st.SearchStrategy) else v for a, v in attributes.items()}
    return Example(op_type, [tensor(draw, sizes, dims, dtype, low, high)], chosen, expected=expected)


@st.composite
def binary(
    draw: Draw, op_type: str, dtype: str = "float32", low: float = -4, high: float = 4,
    shapes: tuple[tuple[Dims, Dims], ...] = PLAIN, nonzero: bool = False, opset: int = 25, **attributes: Any,
) -> Example:  # fmt: skip
    """Two tensors that broadcast."""
    a, b = draw(st.sampled_from(shapes))
    sizes = sizes_of(draw, "n", "m", "k")
    x, y = tensor(draw, sizes, a, dtype, low, high), tensor(draw, sizes, b, dtype, low, high)
    if nonzero:
        y = np.where(y[0] == 0, np.array(1, y[0].dtype), y[0]), y[1]
    return Example(op_type, [x, y], attributes, opset)


@st.composite
def variadic(draw: Draw, op_type: str, dtype: str = "float32") -> Example:
    """1 to 9 tensors."""
    sizes = sizes_of(draw, "n", "m")
    dims: list[Dims] = [("n", "m"), (1, "m"), ("n", 1), ()]
    count = draw(st.sampled_from([1, 2, 3, 9]))
    return Example(op_type, [tensor(draw, sizes, dims[i % 4], dtype) for i in range(count)])


@st.composite
def power(draw: Draw, base: str, exponent: str) -> Example:
    """Exponents of another type than the base; negative bases have whole exponents."""
    sizes = sizes_of(draw, "n", "m")
    whole = np.dtype(exponent).kind in "iu"
    x = tensor(draw, sizes, ("n", "m"), base, *((-3, 3) if whole and base != "uint32" else (0.1, 3)))
    return Example("Pow", [x, tensor(draw, sizes, (1, "m"), exponent, 0 if whole else -2, 5)])


@st.composite
def clip(draw: Draw, dtype: str) -> Example:
    """Bounds that may be absent."""
    sizes = sizes_of(draw, "n", "m")
    x = tensor(draw, sizes, ("n", "m"), dtype)
    low = draw(st.sampled_from([None, -1, 0]))
    high = draw(st.sampled_from([None, 0, 2]))
    bounds = [None if v is None else (np.array(v, dtype), ()) for v in (low, high)]
    return Example("Clip", [x, *bounds], {}, draw(st.sampled_from([11, 13, 25])))


@st.composite
def where(draw: Draw, dtype: str) -> Example:
    """Three tensors that broadcast."""
    sizes = sizes_of(draw, "n", "m")
    a, b, c = draw(st.permutations([("n", "m"), ("m",), ("n", 1)]))
    condition = tensor(draw, sizes, a, "bool")
    return Example("Where", [condition, tensor(draw, sizes, b, dtype), tensor(draw, sizes, c, dtype)])


CAST = {
    "float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7, "bool": 9, "float16": 10, "uint32": 12,
}  # fmt: skip


@st.composite
def cast(draw: Draw, source: str, target: str) -> Example:
    """Numbers that the target holds."""
    sizes = sizes_of(draw, "n", "m")
    low = 0 if "u" in source + target or "bool" in (source, target) else -100
    return Example("Cast", [tensor(draw, sizes, ("n", "m"), source, low, 100)], {"to": CAST[target]})


NUMBERS = st.sampled_from([0.0, 0.25, 1.0, 1.5])
RANGES: dict[str, tuple[float, float]] = {
    "Sqrt": (0, 9), "Log": (0.01, 9), "Asin": (-1, 1), "Acos": (-1, 1), "Acosh": (1, 9), "Atanh": (-0.9, 0.9),
    "Tan": (-1.4, 1.4), "Reciprocal": (0.1, 4),
}  # fmt: skip
FLOAT_FUNCTIONS = (
    "Sqrt Exp Log Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh Asinh Acosh Atanh Erf Neg Abs Sign Floor Ceil"
    " Round Reciprocal Relu Sigmoid Softplus HardSwish Mish IsNaN Identity"
).split()

SUBJECTS: dict[str, Subject] = {
    **{name: unary(name, *RANGES.get(name, (-4, 4))) for name in FLOAT_FUNCTIONS},
    **{f"{name}-int32": unary(name, -9, 9, "int32") for name in ("Neg", "Abs", "Sign", "Relu", "BitwiseNot")},
    **{f"{name}-float16": unary(name, dtype="float16") for name in ("Exp", "Sigmoid", "Erf")},
    "Softsign": unary("Softsign", expected=lambda x: x / (1 + abs(x))),
    "Not": unary("Not", dtype="bool"),
    "LeakyRelu": unary("LeakyRelu", alpha=NUMBERS),
    "Elu": unary("Elu", alpha=NUMBERS),
    "Selu": unary("Selu", alpha=NUMBERS, gamma=NUMBERS),
    "Celu": unary("Celu", alpha=st.sampled_from([0.5, 1.0, 2.0])),
    "Gelu": unary("Gelu", approximate=st.sampled_from(["none", "tanh"])),
    "HardSigmoid": unary("HardSigmoid", alpha=NUMBERS, beta=NUMBERS),
    "ThresholdedRelu": unary("ThresholdedRelu", alpha=NUMBERS),
    "Shrink": unary("Shrink", bias=NUMBERS, lambd=NUMBERS),
    "Swish": unary("Swish", alpha=NUMBERS),
    "IsInf": unary("IsInf", detect_negative=st.integers(0, 1), detect_positive=st.integers(0, 1)),
    "Add-shapes": binary("Add", shapes=SHAPES),
    "Mul-shapes": binary("Mul", "int64", shapes=SHAPES),
    **{name: binary(name) for name in ("Sub", "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual")},
    "Div": binary("Div", nonzero=True),
    "Div-int32": binary("Div", "int32", -9, 9, nonzero=True),
    "Equal-bool": binary("Equal", "bool"),
    **{name: binary(name, "bool") for name in ("And", "Or", "Xor")},
    **{name: binary(name, "int32", -9, 9) for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")},
    "Mod-int32": binary("Mod", "int32", -9, 9, nonzero=True),
    "Mod-fmod": binary("Mod", nonzero=True, fmod=1),
    "Mod-int32-fmod": binary("Mod", "int32", -9, 9, nonzero=True, fmod=1),
    "BitShift-left": binary("BitShift", "uint32", 0, 31, direction="LEFT"),
    "BitShift-right": binary("BitShift", "uint32", 0, 31, direction="RIGHT"),
    "PRelu": binary("PRelu"),
    "Pow": power("float32", "float32"),
    "Pow-int-exponent": power("float32", "int32"),
    "Pow-int": power("int32", "int32"),
    **{name: variadic(name) for name in ("Sum", "Max", "Min", "Mean")},
    **{f"{name}-int64": variadic(name, "int64") for name in ("Max", "Min")},
    "Clip": clip("float32"),
    "Clip-int32": clip("int32"),
    "Where": where("float32"),
    "Where-bool": where("bool"),
    **{f"Cast-{a}-{b}": cast(a, b) for a in CAST for b in CAST if a != b},
}


@pytest.mark.parametrize("name", SUBJECTS)
def test_formulas(name: str) -> None:
    hold_by_numpy(SUBJECTS[name])


@pytest.mark.spread
@pytest.mark.parametrize("name", everyday(SUBJECTS))
def test_backends(name: str, channel: str, make_worker: MakeWorker) -> None:
    hold_on(SUBJECTS[name], channel, make_worker)


@pytest.mark.parametrize("base", ["float32", "float64", "int64"])
@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("kind", ["float32", "int64"])
def test_powers_by_a_known_exponent(base: str, exponent: int, kind: str) -> None:
    x = np.array([-3, -1, 0, 1, 2, 7], base)
    found = run("Pow", [x, np.array([exponent], kind)], known=[1])[0]
    assert found.dtype == x.dtype
    np.testing.assert_allclose(found, np.power(x, exponent), rtol=1e-6)
