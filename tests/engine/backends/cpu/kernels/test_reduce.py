"""Reductions against NumPy in float64: columns and runs, cut into parts, of what elements become first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.backends.cpu.backend import CPUBackend
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.kernels.expr import FLAT, Expr, acc, arg, cast, index, reduce, unary
from engine.kernels.hint import Hint
from engine.kernels.value import Value
from tests.engine.backends.cpu.hinted import Case, check, run_tuned, tuned_plan
from tests.engine.backends.steps import F32

FUNCTIONS: dict[str, Any] = {"sum": np.sum, "mean": np.mean, "prod": np.prod, "max": np.max, "min": np.min}


def reduce_case(
    sizes: tuple[int, int, int], kind: str = "sum", term: str = "element", *, runs: bool = False,
    static: bool = True, space: tuple[int, ...] | None = None,
) -> Case:  # fmt: skip
    """`runs`: an operand without the third axis. `space` is that of the results, if not (outer, inner)."""
    outer, extent, inner = sizes
    case = Case(extent)
    x = case.value("x", (outer, extent) if runs else sizes)
    if kind == "prod":
        case.arrays["x"][...] = 1 + case.arrays["x"] * 0.01
    x.signature = tuple((n, n if static else n + 1) for n in x.shape)
    space = space or ((outer,) if runs else (outer, inner))
    result: Expr = index(0)
    for axis in range(1, len(space)):
        result = result * arg(space[axis]) + index(axis)
    o, i = result // arg(inner), result % arg(inner)
    operands = [x]
    if term == "deviation":
        operands.append(case.value("center", (outer, inner)))

    def element(r: Expr) -> Expr:
        e = x.at((o * arg(extent) + r) * arg(inner) + i)
        if term == "deviation":
            e = e - operands[1].at(result)
        return {"element": e, "magnitude": unary("abs", e)}.get(term, e * e)

    body = reduce("sum" if kind == "mean" else kind, extent, element)
    body = body / arg(extent, "float32") if kind == "mean" else body
    attributes = {"kind": kind, "term": term, "outer": outer, "extent": extent, "inner": inner}
    return case.finish(space, body, Hint("reduce", tuple(operands), attributes), None)


def exact(case: Case) -> np.ndarray:
    """What NumPy makes of it in float64."""
    assert case.compute is not None
    assert case.compute.hint is not None
    attributes = case.compute.hint.attributes
    x = (
        case.arrays["x"]
        .astype(np.float64)
        .reshape(attributes["outer"], attributes["extent"], attributes["inner"])
    )
    if attributes["term"] == "deviation":
        x = x - case.arrays["center"].astype(np.float64)[:, None]
    x = {"element": x, "magnitude": np.abs(x)}.get(attributes["term"], x * x)
    return np.asarray(FUNCTIONS[attributes["kind"]](x, axis=1)).reshape(-1)


COLUMNS = [(1, 49, 960), (2, 100, 33), (1, 20000, 32), (3, 9, 1), (2, 65, 70), (1, 1, 600), (1, 5000, 3)]
RUNS = [(5, 49, 1), (300, 33, 1), (1, 100_000, 1), (2, 16, 1), (3, 9, 1), (700, 129, 1), (4, 5000, 1)]


@pytest.mark.parametrize("sizes", COLUMNS)
@pytest.mark.parametrize("static", [True, False])
def test_columns(backend: CPUBackend, sizes: tuple[int, int, int], static: bool) -> None:
    case = reduce_case(sizes, static=static)
    np.testing.assert_allclose(run_tuned(backend, case), exact(case), rtol=0, atol=1e-6 * sizes[1] ** 0.5)


@pytest.mark.parametrize("sizes", RUNS)
@pytest.mark.parametrize("static", [True, False])
def test_runs(backend: CPUBackend, sizes: tuple[int, int, int], static: bool) -> None:
    case = reduce_case(sizes, runs=True, static=static)
    np.testing.assert_allclose(run_tuned(backend, case), exact(case), rtol=0, atol=1e-6 * sizes[1] ** 0.5)


def test_short_runs_are_the_generic_kernels(backend: CPUBackend) -> None:
    """But not those of an extent that differs between samples."""
    case = reduce_case((300, 8, 1), runs=True, static=False)
    np.testing.assert_allclose(run_tuned(backend, case), exact(case), rtol=0, atol=1e-5)
    with pytest.raises(AssertionError, match="no rule took the step"):
        tuned_plan(backend, reduce_case((300, 8, 1), runs=True, static=True))


@pytest.mark.spread("runs")
@pytest.mark.parametrize("runs", [False, True])
@pytest.mark.parametrize(
    ("kind", "term"),
    [("mean", "element"), ("prod", "element"), ("max", "element"), ("min", "magnitude"), ("sum", "magnitude"),
     ("sum", "square"), ("mean", "deviation"), ("max", "square")],
)  # fmt: skip
def test_kinds_and_terms(backend: CPUBackend, kind: str, term: str, runs: bool) -> None:
    case = reduce_case((2, 8500, 1) if runs else (2, 1000, 37), kind, term, runs=runs, static=False)
    np.testing.assert_allclose(run_tuned(backend, case), exact(case), rtol=3e-6, atol=1e-6)


def test_many_large_numbers_keep_their_sum(backend: CPUBackend) -> None:
    """A float32 that all of them join one by one would be off by far more."""
    for runs in (False, True):
        case = reduce_case((1, 2_000_000, 1), "mean", runs=runs)
        case.arrays["x"][...] = 1000.1 + case.arrays["x"]
        np.testing.assert_allclose(run_tuned(backend, case), exact(case), rtol=1.2e-7)


@pytest.mark.parametrize("runs", [False, True])
@pytest.mark.parametrize("kind", ["max", "min", "sum"])
def test_nan_is_kept(backend: CPUBackend, kind: str, runs: bool) -> None:
    case = reduce_case((1, 300, 1) if runs else (1, 300, 20), kind, runs=runs)
    for place in (0, 150, 299):
        case.arrays["x"][...] = 1.0
        case.arrays["x"].reshape(300, -1)[place, 0] = np.nan
        got = run_tuned(backend, case)
        assert np.isnan(got[0])
        assert not np.isnan(got[1:]).any()


@pytest.mark.parametrize("space", [(2, 3, 40), (6, 40), (1, 2, 3, 1, 40)])
def test_an_epilogue_knows_its_column(backend: CPUBackend, space: tuple[int, ...]) -> None:
    case = reduce_case((6, 30, 40), "mean", space=space)
    bias, other = case.value("bias", (40,)), case.value("other", space)
    first = case.value("first", (space[0],))
    assert case.compute is not None
    case.compute.epilogue = unary("tanh", acc("float32") + bias[index(len(space) - 1)]) * first[index(0)]
    case.compute.epilogue = case.compute.epilogue + other.at(FLAT)
    check(backend, case, 1e-6)


@pytest.mark.parametrize("space", [(600,), (6, 100)])
def test_an_epilogue_knows_its_run(backend: CPUBackend, space: tuple[int, ...]) -> None:
    case = reduce_case((600, 30, 1), "mean", runs=True, space=space)
    bias, other = case.value("bias", space[-1:]), case.value("other", space)
    assert case.compute is not None
    case.compute.epilogue = unary("tanh", acc("float32") + bias[index(len(space) - 1)]) + other.at(FLAT)
    check(backend, case, 1e-6)


def test_kernels_depend_on_no_size_that_may_change(backend: CPUBackend) -> None:
    def keys(sizes: tuple[int, int, int]) -> list[str]:
        return [step.kernel.key for step in tuned_plan(backend, reduce_case(sizes, static=False)).steps]

    assert keys((1, 2, 3)) == keys((4, 100_000, 70)) == keys((1, 500_000, 1))


def integer_case(dtype: str, kind: str, sizes: tuple[int, int, int], space: tuple[int, ...]) -> Case:
    """Columns of integers, which wrap."""
    _, extent, inner = sizes
    case = reduce_case(sizes, kind, space=space)
    case.arrays["x"] = np.random.default_rng(extent).integers(
        np.iinfo(dtype).min, np.iinfo(dtype).max, sizes, dtype, endpoint=True
    )
    x = Value("x", sizes, np.dtype(dtype))
    x.signature = tuple((n, n + 1) for n in sizes)
    result: Expr = index(0)
    for axis in range(1, len(space)):
        result = result * arg(space[axis]) + index(axis)
    o, i = result // arg(inner), result % arg(inner)
    body = reduce(kind, extent, lambda r: x.at((o * arg(extent) + r) * arg(inner) + i))
    assert case.compute is not None
    assert case.compute.hint is not None
    return case.finish(space, body, Hint("reduce", (x,), case.compute.hint.attributes), None, x.dtype)


@pytest.mark.spread("dtype")
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64"])
@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize(
    ("sizes", "space"), [((1, 40, 1030), (1, 1030)), ((6, 9, 70), (2, 3, 70)), ((2, 1, 5), (2, 5))]
)
def test_columns_of_integers(
    backend: CPUBackend, dtype: str, kind: str, sizes: tuple[int, int, int], space: tuple[int, ...]
) -> None:
    case = integer_case(dtype, kind, sizes, space)
    (step,) = tuned_plan(backend, case).steps
    assert isinstance(step.kernel, NativeKernel)
    assert step.kernel.name == f"reduce_{kind}_{dtype}"
    with np.errstate(over="ignore"):
        expected = FUNCTIONS[kind](
            case.arrays["x"], axis=1, **({} if kind in ("max", "min") else {"dtype": dtype})
        )
    np.testing.assert_array_equal(run_tuned(backend, case), expected.reshape(-1))


def test_integers_and_what_follows(backend: CPUBackend) -> None:
    case = integer_case("int32", "sum", (3, 20, 50), (3, 50))
    other = case.value("other", (3, 50))
    assert case.compute is not None
    case.compute.output = Value("y", (3, 50), F32)
    case.compute.epilogue = cast(acc("int32"), "float32") * arg(0.5, "float32") + other.at(FLAT)
    check(backend, case)
