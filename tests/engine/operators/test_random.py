"""Random operators: their distributions, what decides their numbers, the same numbers on every backend."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.base.errors import ShapeError
from engine.compiler.interpreter import interpret
from engine.graph.model import Layer, Model, Output
from tests.engine.conftest import MakeWorker, answers
from tests.engine.operators.single import one_layer, run
from tests.onnx_cases import disagreement

MANY = 40000
TRUE = np.array(True)


def floats(*numbers: float) -> np.ndarray:
    """A float32 tensor."""
    return np.array(numbers, np.float32)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-1.0, 1.0), (2.0, 5.0), (-3.3, -3.1)])
@pytest.mark.parametrize("code", [1, 10, 11])
def test_uniform(low: float, high: float, code: int) -> None:
    (found,) = run("RandomUniform", [], {"shape": (4, MANY // 4), "low": low, "high": high, "dtype": code})
    assert found.dtype == {1: np.float32, 10: np.float16, 11: np.float64}[code]
    assert found.shape == (4, MANY // 4)
    x = (found.astype(np.float64).reshape(-1) - low) / (high - low)
    assert x.min() > -2e-2 if code == 10 else x.min() >= -1e-6
    assert x.max() <= 1.02 if code == 10 else x.max() <= 1.000001
    counts = np.histogram(np.clip(x, 0, 1), 10, (0, 1))[0]
    # Ten cells of 4000: six standard deviations are 360 (halves of the coarsest type fall on the edges).
    assert abs(counts - MANY / 10).max() < (1500 if code == 10 else 400)


def test_narrow_floats_stay_below_the_upper_end() -> None:
    for code, step in ((10, 2.0**-11), (16, 2.0**-8)):
        (found,) = run("RandomUniform", [], {"shape": (MANY,), "dtype": code})
        assert found.astype(np.float64).max() == 1 - step
    assert found.dtype == ml_dtypes.bfloat16


def test_normal() -> None:
    (found,) = run("RandomNormal", [], {"shape": (MANY,), "mean": 3.0, "scale": 2.0})
    z = (found.astype(np.float64) - 3) / 2
    # Six standard deviations of each moment's estimate.
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((z**power).mean() - moment) < 6 * np.sqrt(variance / MANY)
    (wide,) = run("RandomNormal", [], {"shape": (MANY,), "dtype": 11})
    assert abs(wide.std() - 1) < 0.03
    assert wide.dtype == np.float64
    assert abs(np.corrcoef(z[:-1], z[1:])[0, 1]) < 0.03


def test_what_decides_the_numbers() -> None:
    def draw(name: str, seed: float | None, schedules: int) -> bytes:
        attributes: dict[str, Any] = {"shape": (8,)} | ({} if seed is None else {"seed": seed})
        layer = Layer("RandomUniform", name, (), ("y",), attributes, version=22)
        model = Model("one", (), (Output("y", None, None),), (layer,), {}, {"": 22})
        return bytes(interpret(model, {}, schedules)["y"].tobytes())

    draws = [draw(n, s, c) for n in ("a", "b") for s in (None, 1.0, 2.0, 0.5) for c in (0, 1)]
    assert len(set(draws)) == len(draws)
    assert draws == [draw(n, s, c) for n in ("a", "b") for s in (None, 1.0, 2.0, 0.5) for c in (0, 1)]


def test_like_takes_shape_and_type() -> None:
    x = np.zeros((2, 0, 3), np.float16)
    for name in ("RandomUniformLike", "RandomNormalLike"):
        (found,) = run(name, [x])
        assert (found.shape, found.dtype) == (x.shape, x.dtype)
        (found,) = run(name, [np.zeros((2, 3), np.int64)], {"dtype": 1})
        assert (found.shape, found.dtype) == ((2, 3), np.float32)


def test_bernoulli() -> None:
    chances = np.repeat(floats(0, 0.25, 0.5, 1), MANY // 4)
    (found,) = run("Bernoulli", [chances])
    assert found.dtype == np.float32
    means = found.reshape(4, -1).mean(1)
    assert means[0] == 0
    assert means[3] == 1
    assert abs(means - [0, 0.25, 0.5, 1]).max() < 0.03
    for code, dtype in ((9, bool), (2, np.uint8), (7, np.int64), (11, np.float64)):
        (other,) = run("Bernoulli", [chances], {"dtype": code})
        assert other.dtype == dtype
        np.testing.assert_array_equal(other, found.astype(dtype))


def test_multinomial() -> None:
    odds = np.array([[1, 2, 0, 5], [0, 0, 3, 0]], np.float32)
    with np.errstate(divide="ignore"):
        logits = np.log(odds) + np.float32(100)
    (found,) = run("Multinomial", [logits], {"sample_size": MANY, "dtype": 7})
    assert found.dtype == np.int64
    counts = np.stack([np.bincount(row, minlength=4) for row in found])
    assert counts[0, 2] == 0
    assert abs(counts / MANY - odds / odds.sum(1, keepdims=True)).max() < 0.02
    assert run("Multinomial", [logits])[0].dtype == np.int32
    assert run("Multinomial", [logits[:0]], {"sample_size": 3})[0].shape == (0, 3)


def test_dropout_in_training(rng: np.random.Generator) -> None:
    x = rng.normal(size=(4, MANY // 4)).astype(np.float32)
    for ratio in (floats(0.75)[0], None):
        y, mask = run("Dropout", [x, ratio, TRUE], {"seed": 5}, outputs=2)
        chance = 0.5 if ratio is None else 0.75
        assert abs(mask.mean() - (1 - chance)) < 0.02
        assert disagreement(y, np.where(mask, x / (1 - chance), 0)) < 1e-6
    y, mask = run("Dropout", [x, floats(0)[0], TRUE], outputs=2)
    np.testing.assert_array_equal(y, x)
    assert mask.all()
    y, mask = run("Dropout", [x, floats(1)[0], TRUE], outputs=2)
    assert not y.any()
    assert not mask.any()
    y, mask = run("Dropout", [x, floats(0.5)[0], np.array(False)], outputs=2)
    np.testing.assert_array_equal(y, x)
    assert mask.all()


def test_dropout_seeds_are_integers() -> None:
    x = np.ones(64, np.float32)
    masks = {
        run("Dropout", [x, None, TRUE], {"seed": s}, outputs=2)[1].tobytes() for s in (1, 2, 2**24, 2**24 + 1)
    }
    assert len(masks) == 4


@settings(max_examples=8)
@given(
    case=st.sampled_from(
        (
            ("RandomUniformLike", {"low": -3.3, "high": 4.1, "seed": 3.0}, 0.0),
            ("RandomUniformLike", {"low": 0.0, "high": 0.7}, 0.0),
            ("RandomUniformLike", {"low": -1.0, "high": 1.0}, 0.0),
            ("RandomNormalLike", {"mean": 0.5, "scale": 1.0}, 1e-5),
            ("Bernoulli", {}, 0.0),
            ("Dropout", {"seed": 9}, 1e-6),
        )
    ),
    shape=st.sampled_from(((0,), (1,), (3, 1001))),
)
def test_every_backend_draws_the_same(
    channel: str, make_worker: MakeWorker, case: tuple[str, dict[str, Any], float], shape: tuple[int, ...]
) -> None:
    name, attributes, bound = case
    x = np.full(shape, 0.4, np.float32)
    arrays = [x, floats(0.3)[0], TRUE] if name == "Dropout" else [x]
    model = one_layer(name, arrays, attributes, known=range(1, len(arrays)), dynamic=(0,))
    worker = make_worker(model, channel)
    for schedules in range(2):
        (found,) = answers(worker, x0=x)
        expected = interpret(model, {"x0": x}, schedules)["y0"]
        if bound:
            assert disagreement(found, expected) <= bound
        else:
            np.testing.assert_array_equal(found, expected)


@pytest.mark.spread
def test_every_backend_draws_classes(channel: str, make_worker: MakeWorker) -> None:
    logits = np.random.default_rng(1).normal(size=(3, 5)).astype(np.float32)
    model = one_layer("Multinomial", [logits], {"sample_size": 500})
    (found,) = answers(make_worker(model, channel), logits)
    # A draw at the border of two classes may fall to either side.
    assert (found != interpret(model, {"x0": logits})["y0"]).mean() < 0.005


def test_errors_name_the_layer() -> None:
    x = np.zeros((2, 3), np.float32)
    cases: tuple[tuple[str, list[np.ndarray | None], dict[str, Any], str], ...] = (
        ("RandomUniform", [], {"shape": (2,), "dtype": 7}, "draws floats, not int64; set dtype"),
        ("RandomNormalLike", [x.astype(np.int32)], {}, "draws floats, not int32"),
        ("Multinomial", [x[0]], {}, "takes \\(batch, classes\\)"),
        ("Multinomial", [x], {"dtype": 1}, "not .* and float32"),
        ("Multinomial", [x[:, :0]], {}, "a class or more"),
        ("Dropout", [x, x, TRUE], {}, "its ratio must be one number"),
    )
    for name, arrays, attributes, message in cases:
        with pytest.raises(ShapeError, match=f"layer 'it' \\({name}\\): .*{message}"):
            run(name, arrays, attributes)
