"""Tuned matrix products against the generic formula, over sizes at and off the tiles' edges."""

from __future__ import annotations

import numpy as np
import pytest

from engine.backends.cpu.backend import CPUBackend
from engine.backends.cpu.codegen.tiles import AVX2, AVX512, NEON, PORTABLE, Tile
from engine.backends.cpu.kernels.convolution import nchw_staging
from engine.backends.cpu.kernels.matmul import matmul, packed_elements
from tests.engine.backends.cpu.hinted import check, conv_case, matmul_case, tuned_plan

SIZES = [(1, 1, 1), (1, 128, 128), (2, 17, 5), (3, 16, 33), (4, 15, 1), (5, 40, 321), (6, 16, 8), (7, 31, 64)]
SIZES += [(37, 53, 700), (64, 1, 40), (100, 130, 33), (1, 1000, 70)]


@pytest.mark.parametrize(("m", "n", "k"), SIZES)
@pytest.mark.parametrize("known", [True, False])
def test_sizes(backend: CPUBackend, m: int, n: int, k: int, known: bool) -> None:
    check(backend, matmul_case(m * n + k, 1, m, n, k, known=known))


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("trans_a", [True, False])
@pytest.mark.parametrize("trans_b", [True, False])
def test_layouts(backend: CPUBackend, known: bool, trans_a: bool, trans_b: bool) -> None:
    check(backend, matmul_case(7, 1, 22, 35, 19, known=known, trans_a=trans_a, trans_b=trans_b))
    check(backend, matmul_case(8, 3, 9, 18, 24, known=known, trans_a=trans_a, trans_b=trans_b))


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(("a_shared", "b_shared"), [(True, False), (False, True)])
def test_a_batch_shares_a_side(backend: CPUBackend, known: bool, a_shared: bool, b_shared: bool) -> None:
    check(backend, matmul_case(9, 4, 10, 20, 12, known=known, a_shared=a_shared, b_shared=b_shared))


@pytest.mark.parametrize("epilogue", ["column bias", "bias", "residual", "position"])
def test_epilogues(backend: CPUBackend, epilogue: str) -> None:
    check(backend, matmul_case(10, 2, 13, 35, 50, known=True, epilogue=epilogue))


def test_random_sizes(backend: CPUBackend) -> None:
    rng = np.random.default_rng(11)
    for seed in range(12):
        batch, m, n, k = (int(rng.integers(1, high)) for high in (4, 60, 90, 500))
        known, trans_b = bool(rng.integers(2)), bool(rng.integers(2))
        check(
            backend, matmul_case(seed, batch, m, n, k, known=known, trans_b=trans_b, epilogue="column bias")
        )


def test_large_products_are_cut_for_all_threads(backend: CPUBackend) -> None:
    case = matmul_case(12, 1, 256, 256, 300, known=True)
    (step,) = tuned_plan(backend, case).steps
    assert step.space[0] >= 2 * backend.jobs.thread_count
    check(backend, case)


def test_sizes_do_not_change_the_kernel(backend: CPUBackend) -> None:
    for known in (True, False):
        keys = set()
        for m, n, k in ((7, 28, 8), (100, 200, 300)):
            plan = tuned_plan(backend, matmul_case(1, 1, m, n, k, known=known))
            keys |= {step.kernel.key for step in plan.steps}
        assert len(keys) == 1


@pytest.mark.parametrize("trans_b", [False, True])
def test_an_unknown_right_side_is_packed_by_each_task_or_once(backend: CPUBackend, trans_b: bool) -> None:
    deep = matmul.PANEL_BYTES // (4 * matmul.host_tile().width)
    for batch, m, k, shared, steps in (
        (1, 256, 9, False, 1), (2, 5, 40, False, 1), (1, 5, deep, False, 1),
        (1, 257, 9, False, 2), (2, 5, 40, True, 2), (1, 5, deep + 1, False, 2),
    ):  # fmt: skip
        case = matmul_case(21, batch, m, 70, k, known=False, trans_b=trans_b, b_shared=shared)
        assert len(tuned_plan(backend, case).steps) == steps
        check(backend, case)


