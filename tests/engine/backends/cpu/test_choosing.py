"""Sorting, scanning, scattering, choosing and suppressing: the CPU's kernels against the formulas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from engine.api.worker import Worker
from engine.runtime.tensor import Tensor
from gameglue.profiling.step_times import RepeatedSchedule
from tests.engine.operators.single import one_layer, run

KERNELS = {
    "TopK": "sort",
    "CumSum": "scan_sum",
    "CumProd": "scan_prod",
    "Compress": "compress",
    "NonZero": "nonzero",
    "NonMaxSuppression": "non_max_suppression",
    "ArgMax": "argmax",
    "ArgMin": "argmax",
}


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def check(
    op_type: str,
    arrays: Sequence[np.ndarray],
    attributes: Mapping[str, Any] | None = None,
    *,
    outputs: int = 1,
    known: Sequence[int] = (),
    dynamic: Sequence[int] = (),
    tolerance: float = 0.0,
) -> None:
    """The layer on the CPU gives what NumPy makes of its formulas, through the kernel meant for it."""
    opset = 26 if op_type == "CumProd" else 25
    expected = run(op_type, arrays, attributes, outputs=outputs, known=known, opset=opset)
    model = one_layer(op_type, arrays, attributes, outputs=outputs, known=known, dynamic=dynamic, opset=opset)
    with Worker(model) as worker:
        worker.schedule({x.name: Tensor(arrays[int(x.name[1:])]) for x in model.inputs})
        for number, wanted in enumerate(expected):
            found = worker.peek_output(f"y{number}").download_to_array()
            assert found.shape == wanted.shape
            if tolerance:
                scale = max(1.0, float(np.abs(wanted).max()))
                np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * scale)
            else:
                np.testing.assert_array_equal(found, wanted)
        names = [getattr(step.step.kernel, "name", "") for step in RepeatedSchedule(worker).steps]
        meant = KERNELS.get(op_type) or f"scatter_{(attributes or {}).get('reduction', 'none')}"
        assert meant in names, names


def rest(*values: Any) -> list[Any]:
    """Cases like those that come before, with kernels of their own to compile."""
    return [pytest.param(value, marks=pytest.mark.long) for value in values]


TYPES = [
    np.float32, np.int64,
    *rest(np.float64, np.float16, np.int32, np.uint8, np.int8, np.uint64, np.uint32),
]  # fmt: skip


def numbers(rng: np.random.Generator, shape: Sequence[int], dtype: Any) -> np.ndarray:
    """Numbers with many ties; for floats NaN, infinities and both zeros as well, for integers the ends."""
    dtype = np.dtype(dtype)
    if dtype.kind in "iu":
        x = rng.integers(0, 50, shape).astype(dtype)
        ends = np.array([np.iinfo(dtype).min, np.iinfo(dtype).max], dtype)
    else:
        x = rng.integers(-20, 20, shape).astype(dtype) / dtype.type(4)
        ends = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0], dtype)
    some = max(1, x.size // 10)
    x.reshape(-1)[rng.integers(0, x.size, some)] = np.resize(ends, some)
    return x


# Sorting


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("largest", [0, 1])
def test_types_of_keys(dtype: Any, largest: int, rng: np.random.Generator) -> None:
    for count, keep in ((300, 300), (300, 5), (2000, 60)):
        x = numbers(rng, (2, count), dtype)
        check("TopK", [x, np.array([keep])], {"largest": largest}, outputs=2, known=(1,))


@pytest.mark.parametrize("keep", [1, 16, 17, 100, 1000])
@pytest.mark.parametrize("order", ["up", "down", *rest("alike", "random")])
def test_the_first_ones_of_many(keep: int, order: str, rng: np.random.Generator) -> None:
    x = {
        "up": np.arange(5000.0),
        "down": -np.arange(5000.0),
        "alike": np.ones(5000),
        "random": rng.standard_normal(5000),
    }[order].astype(np.float32)
    check("TopK", [x, np.array([keep])], outputs=2, known=(1,))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_any_axis_is_sorted(axis: int, rng: np.random.Generator) -> None:
    x = rng.standard_normal((40, 50, 33)).astype(np.float32)
    for dynamic in ((), (0,)):
        check("TopK", [x, np.array([7])], {"axis": axis}, outputs=2, known=(1,), dynamic=dynamic)


# Positions of extremes


@pytest.mark.parametrize("dtype", [np.float32, *rest(np.float64, np.float16, np.int32, np.int64, np.uint8)])
@pytest.mark.parametrize("op_type", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
def test_positions_of_extremes(op_type: str, last: int, dtype: Any, rng: np.random.Generator) -> None:
    for shape in ((3, 40, 5), (2, 300), (20, 1), (2, 5, 600)):
        x = numbers(rng, shape, dtype)
        x[0] = x.reshape(-1)[0]
        for axis in range(len(shape)):
            check(op_type, [x], {"axis": axis, "select_last_index": last})


# Scans


@pytest.mark.parametrize("shape", [(3, 1000), (1, 70_000), (5, 40, 7), (300, 257), (1, 1)])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_running_sums(shape: tuple[int, ...], exclusive: int, reverse: int, rng: np.random.Generator) -> None:
    x = rng.standard_normal(shape).astype(np.float32)
    attributes = {"exclusive": exclusive, "reverse": reverse}
    for axis in range(len(shape)):
        check("CumSum", [x, np.array(axis)], attributes, known=(1,), tolerance=1e-6)


@pytest.mark.parametrize("dtype", [np.int64, *rest(np.float16, np.float64, np.int32, np.uint32, np.uint64)])
def test_types_of_running_sums(dtype: Any, rng: np.random.Generator) -> None:
    x = rng.integers(0, 3, (4, 50)).astype(dtype)
    check("CumSum", [x, np.array(1)], known=(1,))
    check("CumProd", [1 + x % dtype(2), np.array(0)], known=(1,))


# Scatters


@pytest.mark.parametrize("reduction", ["none", "add", *rest("mul", "max", "min")])
@pytest.mark.parametrize(
    "dtype", [np.float32, *rest(np.float64, np.int32, np.int64, np.uint8, np.int8, bool)]
)
def test_scatters(reduction: str, dtype: Any, rng: np.random.Generator) -> None:
    def made(*shape: int) -> np.ndarray:
        if dtype is bool:
            return rng.random(shape) > 0.5
        return numbers(rng, shape, dtype) if reduction != "mul" else (rng.integers(1, 3, shape)).astype(dtype)

    attributes = {"reduction": reduction}
    data, indices = made(30, 40), rng.integers(-35, 35, (200, 1))
    tolerance = 1e-6 if np.dtype(dtype).kind == "f" and reduction == "mul" else 0.0
    check("ScatterND", [data, indices, made(200, 40)], attributes, tolerance=tolerance)
    for axis in (0, 1):
        shape = (90, 40) if axis == 0 else (30, 90)
        along = rng.integers(-50, 50, shape)
        check("ScatterElements", [data, along, made(*shape)], {**attributes, "axis": axis})


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_updates_that_end_before_data_does(axis: int, rng: np.random.Generator) -> None:
    data, shape = rng.standard_normal((60, 50, 40)).astype(np.float32), [60, 50, 40]
    shape[0 if axis else 1], shape[axis] = 17, 33
    updates, indices = rng.standard_normal(shape).astype(np.float32), rng.integers(0, 40, shape)
    check("ScatterElements", [data, indices, updates], {"axis": axis, "reduction": "add"}, tolerance=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_are_moved(dtype: Any, rng: np.random.Generator) -> None:
    data, updates = (rng.standard_normal(shape).astype(dtype) for shape in ((50, 300), (70, 300)))
    check("ScatterND", [data, rng.integers(0, 50, (70, 1)), updates])


@pytest.mark.parametrize("places", [2, 300])
@pytest.mark.parametrize("reduction", ["add", "none"])
def test_many_updates_of_one_place_come_in_order(
    places: int, reduction: str, rng: np.random.Generator
) -> None:
    """With tasks that have a range of places each: updates of all, or only of one task's."""
    data, updates = (rng.standard_normal(shape).astype(np.float32) for shape in ((300, 40), (3000, 40)))
    check("ScatterND", [data, rng.integers(0, places, (3000, 1)), updates], {"reduction": reduction})


