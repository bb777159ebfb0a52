"""Running sums by blocks and the positions of what is marked, in each form of the tuned kernels."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from engine.backends.base import Backend
from engine.compiler.plan import Compute
from engine.kernels.expr import acc, lit
from engine.kernels.hint import Hint
from engine.kernels.value import Value
from tests.engine.backends.steps import result_of, tuned_plan, value

BLOCK = 16


def scan(
    x: np.ndarray, kind: str, exclusive: bool, reverse: bool, dtype: str
) -> tuple[np.ndarray, np.ndarray]:
    """The running sum or product along the middle axis of x, and that of its blocks."""
    x = x.astype(np.float64 if dtype == "float32" else np.int64)
    x = x[:, ::-1] if reverse else x
    through = np.cumsum(x, 1) if kind == "sum" else np.cumprod(x, 1)
    neutral = np.full_like(x[:, :1], int(kind == "prod"))
    shifted = np.concatenate([neutral, through], 1)
    found = shifted[:, :-1] if exclusive else through
    before = shifted[:, : x.shape[1] : BLOCK].astype(dtype)
    return found[:, ::-1] if reverse else found, before


def marks(mask: np.ndarray) -> dict[str, np.ndarray]:
    """A mask (rows, count), its running sum, and where there are several blocks that before each."""
    through, before = scan(mask[:, :, None], "sum", False, False, "int32")
    arrays = {"mask": mask, "through": through[:, :, 0].astype(np.int32)}
    return arrays if mask.shape[1] <= BLOCK else arrays | {"before": before}


@pytest.mark.spread("form")
@pytest.mark.parametrize("exclusive", [False, True], ids=["inclusive", "exclusive"])
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize(
    ("shape", "kind", "source", "dtype"),
    [
        ((3, 70, 1), "sum", "float32", "float32"),
        ((2, 33, 5), "prod", "float32", "float32"),
        ((1, 100, 1), "sum", "bool", "int32"),
        ((2, 16, 70), "sum", "int32", "int32"),
    ],
)
def test_running_sums(
    form: Backend, shape: tuple[int, ...], kind: str, source: str, dtype: str, reverse: bool, exclusive: bool
) -> None:
    x = (np.random.default_rng(3).uniform(0.5, 1.9, shape)).astype(source)
    if source == "bool":
        x = np.random.default_rng(3).random(shape) < 0.4
    expected, before = scan(x, kind, exclusive, reverse, dtype)
    operands = value("x", x), value("before", before)
    attributes = {"kind": kind, "exclusive": exclusive, "reverse": reverse, "block": BLOCK}
    output = Value("y", shape, np.dtype(dtype))
    hint = Hint("prefix_scan", operands, attributes)
    compute = Compute(output, shape, lit(0, dtype), "layer", "CumSum", hint)  # type: ignore[arg-type]
    compute.epilogue = acc(dtype) + lit(2, dtype)  # type: ignore[arg-type]
    got = result_of(form, tuned_plan(form, compute), {"x": x, "before": before}, output)
    np.testing.assert_allclose(got, expected + 2, rtol=1e-5, atol=1e-4)


@pytest.mark.spread("form")
@pytest.mark.parametrize("exclusive", [False, True], ids=["inclusive", "exclusive"])
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("shape", [(1, 17, 1), (3, 700, 1), (2, 129, 5), (1, 5000, 1)])
@pytest.mark.parametrize("source", ["bool", "int32"])
def test_running_sums_of_whole_rows(
    form: Backend, shape: tuple[int, ...], source: str, reverse: bool, exclusive: bool
) -> None:
    x = np.random.default_rng(8).integers(-(2**30), 2**30, shape).astype(source)
    with np.errstate(over="ignore"):
        expected, before = scan(x, "sum", exclusive, reverse, "int32")
    operands = value("x", x, static=True), value("before", before)
    attributes = {"kind": "sum", "exclusive": exclusive, "reverse": reverse, "block": BLOCK}
    output = Value("y", shape, np.dtype(np.int32))
    compute = Compute(
        output, shape, lit(0, "int32"), "layer", "CumSum", Hint("prefix_scan", operands, attributes)
    )
    compute.epilogue = acc("int32") + lit(2, "int32")
    got = result_of(form, tuned_plan(form, compute), {"x": x, "before": before}, output)
    np.testing.assert_array_equal(got, (expected + 2).astype(np.int32))


@pytest.mark.parametrize("static", [False, True], ids=["by blocks", "by rows"])
@pytest.mark.parametrize("room", [90, 40])
def test_positions(form: Backend, room: int, static: bool) -> None:
    mask = np.random.default_rng(4).random((3, 90)) < 0.3
    arrays = marks(mask)
    operands = tuple(value(name, array, static=static) for name, array in arrays.items())
    output = Value("y", (3, room), np.dtype(np.int32))
    compute = Compute(
        output,
        (3, room),
        lit(0, "int32"),
        "layer",
        "Chosen",
        Hint("stream_compaction", operands, {"block": BLOCK}),
    )
    got = result_of(form, tuned_plan(form, compute), arrays, output)
    for row, marked in zip(got, mask, strict=True):
        found = np.flatnonzero(marked)
        np.testing.assert_array_equal(row[: len(found)], found)
        assert ((row >= 0) & (row < 90)).all()


@pytest.mark.spread("form")
@pytest.mark.parametrize("shape", [(1, 1), (1, 3000), (70, 63), (2, 64), (5, 129)])
@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_rows_of_any_length(form: Backend, shape: tuple[int, int], share: float) -> None:
    mask = np.random.default_rng(6).random(shape) < share
    arrays = marks(mask)
    operands = tuple(value(name, array, static=True) for name, array in arrays.items())
    output = Value("y", shape, np.dtype(np.int32))
    compute = Compute(
        output,
        shape,
        lit(0, "int32"),
        "layer",
        "Chosen",
        Hint("stream_compaction", operands, {"block": BLOCK}),
    )
    got = result_of(form, tuned_plan(form, compute), arrays, output)
    for row, marked in zip(got, mask, strict=True):
        expected = np.zeros(shape[1], int)
        expected[: marked.sum()] = np.flatnonzero(marked)
        np.testing.assert_array_equal(row, expected)
    output = Value("n", shape[:1], np.dtype(np.int64))
    hint = Hint("count_nonzero", operands[:1], {})
    compute = Compute(output, shape[:1], lit(0, "int64"), "layer", "Chosen", hint)
    got = result_of(form, tuned_plan(form, compute), {"mask": mask}, output)
    np.testing.assert_array_equal(got, mask.sum(1))


@pytest.mark.parametrize("shape", [(90,), (9, 10), (2, 5, 9), (96,), (13,)])
def test_indices(form: Backend, shape: tuple[int, ...]) -> None:
    count = prod(shape)
    mask = np.random.default_rng(5).random((1, count)) < 0.5
    arrays = marks(mask)
    operands = tuple(value(name, array) for name, array in arrays.items())
    output = Value("y", (len(shape), count), np.dtype(np.int64))
    hint = Hint("nonzero", operands, {"shape": shape, "block": BLOCK})
    compute = Compute(output, output.shape, lit(0, "int64"), "layer", "NonZero", hint)
    got = result_of(form, tuned_plan(form, compute), arrays, output)
    expected = np.array(np.nonzero(mask.reshape(shape)))
    np.testing.assert_array_equal(got[:, : expected.shape[1]], expected)
