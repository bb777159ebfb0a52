"""Products in bfloat16 against float64 products of operands that NumPy has rounded."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from engine.backends.cpu.backend import CPUBackend
from engine.backends.cpu.kernels.matmul import low_precision_matmul
from engine.backends.cpu.kernels.matmul.low_precision import (
    BAND_BYTES,
    SLACK_BYTES,
    SUMS,
    pack_columns,
    row_pitch,
)
from engine.backends.cpu.kernels.matmul.low_precision_matmul import cut_packed
from engine.backends.cpu.kernels.matmul.precision import Arithmetic, Unit, matrix_units
from engine.device.jobs.system import JobSystem
from tests.engine.backends.cpu.hinted import Case, check, matmul_case, run_tuned, tuned_plan

# One row, a few, whole blocks, one more; columns that fill half a panel, and more than a task holds.
SIZES = [(1, 64, 33), (2, 33, 16), (16, 32, 64), (17, 16, 31), (33, 49, 600), (100, 300, 200), (1, 700, 1100)]
SIZES += [(70, 40, 5000), (3, 1060, 9000), (49, 2048, 96)]


@pytest.fixture(params=["amx", "avx512"])
def bf16(request: pytest.FixtureRequest, jobs: JobSystem, monkeypatch: pytest.MonkeyPatch) -> CPUBackend:
    """A backend for each unit that computes in bfloat16, whatever the size of a product."""
    unit: Unit = request.param
    if unit not in matrix_units("bf16"):
        pytest.skip(f"this processor computes no bfloat16 by {unit}")
    monkeypatch.setattr(low_precision_matmul, "_LEAST_FLOPS", 0.0)
    backend = CPUBackend(jobs, precision="bf16")
    backend.arithmetics = (Arithmetic("bf16", unit),)
    return backend


def rounded(case: Case, *names: str) -> Case:
    """The case with some operands rounded to bfloat16, as its kernels round them."""
    for name in names:
        case.arrays[name] = case.arrays[name].astype(ml_dtypes.bfloat16).astype(np.float32)
    return case


def check_reduced(backend: CPUBackend, case: Case, *names: str) -> None:
    """The tuned kernel rounds; what it is compared with is rounded before."""
    (step,) = tuned_plan(backend, case).steps
    assert getattr(step.kernel, "name", "").endswith("_bf16")
    got = run_tuned(backend, case)
    expected = rounded(case, *names).expected()
    scale = max(1.0, float(np.abs(expected).max()))
    assert np.abs(got.astype(np.float64) - expected).max() <= 2e-5 * scale


@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_sizes(bf16: CPUBackend, m: int, n: int, k: int) -> None:
    check_reduced(bf16, matmul_case(m + n, 1, m, n, k, known=True), "a", "b")


@pytest.mark.parametrize("trans_a", [True, False])
@pytest.mark.parametrize("trans_b", [True, False])
def test_layouts_and_batches(bf16: CPUBackend, trans_a: bool, trans_b: bool) -> None:
    case = matmul_case(8, 3, 19, 35, 70, known=True, trans_a=trans_a, trans_b=trans_b)
    check_reduced(bf16, case, "a", "b")
    check_reduced(bf16, matmul_case(9, 4, 10, 20, 40, known=True, b_shared=True), "a", "b")
    check_reduced(bf16, matmul_case(9, 4, 10, 20, 40, known=True, a_shared=True), "a", "b")


@pytest.mark.parametrize("epilogue", ["column bias", "residual"])
def test_epilogues(bf16: CPUBackend, epilogue: str) -> None:
    check_reduced(bf16, matmul_case(10, 2, 40, 300, 50, known=True, epilogue=epilogue), "a", "b")


def test_what_is_not_finite_stays_in_its_row(bf16: CPUBackend) -> None:
    case = matmul_case(11, 1, 20, 32, 40, known=True)
    case.arrays["a"][0, 3, 39] = np.inf
    case.arrays["a"][0, 5, 0] = np.nan
    got = run_tuned(bf16, case).reshape(20, 32)
    assert np.isinf(got[3]).all()
    assert np.isnan(got[5]).all()
    assert np.isfinite(np.delete(got, [3, 5], axis=0)).all()


def test_transposed_rows_round_as_others_do(bf16: CPUBackend) -> None:
    """Elements that do not lie side by side are rounded by arithmetic on their bits."""
    case = matmul_case(12, 1, 16, 16, 32, known=True, trans_a=True)
    bits = np.random.default_rng(13).integers(0, 1 << 32, 16 * 32, np.uint32)
    case.arrays["a"] = bits.view(np.float32).reshape(1, 32, 16)
    case.arrays["b"] = np.zeros((1, 32, 16), np.float32)
    case.arrays["b"][0, :16] = np.eye(16)
    assert case.compute is not None
    assert case.compute.hint is not None
    known = case.compute.hint.operands[1].known
    assert known is not None
    known[:] = case.arrays["b"]
    with np.errstate(invalid="ignore"):
        left = case.arrays["a"].astype(ml_dtypes.bfloat16).astype(np.float32)[0]
    got = run_tuned(bf16, case).reshape(16, 16)
    finite = np.isfinite(left).all(axis=0)
    tiny = np.abs(left[:16].T) < 2.0**-126  # these instructions take denormals for zeros
    np.testing.assert_array_equal(got[finite], np.where(tiny, 0, left[:16].T)[finite])
    assert not np.isfinite(got[~finite]).any()


def test_small_products_stay_float32(jobs: JobSystem) -> None:
    if not matrix_units("bf16"):
        pytest.skip("this processor computes no bfloat16")
    backend = CPUBackend(jobs, precision="bf16")
    check(backend, matmul_case(14, 1, 1, 128, 128, known=True))
    check(backend, matmul_case(15, 1, 64, 64, 256, known=False))


def test_weights_take_half_the_memory() -> None:
    assert pack_columns(np.zeros((1, 64, 96), np.float32), 2, Arithmetic("bf16", "amx")).nbytes == 64 * 96 * 2


def test_cuts_fit_the_memory_of_a_task() -> None:
    rng = np.random.default_rng(16)
    for _ in range(300):
        m, n, groups = (int(2 ** rng.uniform(0, high)) for high in (12, 13, 10))
        partition = cut_packed(m, n, groups, 1, 2, 1e6)
        rows, columns = partition.rows.size, partition.columns.size
        whole = -(-min(m, rows) // 16) * 16
        held = min(groups, partition.groups_at_once)
        assert whole * row_pitch(held) <= BAND_BYTES + SLACK_BYTES
        assert partition.rows_at_once % 32 == 0
        assert partition.rows_at_once * partition.columns_at_once <= SUMS
        assert columns % 32 == partition.columns_at_once % 32 == 0
        assert partition.columns_at_once <= min(256, columns)
        if partition.groups_at_once < groups:
            # Sums wait for the next groups: all of a task's have to be held.
            assert min(m, rows) <= partition.rows_at_once
            assert columns == partition.columns_at_once
