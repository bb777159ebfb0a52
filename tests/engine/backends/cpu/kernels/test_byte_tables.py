"""Bytes looked up in tables, against NumPy's indexing."""

from __future__ import annotations

import numpy as np
import pytest
from llvmlite import binding as llvm

from engine.backends.cpu.backend import CPUBackend
from engine.backends.cpu.kernels import byte_tables
from engine.kernels.expr import FLAT, cast, lit
from engine.kernels.hint import Hint
from engine.kernels.value import Value
from tests.engine.backends.cpu.hinted import Case, run_tuned, tuned_plan

NEEDED = {1: None, 32: "avx2", 64: "avx512bw"}


def look_up_case(size: int, storage: str) -> Case:
    case = Case(4)
    dtype = np.dtype(storage)
    for name, count in (("x", size), ("table", 256)):
        case.arrays[name] = case.rng.integers(0, 256, count, np.uint8).view(dtype)
    case.arrays["x"][: min(size, 256)] = np.arange(min(size, 256), dtype=np.uint8).view(dtype)
    x, table = (Value(name, case.arrays[name].shape, dtype) for name in ("x", "table"))
    body = table.at(cast(x.at(FLAT) & lit(255, "int32"), "index"))
    return case.finish((size,), body, Hint("byte_lookup", (x, table), {}), None, dtype)


@pytest.mark.parametrize("storage", ["uint8", "int8"])
@pytest.mark.parametrize("lanes", NEEDED)
def test_entries(backend: CPUBackend, monkeypatch: pytest.MonkeyPatch, lanes: int, storage: str) -> None:
    if (feature := NEEDED[lanes]) and not llvm.get_host_cpu_features().get(feature):
        pytest.skip(f"the processor has no {feature}")
    monkeypatch.setattr(byte_tables, "_lanes", lambda: lanes)
    for size in (1, 31, 64, 100, 256, 1000):
        case = look_up_case(size, storage)
        expected = case.arrays["table"][case.arrays["x"].view(np.uint8)]
        np.testing.assert_array_equal(run_tuned(backend, case), expected)


def test_many_bytes_are_cut_for_all_threads(backend: CPUBackend) -> None:
    case = look_up_case(1_000_000, "uint8")
    assert tuned_plan(backend, case).steps[0].space[0] >= backend.jobs.thread_count
    np.testing.assert_array_equal(run_tuned(backend, case), case.arrays["table"][case.arrays["x"]])
