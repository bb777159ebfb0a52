"""Tensors joined side by side, against the formula that chooses for every element."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from engine.backends.cpu.backend import CPUBackend
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.base.dtypes import as_dtype
from engine.kernels.expr import FLAT, Expr, acc, arg, cast, index, lit, maximum
from engine.kernels.hint import Hint
from engine.kernels.value import Value
from tests.engine.backends.cpu.hinted import Case, check, tuned_plan


def concat_case(
    height: int, widths: Sequence[int], storage: str = "float32", epilogue: bool = False, static: bool = False
) -> Case:
    case = Case(3)
    dtype = as_dtype(storage)
    parts = []
    for k, width in enumerate(widths):
        case.arrays[f"part{k}"] = (case.rng.standard_normal((height, width)) * 50).astype(dtype)
        parts.append(Value(f"part{k}", (height, width), dtype))
        if static:
            parts[-1].signature = ((height, height + 1), (width, width))
    found: Expr = lit(0, parts[0].arithmetic)
    start = 0
    for part, width in zip(parts, widths, strict=True):
        own = index(1) - arg(start)
        found = part.load_where((own >= lit(0)) & (own < arg(width)), (index(0), own), found)
        start += width
    case.finish((height, sum(widths)), found, Hint("concat", tuple(parts), {}), None, dtype)
    assert case.compute is not None
    if epilogue:
        scale = case.value("scale", (sum(widths),))
        other = case.value("other", (height, sum(widths)))
        case.compute.epilogue = maximum(acc("float32") * scale[index(1)], 0.0) + other.at(FLAT)
    return case


@pytest.mark.parametrize("widths", [(5,), (7, 9), (1, 2000, 3), (300, 1, 300, 40)])
@pytest.mark.parametrize("height", [1, 6])
def test_widths(backend: CPUBackend, height: int, widths: tuple[int, ...]) -> None:
    check(backend, concat_case(height, widths))
    check(backend, concat_case(height, widths, epilogue=True))


@pytest.mark.parametrize("storage", ["int64", "uint8", "bool", "float16", "float64"])
def test_types(backend: CPUBackend, storage: str) -> None:
    check(backend, concat_case(3, (4, 40), storage))


@pytest.mark.parametrize("storage", ["float32", "int64", "uint8", "bool", "float16", "float64"])
def test_columns_are_interleaved(backend: CPUBackend, storage: str) -> None:
    """As stacked tensors are along a new last axis; an epilogue computes with them as they are copied."""
    for parts in (2, 3, 5):
        case = concat_case(1001, (1,) * parts, storage, static=True)
        (step,) = tuned_plan(backend, case).steps
        assert isinstance(step.kernel, NativeKernel)
        assert step.kernel.name == f"interleave_{parts}"
        check(backend, case)
    check(backend, concat_case(70_000, (1, 1), static=True))
    check(backend, concat_case(6, (1, 1, 1), epilogue=True, static=True))


def test_a_long_row_is_cut_for_all_threads(backend: CPUBackend) -> None:
    case = concat_case(1, (200_000, 100_000))
    assert tuned_plan(backend, case).steps[0].space[0] >= backend.jobs.thread_count
    check(backend, case)


def test_an_epilogue_may_change_the_type(backend: CPUBackend) -> None:
    case = concat_case(2, (30, 11))
    assert case.compute is not None
    case.compute.output = Value("y", case.compute.space, np.dtype(np.int8))
    case.compute.epilogue = cast(acc("float32"), "int32")
    check(backend, case)
