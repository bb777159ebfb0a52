"""Interpolation of vectors of channels against the formula: places outside, any channels, epilogues."""

from __future__ import annotations

import numpy as np
import pytest

from engine.backends.cpu.backend import CPUBackend
from engine.backends.cpu.codegen.tiles import AVX2, AVX512, PORTABLE, Tile
from engine.backends.cpu.kernels import interpolation, transpose
from engine.compiler.plan import Tuner
from engine.kernels.expr import Expr, cast, index, lit
from engine.kernels.hint import Hint
from engine.kernels.value import Value
from tests.engine.backends.cpu.hinted import Case, check, run_tuned
from tests.engine.backends.steps import value


def interpolation_case(
    shape: tuple[int, int, int], groups: int, axes: int, count: int, places: int, epilogue: str | None = None
) -> Case:
    """Elements at random positions, of which some are outside; one group has no axis of its own."""
    case, (images, channels, size) = Case(places), shape
    case.value("planes", shape)
    planes = value("planes", case.arrays["planes"])
    lead = (images,) if groups == 1 else (images, groups)
    most = (size - 1) // axes
    case.arrays["elements"] = case.rng.integers(-1, most + 1, (*lead, axes * count, places)).astype(np.int32)
    elements = Value("elements", case.arrays["elements"].shape, np.dtype(np.int32))
    weights = case.value("weights", elements.shape)
    n, c, *rest = (index(axis) for axis in range(len(lead) + 2))
    at = (n, *rest[:-1])

    def blend(axis: int, position: Expr, is_inside: Expr) -> Expr:
        if axis == axes:
            return planes.load_where(is_inside, (n, c, position))
        total: Expr = lit(0.0, "float32")
        for t in range(count):
            entry = (*at, lit(axis * count + t), rest[-1])
            own = cast(elements[entry], "index")
            total = total + weights[entry] * blend(axis + 1, position + own, is_inside & (own >= lit(0)))
        return total

    whole = (images, groups, axes * count, places)
    operands = (planes, *(Value(v.name, whole, v.dtype) for v in (elements, weights)))
    body = blend(0, lit(0), lit(True, "bool"))
    hint = Hint("interpolate", operands, {"axes": axes})
    dtype = np.dtype(np.int8 if epilogue == "position" else np.float32)
    return case.finish((images, channels, *rest_of(groups), places), body, hint, epilogue, dtype)


def rest_of(groups: int) -> tuple[int, ...]:
    return () if groups == 1 else (groups,)


@pytest.fixture(params=[AVX512, AVX2, PORTABLE], ids=["16 lanes", "8 lanes", "4 lanes"])
def tile(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Tile:
    for module in (interpolation, transpose):
        monkeypatch.setattr(module, "host_tile", lambda: request.param)
    return request.param


@pytest.mark.usefixtures("tile")
@pytest.mark.spread("tile", "shape")
@pytest.mark.parametrize(
    ("shape", "groups", "axes", "count", "places"),
    [
        ((2, 16, 50), 1, 2, 2, 70),
        ((1, 5, 33), 9, 1, 4, 17),
        ((2, 37, 200), 3, 2, 4, 130),
        ((1, 8, 90), 2, 3, 2, 40),
        ((1, 20, 64), 1, 3, 4, 3),
        ((1, 300, 9), 1, 1, 2, 129),
    ],
)
def test_blends(
    backend: CPUBackend, shape: tuple[int, int, int], groups: int, axes: int, count: int, places: int
) -> None:
    check(backend, interpolation_case(shape, groups, axes, count, places))


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("epilogue", ["bias", "residual", "position"])
def test_epilogues(backend: CPUBackend, epilogue: str, groups: int) -> None:
    check(backend, interpolation_case((2, 20, 40), groups, 2, 2, 150, epilogue))


def test_taps_outside_read_nothing(backend: CPUBackend) -> None:
    case = interpolation_case((1, 21, 40), 1, 2, 2, 90)
    case.arrays["planes"][:] = np.inf
    case.arrays["elements"][:, :2] = -1
    np.testing.assert_array_equal(run_tuned(backend, case), 0)


@pytest.mark.parametrize(("channels", "places"), [(3, 100), (16, 4)])
def test_few_channels_and_few_places_are_left_to_the_generic_kernel(
    backend: CPUBackend, channels: int, places: int
) -> None:
    compute = interpolation_case((1, channels, 50), 1, 2, 2, places).compute
    assert compute is not None
    tuner = Tuner(compute, lambda name, make: name, lambda elements, dtype: "scratch")
    assert not backend.tune(compute, tuner)
    assert not tuner.steps
