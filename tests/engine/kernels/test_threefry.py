"""Threefry against the published answers, and the same bits on every printer."""

from __future__ import annotations

import numpy as np
import pytest

from engine.kernels.evaluate import evaluate
from engine.kernels.expr import eq, index, lit, select
from engine.kernels.kernel import kernel_call
from engine.kernels.threefry import fine_uniform, threefry, uniform
from engine.kernels.value import Value
from tests.engine.kernels.runners import RUNNERS

UINT32 = np.dtype(np.uint32)

KNOWN_ANSWERS = np.array(
    [
        [0, 0, 0, 0, 0x6B200159, 0x99BA4EFE],
        [0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0x1CB996FC, 0xBB002BE7],
        [0x13198A2E, 0x03707344, 0x243F6A88, 0x85A308D3, 0xC4923A9C, 0x483DF7A0],
    ],
    np.uint32,
)
"""Key, counter and result, from the test vectors of the authors' library (Random123, threefry2x32, 20)."""


@pytest.mark.parametrize("runner", RUNNERS)
def test_every_printer_gives_the_published_answers(runner: str) -> None:
    drawn = np.random.default_rng(3).integers(0, 2**32, (61, 4), dtype=np.uint32)
    given = np.concatenate([KNOWN_ANSWERS[:, :4], drawn])
    table = Value("given", given.shape, UINT32)
    row, part = index(0), index(1)
    words = [table[row, lit(i)] for i in range(4)]
    first, second = threefry((words[0], words[1]), (words[2], words[3]))
    kernel, values, _ = kernel_call(select(eq(part, lit(0)), first, second), 2, UINT32)
    found = RUNNERS[runner].run(kernel, (64, 2), values, [given]).reshape(64, 2)
    np.testing.assert_array_equal(found[:3], KNOWN_ANSWERS[:, 4:])
    np.testing.assert_array_equal(found, evaluate(kernel, (64, 2), values, [given]).reshape(64, 2))


def test_fractions_are_exact_and_below_one() -> None:
    words = np.array([0, 1, 0xFF, 0x100, 0x80000000, 0xFFFFFFFF], np.uint32)
    table = Value("words", words.shape, UINT32)
    word = table[index(0)]
    for formula, expected in (
        (uniform(word), (words >> 8) / 2**24),
        (uniform(word, 8), (words >> 24) / 2**8),
        (fine_uniform((word, word)), ((words >> 5) * 2.0**26 + (words >> 6)) / 2**53),
    ):
        kernel, values, _ = kernel_call(formula, 1, np.dtype(formula.dtype))
        found = evaluate(kernel, (6,), values, [words])
        np.testing.assert_array_equal(found, expected)
        assert found.max() < 1
