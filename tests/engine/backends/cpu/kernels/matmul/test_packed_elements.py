"""Products of words against NumPy: integers are exact in every form, whatever the processor has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import BackendType, Worker
from engine.backends.cpu.codegen.tiles import AVX2, host_tile
from engine.backends.cpu.kernels.matmul import packed_elements
from tests.engine.operators.single import one_layer

FORMS = ["bytes", "pairs", "pairs without instructions", "narrow vectors"]


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every way in which this processor can multiply narrow integers."""
    if request.param == "bytes" and not packed_elements._has_byte_dots():
        pytest.skip("this processor adds up no products of bytes")
    if request.param != "bytes":
        monkeypatch.setattr(packed_elements, "_has_byte_dots", lambda: False)
    if request.param == "pairs without instructions":
        monkeypatch.setattr(packed_elements, "_has_pairs", lambda: False)
    if request.param == "narrow vectors":
        monkeypatch.setattr(
            packed_elements, "host_tile", lambda: AVX2 if host_tile().lanes > 8 else host_tile()
        )
    return str(request.param)


def extremes(rng: np.random.Generator, dtype: str, *shape: int) -> np.ndarray:
    """Integers, many of which are the lowest and the highest: sums of few of them do not fit 16 bits."""
    limits = np.iinfo(dtype)
    found = rng.integers(limits.min, limits.max + 1, shape)
    where = rng.random(shape)
    return np.where(where < 0.3, limits.min, np.where(where > 0.7, limits.max, found)).astype(dtype)


def computed(op_type: str, arrays: list[np.ndarray | None], known: tuple[int, ...], **attributes: Any) -> Any:
    """The layer's output from the CPU's kernels."""
    model = one_layer(op_type, arrays, attributes, known=known)
    with Worker(model, BackendType.CPU) as worker:
        worker.schedule({f"x{i}": a for i, a in enumerate(arrays) if a is not None and i not in known})
        return worker.peek_output().download_to_array()


