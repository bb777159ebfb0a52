"""The language on every printer: what NumPy evaluation says, and literal values for the nasty cases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from engine.base.dtypes import (
    CODE_TYPES,
    FLOAT_TYPES,
    STORAGE_TYPES,
    ArithmeticType,
    arithmetic_type,
    as_dtype,
    bits_of,
    integer_range,
)
from engine.kernels.evaluate import evaluate
from engine.kernels.expr import (
    COMPARE,
    FLAT,
    UNARY,
    Expr,
    arg,
    binary,
    bits,
    cast,
    clamp,
    compare,
    floor_div,
    floor_mod,
    lit,
    maximum,
    minimum,
    unary,
)
from engine.kernels.kernel import kernel_call
from engine.kernels.value import Value
from tests.engine.kernels.runners import Runner

NAN, INF = float("nan"), float("inf")
I32, I64 = -(2**31), -(2**63)
U32, U64 = 2**32 - 1, 2**64 - 1

FLOATS = [
    NAN, INF, -INF, 0.0, -0.0, 1e-40, -1e-40, 1.1754944e-38, 1e-7, 0.1, 0.5, -0.5, 0.625, 1.0, -1.0, 1.5,
    -1.5, 2.5, -2.5, 3.5, 0.99999994, 3.1415927, 4.0, 7.25, 9.5, -9.5, 10.0, 88.0, 88.7, 89.0, 100.0, -100.0,
    -87.0, -90.0, -103.0, -104.5, 1000.25, 16777217.0, 8388609.0, 3.0e38, -3.0e38,
]  # fmt: skip
INTEGERS: dict[str, list[Any]] = {
    "int32": [0, 1, -1, 2, -2, 3, -3, 7, -7, 31, 32, 33, -32, 46341, 65537, I32, I32 + 1, 2**31 - 1],
    "int64": [0, 1, -1, 2, -2, 3, -3, 7, -7, 63, 64, 65, -64, 2**32 + 1, I64, I64 + 1, 2**63 - 1],
    "uint32": [0, 1, 2, 3, 7, 31, 32, 33, 65537, 2**31, U32 - 1, U32],
    "uint64": [0, 1, 2, 3, 7, 63, 64, 65, 2**32 + 1, 2**63, U64 - 1, U64],
    "bool": [False, True],
}
FLOAT_UNARY = (
    "neg abs sqrt exp log sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh"
    " floor ceil round trunc sign erf isnan isinf"
).split()
EXACT = frozenset("neg abs sqrt floor ceil round trunc sign isnan isinf".split())
FLOAT_BINARY = "add sub mul div rem pow min max".split()
INTEGER_BINARY = "add sub mul div rem pow min max and or xor shl shr".split()


def rarer(*types: str) -> list[Any]:
    """Types that the long suite adds."""
    return [pytest.param(name, marks=pytest.mark.long) for name in types]


def run(
    runner: Runner, formula: Expr, dtype: str, space: Sequence[int], arrays: dict[Value, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """What the runner computes, and what NumPy evaluation does."""
    kernel, values, inputs = kernel_call(formula, len(space), as_dtype(dtype))
    ordered = [arrays[v] for v in inputs]
    return runner.run(kernel, space, values, ordered), evaluate(kernel, space, values, ordered)


def elementwise(
    runner: Runner, formula: Callable[..., Expr], dtype: str, *arrays: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """`formula` over the elements of arrays of one length."""
    values = [Value(f"x{k}", a.shape, a.dtype) for k, a in enumerate(arrays)]
    body = formula(*(v.at(FLAT) for v in values))
    return run(runner, body, dtype, arrays[0].shape, dict(zip(values, arrays, strict=True)))


def needs(runner: Runner, *types: str) -> None:
    missing = set(types) - runner.types
    if missing:
        pytest.skip(f"computes nothing in {', '.join(sorted(missing))}")


def pairs(items: Any, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Every pair of two items."""
    a = np.array(items, as_dtype(dtype))
    return np.repeat(a, len(a)), np.tile(a, len(a))


