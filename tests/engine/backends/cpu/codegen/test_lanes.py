"""Kernels that are cut by the processor's vectors are right for those of other processors too."""

from __future__ import annotations

import numpy as np
import pytest

from engine.backends.cpu.backend import CPUBackend
from engine.backends.cpu.codegen.tiles import AVX2, PORTABLE, Tile
from engine.backends.cpu.kernels import reduce, transpose
from engine.backends.cpu.kernels.convolution import nchw_staging, nchw_windows, nhwc_windows
from engine.backends.cpu.kernels.matmul import packed_elements
from tests.engine.backends.cpu.hinted import check, conv_case, run_tuned
from tests.engine.backends.cpu.kernels.convolution.test_nhwc_depthwise import SAME
from tests.engine.backends.cpu.kernels.convolution.test_nhwc_depthwise import case as depthwise_case
from tests.engine.backends.cpu.kernels.convolution.test_pool import case as pool_case
from tests.engine.backends.cpu.kernels.test_reduce import exact, reduce_case
from tests.engine.backends.cpu.kernels.test_transpose import transpose_case
from tests.engine.backends.cpu.last import assert_close, first_to_last

pytestmark = [pytest.mark.usefixtures("tile"), pytest.mark.spread("tile")]


@pytest.fixture(params=[AVX2, PORTABLE], ids=["8 lanes", "4 lanes"])
def tile(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Tile:
    for module in (nhwc_windows, nchw_windows, nchw_staging, reduce, transpose, packed_elements):
        monkeypatch.setattr(module, "host_tile", lambda: request.param)
    return request.param


@pytest.mark.parametrize("channels", [3, 37])
def test_depthwise(backend: CPUBackend, channels: int) -> None:
    last, expected = first_to_last(depthwise_case((1, channels, 7, 23), (3, 3), **SAME), "bias")
    assert_close(run_tuned(backend, last), expected)


@pytest.mark.parametrize("kind", ["max", "average"])
def test_pool(backend: CPUBackend, kind: str) -> None:
    given = pool_case(kind, (1, 37, 7, 23), (3, 3), pads=(1, 1), ends=(1, 1))
    if kind == "max":
        given.arrays["x"][0, 5, 3, 11] = np.nan
    last, expected = first_to_last(given)
    assert_close(run_tuned(backend, last), expected)


@pytest.mark.spread("tile", "strides")
@pytest.mark.parametrize("strides", [(1, 1), (2, 2), (1, 3)])
def test_windows_over_planes(backend: CPUBackend, strides: tuple[int, int]) -> None:
    check(backend, depthwise_case((2, 3, 9, 31), (3, 3), strides=strides, **SAME))
    check(backend, pool_case("max", (2, 3, 9, 31), (3, 3), strides=strides, pads=(1, 1), ends=(1, 1)))


@pytest.mark.parametrize("kind", ["sum", "max"])
def test_reductions(backend: CPUBackend, kind: str) -> None:
    for case in (reduce_case((2, 77, 41), kind), reduce_case((5, 77, 1), kind, runs=True)):
        np.testing.assert_allclose(run_tuned(backend, case), exact(case), rtol=0, atol=1e-5)


@pytest.mark.parametrize(("rows", "columns"), [(37, 21), (3, 500)])
def test_transposes(backend: CPUBackend, rows: int, columns: int) -> None:
    case = transpose_case(2, rows, columns)
    np.testing.assert_array_equal(run_tuned(backend, case), case.arrays["x"].swapaxes(1, 2).reshape(-1))


def test_few_outputs_of_windows_of_one_element(backend: CPUBackend) -> None:
    plain = {"strides": (1,), "dilations": (1,), "pads": (0,), "ends": (0,)}
    check(backend, conv_case(1, (2, 9, 700), (3, 9, 1), **plain, group=1, epilogue="bias"))
