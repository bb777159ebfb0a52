"""Pooling with channels last, against the same pooling with channels first, evaluated by NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from engine.backends.cpu.backend import CPUBackend
from tests.engine.backends.cpu.hinted import random_windows, run_tuned
from tests.engine.backends.cpu.kernels.convolution.test_pool import SHAPES, case
from tests.engine.backends.cpu.last import assert_close, first_to_last


@pytest.mark.parametrize("kind", ["max", "average"])
@pytest.mark.parametrize("name", SHAPES)
def test_named_shapes(backend: CPUBackend, name: str, kind: str) -> None:
    x, kernel, changes = SHAPES[name]
    for include_pad in (False, True) if kind == "average" else (False,):
        last, expected = first_to_last(case(kind, x, kernel, include_pad=include_pad, **changes))
        assert_close(run_tuned(backend, last), expected)


@pytest.mark.parametrize("channels", [1, 15, 16, 17, 130, 300])
def test_channels(backend: CPUBackend, channels: int) -> None:
    last, expected = first_to_last(case("max", (2, channels, 6, 21), (3, 3), pads=(1, 1), ends=(1, 1)))
    assert_close(run_tuned(backend, last), expected)


@pytest.mark.parametrize("epilogue", ["bias", "residual", "position"])
@pytest.mark.parametrize("channels", [5, 48])
def test_epilogues(backend: CPUBackend, epilogue: str, channels: int) -> None:
    last, expected = first_to_last(case("max", (2, channels, 9, 20), (2, 3)), epilogue)
    assert_close(run_tuned(backend, last), expected, 1.0 if epilogue == "position" else 0.0)


@pytest.mark.parametrize("epilogue", [None, "bias"])
def test_nan_is_the_largest(backend: CPUBackend, epilogue: str | None) -> None:
    given = case("max", (1, 20, 9, 40), (3, 3), pads=(1, 1), ends=(1, 1))
    for place in ((0, 0, 0, 0), (0, 3, 4, 5), (0, 19, 8, 39)):
        given.arrays["x"][place] = np.nan
    last, expected = first_to_last(given, epilogue)
    assert np.isnan(expected).sum() == 4 + 9 + 4
    assert_close(run_tuned(backend, last), expected)


def test_random_shapes(backend: CPUBackend) -> None:
    rng = np.random.default_rng(8)
    for tried in range(16):
        size, kernel, given = random_windows(rng, 30)
        shape = (1, int(rng.integers(1, 40)), *size)
        for kind, include in (("max", False), ("average", bool(tried % 2))):
            last, expected = first_to_last(case(kind, shape, kernel, tried, include_pad=include, **given))
            assert_close(run_tuned(backend, last), expected)
