"""Channels-last convolutions in bfloat16 against float64 sums over operands that NumPy has rounded."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from engine.backends.cpu.backend import CPUBackend
from engine.backends.cpu.kernels.convolution import low_precision_conv
from engine.backends.cpu.kernels.convolution.low_precision_conv import cells_of, cut_cells, share_cells
from engine.backends.cpu.kernels.matmul.low_precision import BAND_BYTES, SLACK_BYTES
from engine.backends.cpu.kernels.matmul.precision import Arithmetic, Unit, matrix_units
from engine.backends.windows import Windows2D
from engine.device.jobs.system import JobSystem
from engine.kernels.expr import FLAT, acc, index, lit, load, maximum
from engine.kernels.hint import Hint
from tests.engine.backends.cpu.hinted import Case, out_size, run_tuned, tuned_plan
from tests.engine.backends.steps import conv_expected


@pytest.fixture(params=["amx", "avx512"])
def bf16(request: pytest.FixtureRequest, jobs: JobSystem, monkeypatch: pytest.MonkeyPatch) -> CPUBackend:
    """A backend for each unit that computes in bfloat16, whatever the size of a convolution."""
    unit: Unit = request.param
    if unit not in matrix_units("bf16"):
        pytest.skip(f"this processor computes no bfloat16 by {unit}")
    monkeypatch.setattr(low_precision_conv, "_LEAST_FLOPS", 0.0)
    backend = CPUBackend(jobs, precision="bf16")
    backend.arithmetics = (Arithmetic("bf16", unit),)
    return backend


def _rounded(x: np.ndarray) -> np.ndarray:
    return x.astype(ml_dtypes.bfloat16).astype(np.float64)


def _check(
    backend: CPUBackend, x_shape: Sequence[int], w_shape: Sequence[int], *, strides: Sequence[int] = (1, 1),
    dilations: Sequence[int] = (1, 1), pads: Sequence[int] = (0, 0), ends: Sequence[int] = (0, 0),
    x_first: bool = False, epilogue: str = "bias",
) -> None:  # fmt: skip
    """x_shape is (N, *spatial, C), also with `x_first`, which only moves the channels."""
    case = Case(prod(x_shape) + prod(w_shape))
    batch, *sizes, channels = x_shape
    shape = (batch, channels, *sizes) if x_first else tuple(x_shape)
    x = case.value("x", shape)
    w = case.value("w", w_shape, known=True, scale=1 / np.sqrt(prod(w_shape[1:])))
    out = tuple(map(out_size, sizes, w_shape[2:], strides, dilations, pads, ends))
    space = (batch, *out, w_shape[0])
    attributes: dict[str, Any] = {
        "strides": strides, "dilations": dilations, "pads": pads, "group": 1, "channels_last": True,
        "x_first": x_first,
    }  # fmt: skip
    case.finish(space, lit(0.0, "float32"), Hint("conv", (x, w), attributes), None)
    assert case.compute is not None
    given = _rounded(case.arrays["x"])
    given = given if x_first else np.moveaxis(given, -1, 1)
    expected = conv_expected(given, _rounded(case.arrays["w"]), strides, dilations, pads, ends, 1)
    expected = np.moveaxis(expected, 1, -1)
    last = len(space) - 1
    if epilogue == "bias":
        bias = case.value("bias", (w_shape[0],), known=True)
        case.compute.epilogue = maximum(acc("float32") + load(bias, index(last)), 0.0)
        expected = np.maximum(expected + case.arrays["bias"], 0)
    elif epilogue == "residual":
        other = case.value("other", space)
        case.compute.epilogue = acc("float32") + other.at(FLAT)
        expected = expected + case.arrays["other"]
    else:
        place = case.value("place", space[:-1])
        case.compute.epilogue = acc("float32") * place[tuple(index(a) for a in range(last))]
        expected = expected * case.arrays["place"][..., None]
    (step,) = tuned_plan(backend, case).steps
    assert getattr(step.kernel, "name", "") == "conv_bf16"
    got = run_tuned(backend, case).reshape(space).astype(np.float64)
    scale = max(1.0, float(np.abs(expected).max()))
    assert np.abs(got - expected).max() <= 2e-5 * scale


PLAIN: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((1, 9, 11, 32), (16, 32, 1, 1)),
    ((2, 7, 7, 40), (33, 40, 1, 1)),
    ((1, 56, 56, 64), (64, 64, 1, 1)),
    ((1, 7, 7, 300), (600, 300, 1, 1)),
]


@pytest.mark.parametrize(("x_shape", "w_shape"), PLAIN)
def test_pointwise(bf16: CPUBackend, x_shape: tuple[int, ...], w_shape: tuple[int, ...]) -> None:
    _check(bf16, x_shape, w_shape)


@pytest.mark.parametrize("channels", [1, 3, 16, 40, 96])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_windows_with_padding(bf16: CPUBackend, channels: int, stride: int) -> None:
    given = {"strides": (stride, stride), "pads": (1, 2), "ends": (2, 1)}
    _check(bf16, (2, 17, 23, channels), (24, channels, 3, 3), **given)  # type: ignore[arg-type]
    _check(bf16, (1, 12, 19, channels), (40, channels, 5, 4), **given)  # type: ignore[arg-type]


def test_strides_dilations_and_kernels_of_their_own_along_each_axis(bf16: CPUBackend) -> None:
    _check(bf16, (1, 21, 18, 35), (20, 35, 3, 2), strides=(1, 2), dilations=(2, 1), pads=(2, 0), ends=(1, 1))
    _check(bf16, (1, 21, 18, 35), (20, 35, 2, 3), strides=(3, 1), dilations=(1, 3), pads=(0, 3), ends=(0, 3))
    _check(bf16, (1, 15, 16, 64), (20, 64, 1, 1), strides=(2, 2))
    _check(bf16, (1, 15, 16, 4), (20, 4, 7, 7), strides=(2, 2), dilations=(1, 2), pads=(3, 3), ends=(3, 3))


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_channels_before_the_plane(bf16: CPUBackend, channels: int) -> None:
    given = {"strides": (2, 2), "pads": (3, 3), "ends": (3, 3), "x_first": True}
    _check(bf16, (2, 40, 37, channels), (33, channels, 7, 7), **given)  # type: ignore[arg-type]
    _check(bf16, (1, 9, 9, channels), (8, channels, 3, 3), x_first=True)


def test_one_axis(bf16: CPUBackend) -> None:
    _check(bf16, (2, 50, 48), (20, 48, 5), strides=(2,), dilations=(1,), pads=(2,), ends=(1,))
    _check(bf16, (1, 50, 48), (70, 48, 1), strides=(1,), dilations=(1,), pads=(0,), ends=(0,),
           epilogue="position")  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("epilogue", ["residual", "position"])
def test_epilogues(bf16: CPUBackend, epilogue: str) -> None:
    _check(bf16, (2, 14, 13, 48), (40, 48, 3, 3), pads=(1, 1), ends=(1, 1), epilogue=epilogue)
    _check(bf16, (2, 14, 13, 48), (300, 48, 1, 1), epilogue=epilogue)


def test_wide_and_deep_planes_are_cut(bf16: CPUBackend) -> None:
    _check(bf16, (1, 5, 700, 70), (20, 70, 3, 3), pads=(1, 1), ends=(1, 1))
    _check(bf16, (1, 7, 9, 700), (70, 700, 3, 3), pads=(1, 1), ends=(1, 1))


def test_bands_fit_the_memory_of_a_task() -> None:
    rng = np.random.default_rng(17)
    found = 0
    for _ in range(300):
        kernel, strides, dilations = (tuple(map(int, rng.integers(1, high, 2))) for high in (8, 4, 3))
        sizes = [int(2 ** rng.uniform(3, 10)) for _ in range(2)]
        channels, columns = int(2 ** rng.uniform(0, 11)), int(2 ** rng.uniform(3, 11))
        spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
        if any(s > n for s, n in zip(spans, sizes, strict=True)):
            continue
        out = tuple((n - s) // t + 1 for n, s, t in zip(sizes, spans, strides, strict=True))
        win = Windows2D(sizes[0], sizes[1], kernel, strides, dilations, (0, 0), out)  # type: ignore[arg-type]
        cells = cells_of(win, channels, Arithmetic("bf16", "amx"))
        bands = cut_cells(win, cells)
        if bands is None:
            continue
        found += 1
        shared, panels, held = share_cells(win, cells, bands, columns, 1, 2, 1e6)
        assert shared.rows.size <= bands.rows.size
        assert shared.columns.size <= bands.columns.size
        for blocks, size in zip((panels, shared.rows, shared.columns), (columns, *out), strict=True):
            assert (blocks.count - 1) * blocks.size < size <= blocks.count * blocks.size
        assert shared.bytes(cells) <= BAND_BYTES + SLACK_BYTES
        assert held <= panels.size
        assert panels.size % 32 == held % 32 == 0
        assert shared.row_cells >= shared.columns.size + (kernel[1] - 1) * dilations[1] // strides[1]
    assert found > 150
