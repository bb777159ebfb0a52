"""Padding against NumPy, negative pads and repeated reflection included."""

from __future__ import annotations

import numpy as np
import pytest

from engine.base.errors import ShapeError
from tests.engine.operators.single import run

PADS: list[tuple[tuple[int, int], ...]] = [
    ((0, 0), (1, 2), (3, 0)),
    ((2, 1), (7, 9), (0, 0)),
    ((-1, 0), (2, -1), (1, 1)),
    ((1, -1), (-2, 3), (0, -3)),
]


def padded(x: np.ndarray, pads: tuple[tuple[int, int], ...], mode: str) -> np.ndarray:
    """NumPy's answer; what negative pads cut off goes first."""
    x = x[tuple(slice(max(0, -b), n - max(0, -e)) for n, (b, e) in zip(x.shape, pads, strict=True))]
    return np.pad(x, [(max(0, b), max(0, e)) for b, e in pads], mode=mode)  # type: ignore[call-overload]


@pytest.mark.parametrize("pads", PADS, ids=str)
@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
def test_modes(mode: str, pads: tuple[tuple[int, int], ...]) -> None:
    x = np.arange(60, dtype=np.float32).reshape(3, 4, 5) + 1
    flat = np.array([b for b, _ in pads] + [e for _, e in pads])
    expected = padded(x, pads, mode)
    np.testing.assert_array_equal(run("Pad", [x, flat], {"mode": mode})[0], expected)
    if mode != "wrap":
        (old,) = run("Pad", [x], {"mode": mode, "pads": tuple(flat.tolist())}, opset=10)
        np.testing.assert_array_equal(old, expected)


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
def test_one_element_fills_everything(mode: str) -> None:
    x = np.array([[4.0]], np.float32)
    np.testing.assert_array_equal(
        run("Pad", [x, np.array([2, 0, 1, 3])], {"mode": mode})[0], np.full((4, 4), 4)
    )


def test_named_axes_and_value() -> None:
    x = np.arange(6).reshape(1, 2, 3)
    arrays = [x, np.array([1, 2]), np.array(7), np.array([-2])]
    np.testing.assert_array_equal(
        run("Pad", arrays)[0], np.pad(x, [(0, 0), (1, 2), (0, 0)], constant_values=7)
    )
    (old,) = run("Pad", [x.astype(np.float32)], {"pads": (0, 0, 1, 0, 0, 0), "value": 2.5}, opset=2)
    np.testing.assert_array_equal(
        old, np.pad(x.astype(np.float32), [(0, 0), (0, 0), (1, 0)], constant_values=2.5)
    )


def test_nothing_padded_with_a_constant() -> None:
    (found,) = run("Pad", [np.zeros((0, 2), np.float32), np.array([1, 0, 1, 0]), np.array(3, np.float32)])
    np.testing.assert_array_equal(found, np.full((2, 2), 3.0))


@pytest.mark.parametrize("size", [(3, 9), (8, 2), (5, 6), (4, 5)])
def test_center_crop_pad(size: tuple[int, int]) -> None:
    x = np.arange(30, dtype=np.float32).reshape(5, 6) + 1
    expected = x
    for axis, wanted in enumerate(size):
        more = wanted - x.shape[axis]
        before = abs(more) // 2
        widths = [(0, 0), (0, 0)]
        widths[axis] = (before, abs(more) - before)
        if more >= 0:
            expected = np.pad(expected, widths)
        else:
            expected = np.take(expected, range(before, before + wanted), axis)
    np.testing.assert_array_equal(run("CenterCropPad", [x, np.array(size)])[0], expected)


def test_errors_name_the_layer() -> None:
    x = np.zeros((2, 3), np.float32)
    for pads, attributes, message in (
        ([1, 1], {}, "has 2 pads for 2 axes"),
        ([-2, 0, -1, 0], {}, "cannot remove"),
        ([0, 0, 0, 0], {"mode": "mirror"}, "mode is 'mirror'"),
        ([-2, 0, 1, 0], {"mode": "edge"}, "at least one element"),
    ):
        with pytest.raises(ShapeError, match=f"layer 'it' \\(Pad\\): .*{message}"):
            run("Pad", [x, np.array(pads)], attributes)
