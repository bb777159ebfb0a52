"""Det against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.base.errors import ShapeError
from tests.engine.conftest import MakeWorker, answers
from tests.engine.operators.single import one_layer, run
from tests.onnx_cases import disagreement


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 7, 20])
@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (0,)])
def test_det(n: int, lead: tuple[int, ...], rng: np.random.Generator) -> None:
    x = rng.normal(size=(*lead, n, n))
    expected = np.asarray(np.linalg.det(x))
    assert disagreement(run("Det", [x])[0], expected) < 1e-12
    assert disagreement(run("Det", [x.astype(np.float32)])[0], expected) < 1e-4


def test_rows_that_must_change_places_and_matrices_without_a_pivot() -> None:
    turned = np.eye(4, dtype=np.float32)[[2, 0, 3, 1]]
    tied = np.array([[0, 1, 2], [0, 3, 4], [0, 5, 6]], np.float32)
    same = np.ones((3, 3), np.float32)
    for x in (turned, tied, same, np.zeros((5, 5), np.float32)):
        assert disagreement(run("Det", [x])[0], np.asarray(np.linalg.det(x))) < 1e-6


def test_float16_is_worked_out_in_float32(rng: np.random.Generator) -> None:
    x = rng.normal(size=(3, 6, 6)).astype(np.float16)
    (found,) = run("Det", [x])
    assert found.dtype == np.float16
    assert disagreement(found, np.linalg.det(x.astype(np.float64))) < 2e-3


@pytest.mark.spread
@settings(max_examples=8)
@given(n=st.sampled_from((1, 2, 3, 6)), count=st.sampled_from((0, 1, 4)))
def test_every_backend_agrees_with_numpy(channel: str, make_worker: MakeWorker, n: int, count: int) -> None:
    x = np.random.default_rng(n).normal(size=(count, n, n)).astype(np.float32)
    (found,) = answers(make_worker(one_layer("Det", [x], dynamic=(0,)), channel), x)
    expected = np.linalg.det(x.astype(np.float64))
    assert disagreement(found, expected) < (1e-5 if channel == "cpu" else 1e-4)


def test_errors_name_the_layer() -> None:
    for shape in ((3,), (2, 3)):
        with pytest.raises(ShapeError, match="layer 'it' \\(Det\\): takes square matrices"):
            run("Det", [np.zeros(shape, np.float32)])
