"""Resizing along the innermost axis against the formula: any elements, few rows, long spans, epilogues."""

from __future__ import annotations

import numpy as np
import pytest

from engine.backends.cpu.backend import CPUBackend
from engine.backends.cpu.codegen.tiles import AVX2, AVX512, PORTABLE, Tile
from engine.backends.cpu.kernels import resample
from engine.compiler.plan import Tuner
from engine.kernels.expr import Expr, arg, cast, index, lit, maximum
from engine.kernels.hint import Hint
from engine.kernels.value import Value
from tests.engine.backends.cpu.hinted import Case, check

FIRST = 3
"""Where the tables begin that are read."""


def resample_case(
    outer: int, size: int, out: int, taps: int, epilogue: str | None = None, span: int = 0
) -> Case:
    """Elements in the order of a resized row, or up to `span` apart anywhere; -1 stands for the first one."""
    case, count = Case(out), FIRST + taps * out
    x, weights = case.value("x", (outer, size)), case.value("weights", (count,))
    steps = np.arange(out) * size // out + np.arange(taps)[:, None] - 1
    steps = steps + case.rng.integers(0, max(span, 1), steps.shape)
    case.arrays["places"] = np.full(count, 10**6, np.int32)
    case.arrays["places"][FIRST:] = steps.clip(-1, size - 1).reshape(-1)
    places = Value("places", (count,), np.dtype(np.int32))
    body: Expr = lit(0.0, "float32")
    for t in range(taps):
        entry = arg(FIRST + t * out) + index(1)
        element = maximum(cast(places[entry,], "index"), lit(0))
        body = body + weights[entry,] * x[index(0), element]
    attributes = {
        "outer": outer, "size": size, "out": out, "inner": 1, "first": FIRST, "taps": taps,
        "is_innermost": True, "is_inner_static": True,
    }  # fmt: skip
    return case.finish((outer, out), body, Hint("resample", (x, places, weights), attributes), epilogue)


@pytest.fixture(params=[AVX512, AVX2, PORTABLE], ids=["16 lanes", "8 lanes", "4 lanes"])
def tile(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Tile:
    monkeypatch.setattr(resample, "host_tile", lambda: request.param)
    return request.param


@pytest.mark.usefixtures("tile")
@pytest.mark.spread("tile", "outer")
@pytest.mark.parametrize(
    ("outer", "size", "out", "taps"),
    [(40, 56, 112, 2), (9, 1, 5, 2), (33, 300, 150, 4), (16, 1000, 20, 16), (70, 21, 400, 1)],
)
def test_rows(backend: CPUBackend, outer: int, size: int, out: int, taps: int) -> None:
    check(backend, resample_case(outer, size, out, taps))


def test_elements_further_apart_than_there_is_room_for(backend: CPUBackend) -> None:
    check(backend, resample_case(37, 3 * resample.SPAN, 90, 2, span=3 * resample.SPAN))


@pytest.mark.parametrize("epilogue", ["column bias", "residual"])
def test_epilogues(backend: CPUBackend, epilogue: str) -> None:
    check(backend, resample_case(35, 50, 80, 2, epilogue))


@pytest.mark.parametrize(("outer", "taps"), [(1, 2), (40, 17)])
def test_few_rows_and_many_taps_are_left_to_the_generic_kernel(
    backend: CPUBackend, outer: int, taps: int
) -> None:
    compute = resample_case(outer, 30, 60, taps).compute
    assert compute is not None
    tuner = Tuner(compute, lambda name, make: name, lambda elements, dtype: "scratch")
    assert not backend.tune(compute, tuner)
    assert not tuner.steps
