"""Scatters in each form of the tuned kernels, against every update in order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from engine.backends.base import Backend
from engine.backends.gpu.sorts import BLOCK, EACH
from engine.base.dtypes import arithmetic_type
from engine.compiler.plan import Compute
from engine.kernels.expr import acc, index, lit
from engine.kernels.hint import Hint
from engine.operators.scatters import FEW
from tests.engine.backends.steps import result_of, tuned_plan, value

STEPS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "none": lambda old, new: new,
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


def scattered(data: np.ndarray, targets: np.ndarray, updates: np.ndarray, reduction: str) -> np.ndarray:
    """`data` after all updates, one after another in their own type."""
    after = data.copy()
    step = STEPS[reduction]
    for o, u, i in np.ndindex(updates.shape):
        place = targets[o, u, min(i, targets.shape[2] - 1)]
        if place >= 0:
            after[o, place, i] = step(after[o, place, i], updates[o, u, i])
    return after


def check(
    form: Backend,
    sizes: tuple[int, ...],
    targets: np.ndarray,
    reduction: str,
    dtype: str,
    epilogue: bool,
    known: bool = False,
) -> None:
    """Scatter updates of `sizes` into data that has two rows and two columns more."""
    rng = np.random.default_rng(targets.size)
    rows, places, columns = sizes
    low, high = (1, 3) if reduction == "mul" else (0, 50)
    data = rng.uniform(low, high, (rows + 2, places, columns + 2)).astype(dtype)
    updates = rng.uniform(low, high, (rows, targets.shape[1], columns)).astype(dtype)
    if reduction == "mul":
        updates = (updates / updates).astype(dtype) if dtype == "int32" else (updates * 0.5).astype(dtype)
    arrays = {"data": data, "targets": targets, "updates": updates}
    operands = tuple(value(n, array, known=known and n == "targets") for n, array in arrays.items())
    output = value("y", data)
    arithmetic = arithmetic_type(data.dtype)
    attributes = {"whole": targets.shape[2] == 1, "reduction": reduction}
    compute = Compute(
        output,
        data.shape,
        lit(0, arithmetic),
        "layer",
        "Scatter",
        Hint("scatter", operands, attributes),
    )
    expected = scattered(data, targets, updates, reduction)
    if epilogue:
        # It reads another tensor by an index of the space.
        bias = rng.integers(0, 9, places).astype(dtype)
        arrays["bias"] = bias
        compute = Compute(
            output, data.shape, compute.body, "layer", "Scatter", compute.hint,
            acc(arithmetic) + value("bias", bias)[index(1)],
        )  # fmt: skip
        expected = expected + bias[:, None]
    for _ in range(2):
        got = result_of(form, tuned_plan(form, compute), arrays, output)
        np.testing.assert_array_equal(got, expected)


@pytest.mark.spread("form")
@pytest.mark.parametrize("reduction", STEPS)
@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("whole", [True, False], ids=["rows", "elements"])
def test_every_update_in_order(form: Backend, reduction: str, dtype: str, whole: bool) -> None:
    rows, places, columns = 2, 40, 5
    shape = (rows, 200, 1 if whole else columns)
    targets = np.random.default_rng(1).integers(-1, places, shape).astype(np.int32)
    check(form, (rows, places, columns), targets, reduction, dtype, epilogue=whole)


@pytest.mark.parametrize("whole", [True, False], ids=["rows", "elements"])
def test_known_targets_need_no_pass_over_them(form: Backend, whole: bool) -> None:
    sizes = rows, places, columns = 2, 40, 5
    shape = (rows, 200, 1 if whole else columns)
    targets = np.random.default_rng(2).integers(-1, places, shape).astype(np.int32)
    check(form, sizes, targets, "none", "float32", epilogue=whole, known=True)


@pytest.mark.spread("form")
@pytest.mark.parametrize("count", [FEW + 1, 3 * EACH, BLOCK, BLOCK + 1, 2 * BLOCK + 3])
def test_any_number_of_updates(form: Backend, count: int) -> None:
    targets = np.random.default_rng(count).integers(-1, 300, (1, count, 1)).astype(np.int32)
    check(form, (1, 300, 2), targets, "add", "float32", epilogue=False)


@pytest.mark.parametrize("place", [0, 6, -1])
def test_all_updates_at_one_place(form: Backend, place: int) -> None:
    check(form, (1, 7, 3), np.full((1, 150, 1), place, np.int32), "add", "float32", epilogue=False)
