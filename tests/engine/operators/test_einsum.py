"""Einsum against NumPy's: terms, broadcasting, diagonals, many operands, on every backend."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.base.errors import ShapeError
from engine.compiler.trace import Tracer
from tests.engine.conftest import MakeWorker, answers
from tests.engine.operators.single import one_layer, run, structures
from tests.onnx_cases import disagreement

CASES: list[tuple[str, tuple[tuple[int, ...], ...]]] = [
    ("ij,jk", ((2, 3), (3, 4))),
    ("ij,jk->ki", ((2, 3), (3, 4))),
    ("bij,bjk->bik", ((2, 3, 4), (2, 4, 5))),
    ("bqhd,bkhd->bhqk", ((2, 3, 4, 5), (2, 6, 4, 5))),
    ("ii", ((3, 3),)),
    ("ii->i", ((3, 3),)),
    ("iij,jk->ik", ((3, 3, 2), (2, 4))),
    ("ij->ji", ((2, 3),)),
    ("ijk->", ((2, 3, 4),)),
    ("ijk->ki", ((2, 3, 4),)),
    ("i...->...", ((2, 3),)),
    ("...ij,...jk->...ik", ((2, 1, 3, 4), (5, 4, 2))),
    ("...,...", ((2, 3), (3,))),
    ("i,j", ((3,), (4,))),
    ("ij,ij->ij", ((3, 4), (3, 4))),
    ("ij,ij", ((3, 4), (3, 4))),
    ("ij,->ij", ((2, 3), ())),
    ("Ab,bA", ((2, 3), (3, 2))),
    ("ba", ((2, 3),)),
    ("ij,jk", ((2, 1), (3, 4))),
    ("ij,kj,lj->ikl", ((2, 3), (1, 3), (4, 1))),
    ("ij,jk,kl->il", ((2, 3), (3, 4), (4, 5))),
    ("a,b,c,d->dcba", ((2,), (3,), (4,), (2,))),
    ("abcd,cdab->ba", ((2, 3, 4, 5), (4, 5, 2, 3))),
    ("bqc,cdk->bkqd", ((2, 3, 4), (4, 5, 6))),
    ("ibjc,jcbk->bik", ((2, 3, 4, 5), (4, 5, 3, 2))),
    (" i j , j k -> i k ", ((2, 0), (0, 4))),
    ("ij,jk", ((0, 3), (3, 4))),
]


@pytest.mark.parametrize(("equation", "shapes"), CASES, ids=[f"{e} {s}" for e, s in CASES])
def test_equations(equation: str, shapes: tuple[tuple[int, ...], ...], rng: np.random.Generator) -> None:
    arrays = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    expected = np.asarray(np.einsum(equation, *arrays))
    assert disagreement(run("Einsum", arrays, {"equation": equation})[0], expected) < 1e-6


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "float64"])
def test_element_types(dtype: str, rng: np.random.Generator) -> None:
    a, b = rng.integers(0, 100, (3, 4)).astype(dtype), rng.integers(0, 100, (4, 5)).astype(dtype)
    (found,) = run("Einsum", [a, b], {"equation": "ij,jk->ki"})
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, np.einsum("ij,jk->ki", a, b))


def test_a_product_is_one_tuned_step_where_no_tensor_must_be_rearranged() -> None:
    for equation, shapes, steps in (
        ("ij,jk->ki", ((2, 3), (3, 4)), 1),
        ("ij,kj->ik", ((2, 3), (4, 3)), 1),
        ("bqhd,bkhd->bhqk", ((2, 3, 4, 5), (2, 6, 4, 5)), 3),
        ("bhqd,bhkd->bhqk", ((2, 4, 3, 5), (2, 4, 6, 5)), 1),
        ("bqc,cdk->bqdk", ((2, 3, 4), (4, 5, 6)), 1),
    ):
        model = one_layer("Einsum", [np.zeros(s, np.float32) for s in shapes], {"equation": equation})
        computes = Tracer(model).trace({f"x{i}": s for i, s in enumerate(shapes)}).computes
        assert [c.hint.kind for c in computes if c.hint] == ["matmul"], equation
        assert len(computes) == steps, equation


def test_a_new_size_needs_no_new_kernel() -> None:
    arrays = [np.zeros((4, 3, 5), np.float32), np.zeros((4, 5, 7), np.float32)]
    model = one_layer("Einsum", arrays, {"equation": "bij,bjk->ikb"}, dynamic=(0, 1))
    small = structures(model, {"x0": (1, 1, 2), "x1": (1, 2, 1)})
    assert structures(model, {"x0": (4, 3, 5), "x1": (4, 5, 7)}) == small


def test_known_weights_are_rearranged_ahead_of_time(rng: np.random.Generator) -> None:
    x, w = rng.normal(size=(2, 3, 4)).astype(np.float32), rng.normal(size=(5, 3, 6, 4)).astype(np.float32)
    model = one_layer("Einsum", [x, w], {"equation": "bhd,ehfd->bef"}, known=(1,))
    computes = Tracer(model).trace({"x0": x.shape}).computes
    assert len(computes) == 1


SIZES = st.sampled_from((0, 1, 2, 5, 9))


@pytest.mark.spread
@settings(max_examples=8)
@given(data=st.data())
def test_every_backend_agrees_with_numpy(channel: str, make_worker: MakeWorker, data: st.DataObject) -> None:
    equation = data.draw(st.sampled_from(("bij,bjk->bki", "iij,jk->ik", "ij,j,jk->k", "ij,ij->ji")))
    sizes = {label: data.draw(SIZES) for label in "bijk"}
    shapes = [tuple(sizes[label] for label in term) for term in equation.split("->")[0].split(",")]
    rng = np.random.default_rng(len(equation))
    arrays = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    model = one_layer("Einsum", arrays, {"equation": equation}, dynamic=range(len(arrays)))
    (found,) = answers(make_worker(model, channel), {f"x{i}": a for i, a in enumerate(arrays)})
    assert disagreement(found, np.asarray(np.einsum(equation, *arrays))) < (
        1e-5 if channel == "cpu" else 1e-4
    )


def test_errors_name_the_layer() -> None:
    x = np.zeros((2, 3), np.float32)
    for equation, count, message in (
        ("ij,jk", 1, "names 2 operands; the layer has 1"),
        ("ijk", 1, "does not name the axes of a tensor of rank 2"),
        ("i", 1, "does not name the axes"),
        ("ii", 1, "'i' have different sizes"),
        ("ij,jk", 2, "'j' have different sizes in \\[2, 3\\], \\[2, 3\\]"),
        ("i1", 1, "may have letters"),
        ("ij->ijk", 1, "each axis of the operands once"),
        ("ij->ii", 1, "each axis of the operands once"),
        ("...j->j", 1, "loses the axes under the ellipsis"),
    ):
        with pytest.raises(ShapeError, match=f"layer 'it' \\(Einsum\\): .*{message}"):
            run("Einsum", [x] * count, {"equation": equation})