@pytest.mark.parametrize(("batch", "trans_a"), [(1, False), (1, True), (2, False)])
def test_rows_that_evict_each_other_are_laid_further_apart(
    backend: CPUBackend, batch: int, trans_a: bool
) -> None:
    case = matmul_case(19, batch, 37, 260, 1024, known=True, trans_a=trans_a, b_shared=True)
    plan = tuned_plan(backend, case)
    first, second = plan.steps
    assert first.output in second.inputs
    assert plan.buffers[first.output].elements > batch * 37 * 1024
    check(backend, case)


def test_few_rows_and_few_columns_are_read_where_they_are(backend: CPUBackend) -> None:
    for m, n in ((8, 260), (37, 40)):
        assert len(tuned_plan(backend, matmul_case(20, 1, m, n, 1024, known=True)).steps) == 1


@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize("trans_b", [False, True])
def test_few_columns(backend: CPUBackend, n: int, trans_b: bool) -> None:
    for m in (1, 7, 64):
        check(backend, matmul_case(17, 1, m, n, 48, known=True, trans_b=trans_b, epilogue="column bias"))
    check(backend, matmul_case(18, 3, 5, n, 64, known=True, trans_b=trans_b))


@pytest.mark.parametrize(("m", "n"), [(1, 64), (3, 100), (4, 32)])
def test_few_rows_read_an_unknown_right_side_in_place(backend: CPUBackend, m: int, n: int) -> None:
    case = matmul_case(15, 2, m, n, 37, known=False, epilogue="column bias")
    assert len(tuned_plan(backend, case).steps) == 1
    check(backend, case)


@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_few_rows_read_unknown_rows_of_the_right_side_in_place(backend: CPUBackend, m: int) -> None:
    for n in (1, 3, 4, 47):
        case = matmul_case(16, 2, m, n, 64, known=False, trans_b=True, epilogue="column bias")
        assert len(tuned_plan(backend, case).steps) == 1
        check(backend, case)


@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_few_rows_read_large_known_rows_of_the_right_side_in_place(
    backend: CPUBackend, m: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matmul, "LEAST_IN_PLACE", 4 * 64 * 47)
    for n, is_in_place in ((46, False), (47, True), (64, True)):
        case = matmul_case(19, 2, m, n, 64, known=True, trans_b=True, epilogue="column bias")
        plan = tuned_plan(backend, case)
        hint = case.compute.hint  # type: ignore[union-attr]
        known = hint.operands[1].known  # type: ignore[union-attr]
        assert any(np.shares_memory(known, array) for array in plan.constants.values()) is is_in_place
        check(backend, case)


@pytest.mark.long
@pytest.mark.parametrize("tile", [AVX512, AVX2, NEON, PORTABLE], ids=["avx512", "avx2", "neon", "portable"])
def test_every_processors_tile_computes_the_same(
    backend: CPUBackend, tile: Tile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LLVM splits vectors that this processor lacks, so each tile can be run anywhere, if slowly."""
    for module in (matmul, nchw_staging, packed_elements):
        monkeypatch.setattr(module, "host_tile", lambda: tile)
    check(backend, matmul_case(16, 1, 33, 3, 21, known=True, epilogue="column bias"))
    check(backend, matmul_case(16, 1, 33, 3, 32, known=True, epilogue="column bias"))
    check(backend, matmul_case(13, 2, 29, 75, 340, known=True, epilogue="column bias"))
    check(backend, matmul_case(14, 1, 29, 75, 340, known=False, trans_b=True, epilogue="column bias"))
    for m in (5, 16):
        given = {"strides": (2, 1), "dilations": (1, 2), "pads": (1, 2), "ends": (0, 1), "group": 1}
        check(backend, conv_case(15, (1, 6, 13, 37), (m, 6, 3, 3), epilogue="bias", **given))  # type: ignore[arg-type]