# Choosing


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 1.0])
@pytest.mark.parametrize("shape", [(1,), (7, 9), (100_003,), *rest((63,), (50, 3, 4, 5), (4000, 33))])
def test_what_is_not_zero(shape: tuple[int, ...], share: float, rng: np.random.Generator) -> None:
    mask = rng.random(shape) < share
    check("NonZero", [mask])
    check("NonZero", [mask.astype(np.float32)], dynamic=(0,))


@pytest.mark.parametrize("share", [0.0, 0.1, *rest(0.9, 1.0)])
@pytest.mark.parametrize("dtype", [np.float32, *rest(np.int64, np.uint8)])
def test_slices_are_kept(share: float, dtype: Any, rng: np.random.Generator) -> None:
    x = rng.integers(0, 99, (300, 20, 11)).astype(dtype)
    for axis in (None, 0, 1, 2):
        length = x.size if axis is None else x.shape[axis]
        for shorter in (0, 3):
            condition = rng.random(length - shorter) < share
            check("Compress", [x, condition], {} if axis is None else {"axis": axis})


# Boxes


@pytest.mark.parametrize("count", [1, 17, *rest(300, 1000)])
@pytest.mark.parametrize("threshold", [None, 0.3])
def test_boxes(count: int, threshold: float | None, rng: np.random.Generator) -> None:
    boxes = rng.uniform(0, 40, (2, count, 4)).astype(np.float32)
    boxes[..., 2:] = boxes[..., :2] + rng.uniform(-1, 9, (2, count, 2)).astype(np.float32)
    boxes[0, 0] = np.nan
    scores = rng.random((2, 3, count)).round(2).astype(np.float32)
    for most in (1, 20, count):
        given = [np.array([most]), np.array([0.4], np.float32)]
        given += [] if threshold is None else [np.array([threshold], np.float32)]
        check("NonMaxSuppression", [boxes, scores, *given], known=range(2, 2 + len(given)))
