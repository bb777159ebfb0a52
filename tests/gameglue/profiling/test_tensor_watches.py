"""NaN is noticed once, and tensors become pictures whose pixels can be worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from gameglue.profiling.tensor_watches import NaNAlarm, TensorWatch, as_image, heat_map


def test_nan_and_infinity_are_noticed_once() -> None:
    alarm = NaNAlarm()
    alarm.look("net", "y", np.ones(4, np.float32), 1)
    assert not alarm.found
    alarm.look("net", "y", np.array([1, np.nan, np.inf, np.nan], np.float32), 2)
    alarm.look("net", "y", np.array([np.nan], np.float32), 3)
    (bad,) = alarm.found.values()
    assert (bad.nan, bad.infinite, bad.elements, bad.frame) == (2, 1, 4, 2)
    assert str(bad) == "net: y has 2 NaN and 1 infinite of 4 (frame 2)"
    alarm.clear()
    alarm.look("net", "y", np.array([np.nan], np.float32), 9)
    assert [b.frame for b in alarm.found.values()] == [9]


def test_infinity_may_be_meant_and_nan_never_is() -> None:
    alarm = NaNAlarm()
    alarm.ignored.add("mask")
    alarm.look("net", "mask", np.array([-np.inf, 0.0], np.float32), 1)
    assert not alarm.found
    alarm.look("net", "mask", np.array([-np.inf, np.nan], np.float32), 2)
    assert len(alarm.found) == 1


def test_large_numbers_and_integers_are_no_alarm() -> None:
    alarm = NaNAlarm()
    alarm.look("net", "y", np.full(1000, 3e38, np.float32), 1)
    alarm.look("net", "i", np.array([1 << 40]), 1)
    alarm.look("net", "d", np.full(10, 1.7e308), 1)  # their sum overflows, none of them is infinite
    assert not alarm.found


def test_only_the_chosen_tensor_is_kept() -> None:
    watch = TensorWatch()
    array = np.arange(4.0)
    watch.look("net", "x", array)
    watch.look("net", "y", array)
    assert watch.shape == ()
    watch.choose_next()
    assert watch.chosen == ("net", "x")
    watch.look("net", "x", array)
    watch.look("net", "y", array * 2)
    array[:] = 9.0  # a copy was kept
    assert watch.array is not None
    assert watch.array.tolist() == [0, 1, 2, 3]
    watch.choose_next()
    assert watch.chosen == ("net", "y")
    watch.choose_next()
    assert watch.chosen == ("net", "x")


def test_a_matrix_is_its_own_picture() -> None:
    picture = as_image(np.array([[[[-1.0, 0.0], [1.0, np.nan]]]]))
    assert picture.shape == (2, 2)
    assert picture[0].tolist() == [0.0, 0.5]
    assert picture[1, 0] == 1.0
    assert np.isnan(picture[1, 1])


def test_planes_are_tiled_with_gaps() -> None:
    planes = np.zeros((1, 4, 2, 3), np.float32)
    planes[0, 3] = 1.0
    picture = as_image(planes)
    assert picture.shape == (6, 8)
    assert np.isnan(picture[2]).all()
    assert np.isnan(picture[:, 3]).all()
    assert (picture[3:5, 4:7] == 1.0).all()
    assert (picture[:2, :3] == 0.0).all()


@pytest.mark.parametrize("shape", [(), (1,), (10,), (1000,), (0,), (3, 0), (600, 700), (2, 300, 20, 20)])
def test_every_shape_has_a_picture_of_bounded_size(shape: tuple[int, ...]) -> None:
    picture = as_image(np.zeros(shape, np.float32))
    assert picture.ndim == 2
    assert all(1 <= n <= 257 for n in picture.shape)
    assert heat_map(picture).shape == (*picture.shape, 3)


def test_the_scale_grows_lighter_and_has_no_grey() -> None:
    colors = heat_map(np.linspace(0, 1, 64, dtype=np.float32)[None])
    light = colors[0].astype(int) @ (299, 587, 114)
    assert (np.diff(light) > 0).all()
    missing = heat_map(np.array([[np.nan]], np.float32))
    assert (np.abs(colors[0].astype(int) - missing[0, 0]).sum(axis=1) > 20).all()
