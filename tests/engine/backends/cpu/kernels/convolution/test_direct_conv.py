"""Convolutions that read planes in place against sums of windows in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

from engine import BackendType, JobSystem, Worker
from engine.backends.cpu.backend import CPUBackend
from engine.backends.cpu.kernels.matmul import packed_elements
from tests.engine.backends.cpu.hinted import check, conv_case, tuned_plan
from tests.engine.backends.cpu.kernels.convolution.test_few_pixels_conv import integers, kernels
from tests.engine.operators.single import one_layer

SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "rows of whole tiles": ((1, 6, 9, 64), (17, 6, 3, 3), {"pads": (1, 1, 1, 1)}),
    "rows of other lengths": ((2, 8, 11, 23), (30, 8, 3, 5), {"pads": (1, 2, 1, 2)}),
    "many short rows": ((1, 4, 90, 13), (15, 4, 5, 3), {"pads": (2, 1, 2, 1)}),
    "no padding": ((2, 7, 7, 40), (3, 7, 2, 3), {}),
    "planes as long as a tile": ((1, 8, 9, 5), (1, 8, 2, 2), {}),
    "gaps": ((1, 8, 20, 41), (9, 8, 3, 3), {"dilations": (3, 2), "pads": (3, 2, 3, 2)}),
    "groups": ((2, 12, 10, 30), (34, 6, 3, 3), {"group": 2, "pads": (1, 1, 1, 1)}),
    "one axis": ((2, 8, 1100), (40, 8, 7), {"pads": (3, 3)}),
    "one axis without padding": ((1, 4, 331), (16, 4, 10), {}),
    "many planes": ((1, 250, 40), (18, 250, 3), {"pads": (1, 1)}),
}

STRIDED: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "every second row and column": ((2, 3, 41, 95), (34, 3, 7, 7), {"strides": (2, 2), "pads": (3, 3, 3, 3)}),
    "every second row without padding": ((1, 4, 19, 66), (15, 4, 3, 3), {"strides": (2, 1)}),
    "every third column": ((1, 2, 5, 160), (5, 2, 2, 4), {"strides": (1, 3), "dilations": (1, 2)}),
    "strided groups": ((1, 8, 12, 130), (40, 4, 3, 3), {"group": 2, "strides": (2, 2), "pads": (1, 1, 1, 1)}),
    "one strided axis": ((2, 1, 3000), (31, 1, 10), {"strides": (5,)}),
}
"""Of more columns than two tiles, which are not gathered."""


def convolved(x: np.ndarray, w: np.ndarray, attributes: dict[str, Any]) -> np.ndarray:
    """The sums, in 64 bits."""
    axes = w.ndim - 2
    group, gaps = attributes.get("group", 1), attributes.get("dilations", (1,) * axes)
    pads, strides = attributes.get("pads", (0,) * 2 * axes), attributes.get("strides", (1,) * axes)
    x = np.pad(x, [(0, 0), (0, 0), *zip(pads[:axes], pads[axes:], strict=True)])
    reach = [(k - 1) * gap + 1 for k, gap in zip(w.shape[2:], gaps, strict=True)]
    windows = sliding_window_view(x, reach, tuple(range(2, 2 + axes)))
    for axis, gap in enumerate(gaps, windows.ndim - axes):
        windows = windows[(slice(None),) * axis + (slice(None, None, gap),)]
    windows = windows[:, :, *(slice(None, None, step) for step in strides)]
    windows = windows.reshape(x.shape[0], group, -1, *windows.shape[2:])
    weights = w.reshape(group, -1, *w.shape[1:])
    letters = "ab"[:axes], "yz"[:axes]
    text = "ngc{1}{0},gmc{0}->ngm{1}".format(*letters)
    sums = np.einsum(text, windows, weights)
    return sums.reshape(x.shape[0], w.shape[0], *sums.shape[3:])


def computed(name: str, arrays: list[np.ndarray], attributes: dict[str, Any]) -> tuple[np.ndarray, list[str]]:
    model = one_layer(name, arrays, attributes, known=tuple(range(1, len(arrays))))
    with JobSystem(3) as jobs, Worker(model, BackendType.CPU, jobs=jobs) as worker:
        worker.schedule(arrays[0])
        return worker.peek_output().download_to_array(), kernels(worker)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize(("x_type", "w_type"), [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")])
def test_bytes(name: str, x_type: str, w_type: str) -> None:
    shape, w_shape, attributes = SHAPES[name]
    rng = np.random.default_rng(len(name))
    x, w = integers(rng, x_type, *shape), integers(rng, w_type, *w_shape)
    zeros = integers(rng, x_type), np.array(128 if w_type == "uint8" else 0, w_type)
    found, used = computed("ConvInteger", [x, w, *zeros], attributes)
    expected = convolved(x.astype(np.int64) - zeros[0], w.astype(np.int64) - zeros[1], attributes)
    np.testing.assert_array_equal(found, expected)
    assert used[-1] == ("direct_conv" if packed_elements._has_byte_dots() else "any_type_conv")


@pytest.mark.parametrize("name", [*SHAPES, *STRIDED])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_floats(name: str, dtype: str) -> None:
    shape, w_shape, attributes = (SHAPES | STRIDED)[name]
    rng = np.random.default_rng(len(name))
    x, w, bias = (
        np.asarray(rng.standard_normal(sizes), np.dtype(dtype)) for sizes in (shape, w_shape, w_shape[:1])
    )
    found, used = computed("Conv", [x, w, bias], attributes)
    expected = convolved(x.astype(np.float64), w.astype(np.float64), attributes)
    expected += bias.astype(np.float64).reshape(-1, *(1,) * (len(shape) - 2))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert "group" in attributes or name not in STRIDED or used[-1] == "direct_conv"


@pytest.mark.parametrize(
    ("shape", "attributes", "kernel"),
    [
        ((64, 1, 9, 9), {"pads": (4, 4, 4, 4)}, "direct_conv"),
        ((64, 1, 9, 9), {"pads": (4, 4, 4, 4), "strides": (2, 2)}, "direct_conv"),
        ((64, 1, 9, 9), {"pads": (4, 4, 4, 4), "strides": (4, 4)}, "first_layer_conv"),
    ],
)
def test_a_lone_layer_of_few_channels_is_not_transposed(
    shape: tuple[int, ...], attributes: dict[str, Any], kernel: str
) -> None:
    rng = np.random.default_rng(1)
    x, w = (rng.standard_normal(sizes).astype(np.float32) for sizes in ((1, 1, 40, 64), shape))
    assert kernel in computed("Conv", [x, w], attributes)[1]


@pytest.mark.parametrize("outputs", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("shape", "epilogue"), [((2, 11, 23, 31), "position"), ((1, 40, 900), "residual"), ((2, 5, 700), "bias")]
)
def test_few_outputs_of_windows_of_one_element(
    backend: CPUBackend, shape: tuple[int, ...], outputs: int, epilogue: str
) -> None:
    axes = len(shape) - 2
    w_shape, ones, zeros = (outputs, shape[1], *(1,) * axes), (1,) * axes, (0,) * axes
    case = conv_case(
        outputs, shape, w_shape, strides=ones, dilations=ones, pads=zeros, ends=zeros, group=1,
        epilogue=epilogue,
    )  # fmt: skip
    check(backend, case)
    used = [getattr(step.kernel, "name", "") for step in tuned_plan(backend, case).steps]
    assert used == ["direct_conv"]


def test_a_lone_layer_of_few_outputs_is_not_transposed() -> None:
    rng = np.random.default_rng(1)
    x, w = (rng.standard_normal(sizes).astype(np.float32) for sizes in ((1, 24, 30, 40), (2, 24, 1, 1)))
    found, used = computed("Conv", [x, w], {})
    np.testing.assert_allclose(found, convolved(x, w, {}), rtol=1e-4, atol=1e-4)
    assert used == ["direct_conv"]