def windows(x: np.ndarray, w: np.ndarray, step: int, reach: int, group: int) -> np.ndarray:
    """A convolution of int64s with a padding of 1, tap by tap."""
    x = np.pad(x.astype(np.int64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    rows, columns = (
        (size - (k - 1) * reach - 1) // step + 1 for size, k in zip(x.shape[2:], w.shape[2:], strict=True)
    )
    per_group = w.shape[0] // group
    found = np.zeros((x.shape[0], w.shape[0], rows, columns), np.int64)
    for m in range(w.shape[0]):
        first = m // per_group * w.shape[1]
        for i, j in np.ndindex(*w.shape[2:]):
            y0, x0 = i * reach, j * reach
            seen = x[
                :, first : first + w.shape[1], y0 : y0 + rows * step : step, x0 : x0 + columns * step : step
            ]
            found[:, m] += np.einsum(
                "ncij,c->nij", seen[:, :, :rows, :columns], w[m, :, i, j].astype(np.int64)
            )
    return found


def test_a_product_and_a_convolution_of_bytes() -> None:
    rng = np.random.default_rng(5)
    a, b = extremes(rng, "uint8", 19, 70), extremes(rng, "int8", 70, 37)
    zero = np.array(113, np.uint8)
    expected = (a.astype(np.int64) - zero) @ b.astype(np.int64)
    np.testing.assert_array_equal(computed("MatMulInteger", [a, b, zero], (1, 2)), expected)
    x, w = extremes(rng, "uint8", 1, 6, 9, 40), extremes(rng, "int8", 5, 6, 3, 3)
    expected = windows(x.astype(np.int64) - zero, w, 1, 1, 1)
    np.testing.assert_array_equal(computed("ConvInteger", [x, w, zero], (1, 2), pads=[1] * 4), expected)


@pytest.mark.long
@pytest.mark.parametrize(("left", "right"), [("uint8", "int8"), ("uint8", "uint8"), ("int8", "int8")])
@pytest.mark.parametrize(("m", "k", "n"), [(1, 5, 3), (19, 70, 37)])
def test_products_of_bytes_are_exact(form: str, left: str, right: str, m: int, k: int, n: int) -> None:
    rng = np.random.default_rng(m)
    a, b = extremes(rng, left, m, k), extremes(rng, right, k, n)
    a_zero, b_zero = extremes(rng, left), extremes(rng, right, n)
    expected = (a.astype(np.int64) - a_zero) @ (b.astype(np.int64) - b_zero)
    for known in ((1, 3), (3,), (1,), ()):
        found = computed("MatMulInteger", [a, b, a_zero, b_zero], known)
        np.testing.assert_array_equal(found, expected.astype(np.int32))


@pytest.mark.long
def test_batches_and_zero_points_of_rows(form: str) -> None:
    rng = np.random.default_rng(4)
    a, b = extremes(rng, "int8", 3, 7, 18), extremes(rng, "uint8", 3, 18, 40)
    zero = extremes(rng, "uint8")
    expected = a.astype(np.int64) @ (b.astype(np.int64) - zero)
    for known in ((1, 3), ()):
        np.testing.assert_array_equal(computed("MatMulInteger", [a, b, None, zero], known), expected)
    rows = extremes(rng, "int8", 7)
    expected = (a[0].astype(np.int64) - rows[:, None]) @ b[0].astype(np.int64)
    np.testing.assert_array_equal(computed("MatMulInteger", [a[0], b[0], rows], (1,)), expected)


@pytest.mark.long
@pytest.mark.parametrize(("left", "right"), [("uint8", "int8"), ("uint8", "uint8"), ("int8", "int8")])
@pytest.mark.parametrize(
    ("x_shape", "w_shape", "step", "reach", "group"),
    [
        ((2, 6, 9, 40), (5, 6, 3, 3), 1, 1, 1),
        ((1, 8, 11, 13), (8, 1, 3, 3), 2, 1, 8),
        ((1, 4, 9, 12), (6, 2, 2, 3), 1, 2, 2),
    ],
)
def test_convolutions_of_bytes_are_exact(
    form: str, left: str, right: str, x_shape: tuple[int, ...], w_shape: tuple[int, ...], step: int,
    reach: int, group: int,
) -> None:  # fmt: skip
    rng = np.random.default_rng(sum(x_shape))
    x, w = extremes(rng, left, *x_shape), extremes(rng, right, *w_shape)
    x_zero, w_zero = extremes(rng, left), extremes(rng, right, w_shape[0])
    moved = w.astype(np.int64) - w_zero.reshape(-1, 1, 1, 1)
    expected = windows(x.astype(np.int64) - x_zero, moved, step, reach, group)
    for known in ((1, 3), (1, 2, 3), ()):
        found = computed(
            "ConvInteger", [x, w, x_zero, w_zero], known, pads=[1] * 4, strides=[step] * 2,
            dilations=[reach] * 2, group=group,
        )  # fmt: skip
        np.testing.assert_array_equal(found, expected.astype(np.int32))


@pytest.mark.spread("form")
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize(("shape", "group"), [((2, 6, 7, 7), 1), ((1, 10, 3, 43), 2)])
def test_windows_of_one_element_are_exact(
    form: str, dtype: str, shape: tuple[int, ...], group: int
) -> None:  # fmt: skip
    """Their planes are laid as one row each, if they are not read where they lie."""
    rng = np.random.default_rng(9)
    x, w = extremes(rng, dtype, *shape), extremes(rng, "int8", 4, shape[1] // group, 1, 1)
    zero = extremes(rng, dtype)
    sides = x.astype(np.int64) - zero, w[..., 0, 0].astype(np.int64)
    parts = zip(np.split(sides[0], group, axis=1), np.split(sides[1], group), strict=True)
    expected = np.concatenate([np.einsum("nchw,mc->nmhw", *part) for part in parts], axis=1)
    found = computed("ConvInteger", [x, w, zero], (1, 2), group=group)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.long
def test_deep_sums_are_gathered_in_parts(form: str) -> None:
    rng = np.random.default_rng(2)
    x, w = extremes(rng, "uint8", 1, 700, 3, 5), extremes(rng, "int8", 20, 700, 3, 3)
    expected = windows(x, w, 1, 1, 1)
    found = computed("ConvInteger", [x, w, np.zeros((), np.uint8)], (1, 2), pads=[1] * 4)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64", "float64"])
def test_products_of_wide_numbers(dtype: str) -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-(2**20), 2**20, s).astype(dtype) for s in ((2, 19, 33), (33, 50)))
    for known in ((1,), ()):
        np.testing.assert_array_equal(computed("MatMul", [a, b], known), a @ b)
    x, w = rng.standard_normal((1, 3, 8, 9)), rng.standard_normal((4, 3, 3, 3))
    if dtype == "float64":
        whole_x, whole_w = (np.rint(v * 100).astype(dtype) for v in (x, w))
        found = computed("Conv", [whole_x, whole_w], (), pads=[1] * 4)
        np.testing.assert_array_equal(found, windows(whole_x, whole_w, 1, 1, 1))


@pytest.mark.long
@pytest.mark.parametrize("step", [1, 2, 3])
def test_convolutions_of_one_channel_each(form: str, step: int) -> None:
    rng = np.random.default_rng(step)
    x, w = extremes(rng, "int8", 2, 5, 12, 90), extremes(rng, "int8", 5, 1, 3, 5)
    zero = np.array(-7, np.int8)
    expected = windows(x.astype(np.int64) - zero, w, step, 1, 5)
    for known in ((1, 2), (2,)):
        found = computed("ConvInteger", [x, w, zero], known, pads=[1] * 4, strides=[step] * 2, group=5)
        np.testing.assert_array_equal(found, expected)
    floats = [rng.standard_normal(s).astype(np.float32) for s in (x.shape, w.shape)]
    found = computed("Conv", list(floats), (), pads=[1] * 4, strides=[step] * 2, group=5)
    whole_x, whole_w = (np.rint(v * 1000).astype(np.int64) for v in floats)
    assert np.abs(found - windows(whole_x, whole_w, step, 1, 5) / 1e6).max() < 0.1