def floats_for(runner: Runner, dtype: str) -> np.ndarray:
    smallest = float(np.finfo(dtype).tiny)
    x = np.array(FLOATS, dtype)
    return x if runner.denormals else x[~((np.abs(x) < smallest) & (x != 0))]


def without_flushed(runner: Runner, got: np.ndarray, expected: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Leave out results that may have been flushed to 0, even if rounding would have made them normal."""
    if runner.denormals or expected.dtype.kind != "f":
        return got, expected
    keep = (np.abs(expected) > np.finfo(expected.dtype).tiny) | (expected == 0) | ~np.isfinite(expected)
    return got[keep], expected[keep]


def assert_close(got: np.ndarray, expected: np.ndarray, ulps: float, label: str = "") -> None:
    assert got.dtype == expected.dtype
    if got.dtype.kind != "f" or ulps == 0:
        np.testing.assert_array_equal(got, expected, err_msg=label)
        return
    special = ~np.isfinite(expected)
    np.testing.assert_array_equal(got[special], expected[special], err_msg=label)
    unit = np.spacing(np.maximum(np.abs(expected[~special]), np.finfo(got.dtype).tiny))
    error = np.abs(got[~special].astype(np.float64) - expected[~special]) / unit
    assert np.all(error <= ulps), (
        f"{label}: {np.nanmax(error)} ulp at {expected[~special][np.nanargmax(error)]}"
    )


# Every operation on every type


@pytest.mark.parametrize("dtype", ["float32", *rarer("float64")])
@pytest.mark.parametrize("op", FLOAT_UNARY)
def test_float_functions(runner: Runner, op: str, dtype: ArithmeticType) -> None:
    needs(runner, dtype)
    x = floats_for(runner, dtype)
    if op in ("sin", "cos", "tan"):
        x = x[~(np.abs(x) > (1e9 if runner.large_angles and op != "tan" else 1e4))]
    result = "bool" if op in ("isnan", "isinf") else dtype
    got, expected = elementwise(runner, lambda a: unary(op, a), result, x)
    if op in ("floor", "ceil", "round", "trunc", "sign"):
        # The sign of a zero is not part of the language.
        got, expected = got + x.dtype.type(0), expected + x.dtype.type(0)
    got, expected = without_flushed(runner, got, expected)
    assert_close(got, expected, 0 if op in EXACT else max(runner.ulps, 1.0) if runner.ulps else 0, op)


@pytest.mark.parametrize("dtype", ["float32", *rarer("float64")])
@pytest.mark.parametrize("op", FLOAT_BINARY)
def test_float_arithmetic(runner: Runner, op: str, dtype: ArithmeticType) -> None:
    needs(runner, dtype)
    a, b = pairs(floats_for(runner, dtype), dtype)
    got, expected = elementwise(runner, lambda x, y: binary(op, x, y), dtype, a, b)
    got, expected = without_flushed(runner, got, expected)
    assert_close(got, expected, runner.ulps if op in ("pow", "rem") else 0, op)


@pytest.mark.spread("dtype")
@pytest.mark.parametrize("dtype", ["int32", "int64", *rarer("uint32", "uint64")])
@pytest.mark.parametrize("op", INTEGER_BINARY)
def test_integer_arithmetic(runner: Runner, op: str, dtype: ArithmeticType) -> None:
    needs(runner, dtype)
    a, b = pairs(INTEGERS[dtype], dtype)
    got, expected = elementwise(runner, lambda x, y: binary(op, x, y), dtype, a, b)
    assert_close(got, expected, 0, op)


@pytest.mark.spread("dtype")
@pytest.mark.parametrize("dtype", ["int32", "int64", *rarer("uint32", "uint64")])
@pytest.mark.parametrize("op", ["neg", "abs", "sign", "bitnot"])
def test_integer_functions(runner: Runner, op: str, dtype: ArithmeticType) -> None:
    needs(runner, dtype)
    x = np.array(INTEGERS[dtype], dtype)
    assert_close(*elementwise(runner, lambda a: unary(op, a), dtype, x), 0, op)


@pytest.mark.spread("dtype")
@pytest.mark.parametrize(
    "dtype", ["float32", "int64", *rarer("float64", "int32", "uint32", "uint64", "bool")]
)
@pytest.mark.parametrize("op", sorted(COMPARE))
def test_comparisons(runner: Runner, op: str, dtype: ArithmeticType) -> None:
    needs(runner, dtype)
    a, b = pairs(floats_for(runner, dtype) if dtype in FLOAT_TYPES else INTEGERS[dtype], dtype)
    assert_close(*elementwise(runner, lambda x, y: compare(op, x, y), "bool", a, b), 0, op)


@pytest.mark.parametrize("op", ["and", "or", "xor", "add", "mul", "min", "max"])
def test_logic(runner: Runner, op: str) -> None:
    a, b = pairs([False, True], "bool")
    assert_close(*elementwise(runner, lambda x, y: binary(op, x, y), "bool", a, b), 0, op)


@pytest.mark.parametrize(
    ("op", "dtype"),
    [("tanh", "int32"), ("erf", "bool"), ("floor", "int64"), ("isnan", "uint32"), ("neg", "bool"),
     ("bitnot", "float32"), ("div", "bool"), ("sub", "bool"), ("shl", "float64")],
)  # fmt: skip
def test_operations_are_refused_on_types_without_a_definition(op: str, dtype: ArithmeticType) -> None:
    x = arg(1, dtype)
    with pytest.raises(TypeError, match=rf"{op} takes (floats|integers|numbers), not {dtype}"):
        unary(op, x) if op in UNARY else binary(op, x, x)


@pytest.mark.parametrize(
    "target", ["float32", "int32", "int64", "bool", *rarer("float64", "uint32", "uint64")]
)
@pytest.mark.parametrize(
    "source", ["float32", "int32", "int64", "bool", *rarer("float64", "uint32", "uint64")]
)
def test_casts(runner: Runner, source: ArithmeticType, target: ArithmeticType) -> None:
    needs(runner, source, target)
    if source in FLOAT_TYPES:
        big = [
            2147483520.0,
            2147483648.0,
            -2147483648.0,
            4294967040.0,
            4294967296.0,
            9.2e18,
            9.3e18,
            -9.3e18,
            1.8e19,
            2e19,
        ]
        x = np.concatenate([floats_for(runner, source), np.array(big, source)])
    else:
        x = np.array(INTEGERS[source], source)
    got, expected = elementwise(runner, lambda a: cast(a, target), target, x)
    if not runner.denormals and source == "float64" and target == "float32":
        got, expected = got[np.abs(expected) > 1e-37], expected[np.abs(expected) > 1e-37]
    assert_close(got, expected, 0)


@pytest.mark.parametrize("dtype", STORAGE_TYPES)
def test_storage(runner: Runner, dtype: str) -> None:
    """A load widens, a store narrows: integers wrap, floats round to even."""
    computed = arithmetic_type(as_dtype(dtype))
    needs(runner, computed)
    if dtype in FLOAT_TYPES:
        x = np.array([0.0, -0.0, 1.0, -2.5, 65504.0, 1e-3, 3.0, INF, -INF, NAN], as_dtype(dtype))
        got, expected = elementwise(runner, lambda a: a * lit(1.001, computed), dtype, x)
    elif dtype == "bool":
        got, expected = elementwise(runner, lambda a: ~a, dtype, np.array([True, False]))
    elif dtype in CODE_TYPES:
        codes = 1 << bits_of(as_dtype(dtype))
        x = np.arange(codes, dtype=np.uint8).view(dtype)
        got, expected = elementwise(runner, lambda a: lit(codes - 1, "int32") - a, dtype, x)
        assert got.dtype == x.dtype
        np.testing.assert_array_equal(got.view(np.uint8), np.arange(codes)[::-1])
        return
    else:
        low, high = integer_range(dtype)
        x = np.array([0, 1, min(100, high), high, high - 1, low, low + 1], as_dtype(dtype))
        got, expected = elementwise(runner, lambda a: a * a + a + a, dtype, x)
    assert got.dtype == expected.dtype
    # NumPy's comparison takes no two bfloat16 NaNs for equal.
    wider = np.float32 if dtype == "bfloat16" else got.dtype
    np.testing.assert_array_equal(got.astype(wider), expected.astype(wider))


@pytest.mark.parametrize(("inside", "outside"), [("int32", "float32"), ("int64", "float64")])
def test_bits(runner: Runner, inside: ArithmeticType, outside: ArithmeticType) -> None:
    """The bits of a float as an integer, and the float that they make again."""
    needs(runner, inside)
    needs(runner, outside)
    x = np.array([1.0, -2.5, -0.0, 1e30, INF, -INF, 3.1e-12], outside)
    got, expected = elementwise(runner, lambda a: bits(a, inside), inside, x)
    np.testing.assert_array_equal(expected, x.view(inside))
    np.testing.assert_array_equal(got, expected)
    got, _ = elementwise(runner, lambda a: bits(a, outside), outside, expected)
    np.testing.assert_array_equal(got, x)


# What NumPy evaluation must say too: literal expectations


def number_rows() -> list[Any]:
    """(name, type, formula, inputs, expected)."""
    f, i, u, w = "float32", "int32", "uint32", "uint64"
    return [
        ("max of NaN", f, maximum, ([NAN, 1.0, NAN, -INF], [1.0, NAN, NAN, INF]), [NAN, NAN, NAN, INF]),
        ("min of NaN", f, minimum, ([NAN, 1.0, NAN, -INF], [1.0, NAN, NAN, INF]), [NAN, NAN, NAN, -INF]),
        ("relu of NaN", f, lambda x: maximum(x, 0.0), ([NAN, -1.0, 2.0],), [NAN, 0.0, 2.0]),
        ("clamp of NaN", f, lambda x: clamp(x, -1.0, 1.0), ([NAN, -7.0, 0.25, 7.0],), [NAN, -1.0, 0.25, 1.0]),
        (
            "half to even",
            f,
            lambda x: unary("round", x),
            ([0.5, 1.5, 2.5, -0.5, -1.5],),
            [0.0, 2.0, 2.0, 0.0, -2.0],
        ),
        ("sign", f, lambda x: unary("sign", x), ([NAN, -3.0, 0.0, 5.0],), [NAN, -1.0, 0.0, 1.0]),
        (
            "tanh saturates",
            f,
            lambda x: unary("tanh", x),
            ([100.0, -100.0, INF, -INF, NAN],),
            [1.0, -1.0, 1.0, -1.0, NAN],
        ),
        (
            "exp overflows",
            f,
            lambda x: unary("exp", x),
            ([100.0, -200.0, INF, -INF, NAN],),
            [INF, 0.0, INF, 0.0, NAN],
        ),
        (
            "log of what it has not",
            f,
            lambda x: unary("log", x),
            ([0.0, -1.0, INF, NAN, 1.0],),
            [-INF, NAN, INF, NAN, 0.0],
        ),
        (
            "erf saturates",
            f,
            lambda x: unary("erf", x),
            ([50.0, -50.0, INF, -INF, 0.0],),
            [1.0, -1.0, 1.0, -1.0, 0.0],
        ),
        ("root of a negative", f, lambda x: unary("sqrt", x), ([-1.0, 4.0],), [NAN, 2.0]),
        (
            "power of a negative base",
            f,
            lambda x, y: binary("pow", x, y),
            ([-2.0, -2.0, -2.0, 0.0], [3.0, 2.0, 0.5, 0.0]),
            [-8.0, 4.0, NAN, 1.0],
        ),
        (
            "float remainder",
            f,
            lambda x, y: binary("rem", x, y),
            ([-7.0, 7.0, 5.5, 1.0], [3.0, -3.0, 2.0, 0.0]),
            [-1.0, 1.0, 1.5, NAN],
        ),
        ("division by zero", f, lambda x, y: x / y, ([1.0, -1.0, 0.0], [0.0, 0.0, 0.0]), [INF, -INF, NAN]),
        ("sums wrap", i, lambda x, y: x + y, ([2**31 - 1, I32], [1, -1]), [I32, 2**31 - 1]),
        ("products wrap", i, lambda x, y: x * y, ([65536, 46341], [65536, 46341]), [0, -2147479015]),
        ("negation wraps", i, lambda x: -x, ([I32, 5],), [I32, -5]),
        ("magnitude wraps", i, lambda x: unary("abs", x), ([I32, -5],), [I32, 5]),
        (
            "integer division",
            i,
            lambda x, y: x / y,
            ([7, -7, 7, -7, 5, I32], [2, 2, -2, -2, 0, -1]),
            [3, -3, -3, 3, 0, I32],
        ),
        (
            "integer remainder",
            i,
            lambda x, y: binary("rem", x, y),
            ([7, -7, 7, -7, 5, I32], [3, 3, -3, -3, 0, -1]),
            [1, -1, 1, -1, 0, 0],
        ),
        ("modulo of negatives", i, floor_mod, ([7, -7, 7, -7], [3, 3, -3, -3]), [1, 2, -2, -1]),
        ("division towards minus infinity", i, floor_div, ([7, -7, 7, -7], [3, 3, -3, -3]), [2, -3, -3, 2]),
        ("shifts by the width", i, lambda x, y: x << y, ([1, 1, 1, -1], [31, 32, -1, 33]), [I32, 0, 0, 0]),
        ("signed right shifts", i, lambda x, y: x >> y, ([-8, -8, 8, -8], [1, 32, 40, -1]), [-4, -1, 0, -1]),
        ("unsigned right shifts", u, lambda x, y: x >> y, ([U32, U32, 8], [1, 32, 3]), [2**31 - 1, 0, 1]),
        ("unsigned sums wrap", u, lambda x, y: x + y, ([U32, 5], [1, U32]), [0, 4]),
        ("unsigned differences wrap", u, lambda x, y: x - y, ([0, 5], [1, 7]), [U32, U32 - 1]),
        ("unsigned products wrap", u, lambda x, y: x * y, ([65537, U32], [65537, U32]), [131073, 1]),
        ("unsigned comparison", u, maximum, ([U32, 2**31], [1, 5]), [U32, 2**31]),
        ("64 bits stay integers", w, lambda x, y: x + y, ([2**53 + 1, U64], [2, 3]), [2**53 + 3, 2]),
        ("64-bit division", w, lambda x, y: x / y, ([U64, U64, 7], [2, 0, 2]), [2**63 - 1, 0, 3]),
        (
            "integer powers",
            i,
            lambda x, y: binary("pow", x, y),
            ([2, -2, 3, 2, -1, 1, 0, 2], [10, 3, 0, -1, -3, -5, -1, 32]),
            [1024, -8, 1, 0, -1, 1, 0, 0],
        ),
    ]


@pytest.mark.parametrize("row", number_rows(), ids=lambda row: row[0])
def test_literal_values(runner: Runner, row: Any) -> None:
    name, dtype, formula, inputs, expected = row
    needs(runner, dtype)
    got, _ = elementwise(runner, formula, dtype, *(np.array(x, dtype) for x in inputs))
    if dtype == "float32":
        # Zeros of either sign are the same value, and libraries may be off by a rounding.
        np.testing.assert_allclose(got, np.array(expected, dtype), rtol=1e-6, err_msg=name)
    else:
        np.testing.assert_array_equal(got, np.array(expected, dtype), err_msg=name)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("int32", [2**31 - 1, I32, 0, 2**31 - 1, -1, 1, I32]),
        ("int64", [3000000000, -3000000000, 0, 2**63 - 1, -1, 1, I64]),
        ("uint32", [3000000000, 0, 0, U32, 0, 1, 0]),
        ("uint64", [3000000000, 0, 0, U64, 0, 1, 0]),
        ("bool", [True, True, True, True, True, True, True]),
    ],
)
def test_floats_saturate_when_cast(runner: Runner, target: ArithmeticType, expected: list[Any]) -> None:
    needs(runner, target)
    x = np.array([3e9, -3e9, NAN, INF, -1.9, 1.9, -INF], np.float32)
    got, _ = elementwise(runner, lambda a: cast(a, target), target, x)
    np.testing.assert_array_equal(got, np.array(expected, target))


def test_integers_wrap_when_cast(runner: Runner) -> None:
    needs(runner, "int64", "int32")
    x = np.array([2**32 + 5, 2**31, -1, I64], np.int64)
    got, _ = elementwise(runner, lambda a: cast(a, "int32"), "int32", x)
    np.testing.assert_array_equal(got, [5, I32, -1, 0])


def test_narrow_stores(runner: Runner) -> None:
    x = np.array([200, -129, 255, 256], np.int32)
    got, _ = elementwise(runner, lambda a: a, "int8", x)
    np.testing.assert_array_equal(got, np.array([-56, 127, -1, 0], np.int8))
    got, _ = elementwise(runner, lambda a: a, "uint8", x)
    np.testing.assert_array_equal(got, np.array([200, 127, 255, 0], np.uint8))
    y = np.array([65519.0, 65520.0, 1 + 2**-11, 1 + 3 * 2**-11, 6e-8, NAN], np.float32)
    got, _ = elementwise(runner, lambda a: a, "float16", y)
    expected = [65504.0, INF, 1.0, 1.001953125, 5.9604645e-08, NAN]
    keep = slice(None) if runner.denormals else [0, 1, 2, 3, 5]
    np.testing.assert_array_equal(got[keep], np.array(expected, np.float16)[keep])
    got, _ = elementwise(
        runner, lambda a: a, "bfloat16", np.array([1 + 2**-8, 1 + 3 * 2**-8, 3.4e38, NAN], np.float32)
    )
    np.testing.assert_array_equal(got.astype(np.float32), np.array([1.0, 1.015625, INF, NAN], np.float32))


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "erf", "sin", "cos", "sqrt", "atan", "asin", "acos"])
def test_functions_over_their_range(runner: Runner, name: str) -> None:
    """Against float64 results, thousands of points of each magnitude."""
    rng = np.random.default_rng(2)
    x = (rng.standard_normal(4000) * 10.0 ** rng.uniform(-6, 2, 4000)).astype(np.float32)
    x = np.abs(x) if name in ("log", "sqrt") else x
    x = np.concatenate([x[np.abs(x) <= 1], [1, -1]], dtype=np.float32) if name in ("asin", "acos") else x
    got, _ = elementwise(runner, lambda a: unary(name, a), "float32", x)
    wide = x.astype(np.float64)
    exact = evaluate_wide(name, wide)
    keep = np.isfinite(exact) & (np.abs(exact) < 3e38) & (np.abs(exact) > 2e-38)
    unit = np.maximum(np.spacing(np.abs(exact[keep]).astype(np.float32)), 0)
    if name in ("sin", "cos", "acos"):
        # Near a zero of the function the angle's own rounding counts.
        unit = np.maximum(unit, np.float32(2**-26))
    error = np.abs(got[keep] - exact[keep]) / unit
    assert error.max() <= (runner.ulps or 3.0), f"{error.max()} at {x[keep][error.argmax()]}"


def evaluate_wide(name: str, x: np.ndarray) -> np.ndarray:
    kernel, values, _ = kernel_call(unary(name, Value("x", x.shape, x.dtype).at(FLAT)), 1, x.dtype)
    return evaluate(kernel, x.shape, values, [x])
