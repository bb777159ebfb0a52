"""The guards find what is written beside memory, and the CPU backend's kernels write nothing there."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from tests import guards
from tests.conftest import ROOT, options_of_child

LOW_PRECISION_TESTS = sorted(ROOT.glob("tests/engine/backends/cpu/kernels/*/test_low_precision_*.py"))
GUARDED_TESTS = (
    "tests/engine/operators/test_cases.py",
    "tests/engine/test_random_graphs.py",
    *(str(path.relative_to(ROOT)) for path in LOW_PRECISION_TESTS),
)
"""Layers of every kind, each compiled and run, networks of many, and kernels of bf16 and int8."""


@pytest.mark.parametrize("place", [-1, 12, 64])
def test_what_is_written_beside_an_allocation_is_found(place: int) -> None:
    guards.check()
    memory = guards._on_cache_line(np.zeros(12, np.uint8), 12)
    memory[:] = 1
    guards.check()
    around = memory.base
    assert isinstance(around, np.ndarray)
    around[guards.aligned.address_of(memory) - guards.aligned.address_of(around) + place] = 7
    with pytest.raises(AssertionError, match="a kernel wrote 1 bytes"):
        guards.check()


def test_temporaries_share_nothing_and_lie_between_guards() -> None:
    offsets, size = guards._place({"a": 100, "b": 4}, {"a": (0, 1), "b": (2, 3)}, 64)
    guards._places.pop()
    assert offsets["b"] - (offsets["a"] + 100) >= guards.aligned.SLACK
    assert size - (offsets["b"] + 4) >= guards.aligned.SLACK


@pytest.mark.long
def test_no_kernel_writes_beside_its_memory(request: pytest.FixtureRequest) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "long or not long", "-k", "cpu"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", *options_of_child(request.config), *GUARDED_TESTS],
        cwd=ROOT,
        env={**os.environ, "GAMEGLUE_GUARDS": "on", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
