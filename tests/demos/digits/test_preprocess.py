"""Drawings are cropped, scaled and centred for the network, whatever their size and place."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from demos.digits.preprocess import DIGIT_SIDE, INPUT_SIDE, prepare


def box(side: int, top: int, left: int, height: int, width: int) -> npt.NDArray[np.float32]:
    drawing = np.zeros((side, side), np.float32)
    drawing[top : top + height, left : left + width] = 1.0
    return drawing


def test_no_ink_gives_an_empty_picture() -> None:
    picture = prepare(np.full((50, 60), 0.01))
    assert picture.shape == (1, 1, INPUT_SIDE, INPUT_SIDE)
    assert picture.dtype == np.float32
    assert not picture.any()


@pytest.mark.parametrize("scale", [1, 3, 9])
def test_longer_side_measures_twenty_pixels_and_sits_in_the_middle(scale: int) -> None:
    picture = prepare(box(40 * scale, 3 * scale, 20 * scale, 20 * scale, 10 * scale))[0, 0]
    assert picture.sum(axis=0).max() == pytest.approx(DIGIT_SIDE, rel=0.02)
    assert picture.sum(axis=1).max() == pytest.approx(DIGIT_SIDE / 2, rel=0.02)
    np.testing.assert_allclose(picture, picture[::-1, ::-1], atol=1e-4)


def test_small_drawing_is_enlarged_smoothly() -> None:
    picture = prepare(box(8, 1, 2, 5, 3))[0, 0]
    assert picture.sum() == pytest.approx(15 * (DIGIT_SIDE / 5) ** 2, rel=0.02)
    assert np.abs(np.diff(picture, axis=0)).max() < 0.5


def test_place_on_the_sheet_does_not_matter() -> None:
    expected = prepare(box(100, 0, 0, 30, 17))
    for top, left in [(0, 83), (70, 0), (70, 83), (31, 44)]:
        np.testing.assert_allclose(prepare(box(100, top, left, 30, 17)), expected, atol=1e-4)


def test_lopsided_drawing_is_balanced_but_not_cut() -> None:
    drawing = box(100, 10, 20, 60, 4) + box(100, 66, 24, 4, 20)
    picture = prepare(drawing)[0, 0]
    total = (DIGIT_SIDE / 60) ** 2 * drawing.sum()
    assert picture.sum() == pytest.approx(total, rel=0.03)
    lines = np.arange(INPUT_SIDE) + 0.5
    assert (picture.sum(axis=0) * lines).sum() / picture.sum() == pytest.approx(INPUT_SIDE / 2, abs=0.3)
    assert (picture.sum(axis=1) * lines).sum() / picture.sum() == pytest.approx(INPUT_SIDE / 2, abs=0.3)


def test_extreme_lopsidedness_stays_inside() -> None:
    drawing = box(200, 180, 20, 15, 60) + box(200, 20, 20, 160, 1)
    picture = prepare(drawing)[0, 0]
    assert picture.sum() == pytest.approx((DIGIT_SIDE / 175) ** 2 * drawing.sum(), rel=0.05)
