"""Panels hold what NumPy finds by index, whatever the order of the matrices."""

from __future__ import annotations

import numpy as np
import pytest

from engine.backends.cpu.kernels.matmul.packing import pack_panels, transpose_panels
from engine.base.memory import parallel
from engine.base.memory.aligned import is_readable_in_place


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(
    ("count", "k", "n", "width"), [(1, 5, 7, 4), (3, 2, 8, 4), (2, 1, 3, 16), (1, 6, 1, 1)]
)
def test_panels_hold_the_columns_of_a_tile_side_by_side(
    count: int, k: int, n: int, width: int, large: bool, turned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:
        monkeypatch.setattr(parallel, "LARGE", 1)
    matrices = np.random.default_rng(0).normal(size=(count, n, k) if turned else (count, k, n))
    matrices = matrices.astype(np.float32)
    if turned:
        matrices = matrices.swapaxes(1, 2)
    packed = pack_panels(matrices, width)
    panels = -(-n // width)
    expected = np.zeros((count, panels, k, width), np.float32)
    for batch, row, column in np.ndindex(count, k, n):
        expected[batch, column // width, row, column % width] = matrices[batch, row, column]
    np.testing.assert_array_equal(packed, expected.reshape(-1))
    packed.flags.writeable = False
    assert is_readable_in_place(packed)


@pytest.mark.parametrize("taps", [1, 9])
@pytest.mark.parametrize(("panels", "width", "channels"), [(2, 16, 32), (3, 14, 5), (1, 32, 7), (4, 3, 40)])
def test_rows_become_the_columns_of_panels(panels: int, width: int, channels: int, taps: int) -> None:
    rows = np.random.default_rng(1).normal(size=(panels * width, channels * taps)).astype(np.float32)
    target = np.full((panels, channels * taps, width), np.nan, np.float32)
    transpose_panels(target, rows, taps)
    expected = rows.reshape(panels, width, channels, taps).transpose(0, 3, 2, 1)
    np.testing.assert_array_equal(target, expected.reshape(target.shape))


def test_large_turned_matrices_are_packed_alike() -> None:
    matrices = np.random.default_rng(2).normal(size=(2, 75, 130)).astype(np.float32).swapaxes(1, 2)
    packed = pack_panels(matrices, 16).reshape(2, 5, 130, 16)
    expected = pack_panels(np.ascontiguousarray(matrices), 16).reshape(packed.shape)
    np.testing.assert_array_equal(packed, expected)
