"""Tuned pooling against the generic formula: paddings, strides, dilations, whole planes, NaN."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.backends.cpu.backend import CPUBackend
from tests.engine.backends.cpu.hinted import Case, check, pool_case, random_windows

PLAIN: dict[str, Any] = {"strides": (1, 1), "dilations": (1, 1), "pads": (0, 0), "ends": (0, 0)}


def case(kind: str, x: tuple[int, ...], kernel: tuple[int, ...], seed: int = 0, **changes: Any) -> Case:
    return pool_case(seed, kind, x, kernel, **{**PLAIN, **changes})


SHAPES: dict[str, tuple[Any, ...]] = {
    "3x3 stride 2": ((2, 3, 15, 20), (3, 3), {"strides": (2, 2)}),
    "2x2": ((1, 3, 8, 10), (2, 2), {"strides": (2, 2)}),
    "padded": ((1, 3, 9, 30), (3, 3), {"pads": (1, 1), "ends": (1, 1)}),
    "padded with strides": ((1, 3, 9, 30), (5, 4), {"strides": (3, 2), "pads": (2, 3), "ends": (1, 2)}),
    "stride 3": ((1, 2, 9, 40), (2, 2), {"strides": (3, 3)}),
    "dilated": ((1, 2, 14, 23), (3, 3), {"dilations": (2, 3), "pads": (1, 2), "ends": (2, 1)}),
    "a whole plane": ((2, 5, 13, 13), (13, 13), {}),
    "wide windows": ((1, 2, 6, 60), (3, 50), {"strides": (1, 5), "pads": (1, 4), "ends": (1, 4)}),
    "windows beyond the padding": ((1, 2, 7, 7), (3, 3), {"strides": (2, 2), "overhang": 1}),
    "windows that see nothing": ((1, 2, 4, 4), (2, 2), {"pads": (3, 3), "ends": (3, 3)}),
    "long rows": ((1, 1, 3, 2200), (2, 3), {"pads": (0, 1), "ends": (0, 1)}),
    "long rows by twos": ((1, 1, 3, 4301), (2, 3), {"strides": (1, 2), "pads": (0, 1), "ends": (0, 1)}),
    "several bands": ((1, 2, 101, 141), (3, 3), {"strides": (2, 2), "pads": (1, 1), "ends": (1, 1)}),
    "tall and narrow": ((1, 2, 901, 6), (3, 2), {"strides": (2, 1)}),
    "strides larger than windows": ((1, 2, 30, 4000), (1, 2), {"strides": (3, 200)}),
    "one axis": ((2, 3, 31), (4,), {"strides": (2,), "dilations": (1,), "pads": (1,), "ends": (2,)}),
}


@pytest.mark.parametrize("kind", ["max", "average"])
@pytest.mark.parametrize("name", SHAPES)
def test_named_shapes(backend: CPUBackend, name: str, kind: str) -> None:
    x, kernel, changes = SHAPES[name]
    check(backend, case(kind, x, kernel, **changes))
    if kind == "average":
        check(backend, case(kind, x, kernel, include_pad=True, **changes))


@pytest.mark.long
@pytest.mark.parametrize("epilogue", ["bias", "position"])
def test_epilogues(backend: CPUBackend, epilogue: str) -> None:
    check(backend, case("max", (2, 3, 9, 20), (2, 3), epilogue=epilogue))


def test_nan_is_the_largest(backend: CPUBackend) -> None:
    for kernel, strides in (((3, 3), (2, 2)), ((9, 40), (1, 1))):
        given = case("max", (1, 2, 9, 40), kernel, strides=strides)
        given.arrays["x"][0, 0, 4, 5] = np.nan
        check(backend, given)


def test_random_shapes(backend: CPUBackend) -> None:
    rng = np.random.default_rng(6)
    for tried in range(24):
        size, kernel, given = random_windows(rng, 40)
        check(backend, case("max", (1, 2, *size), kernel, tried, **given))
        check(backend, case("average", (1, 2, *size), kernel, tried, include_pad=bool(tried % 2), **given))
