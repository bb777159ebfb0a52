"""Rows of elements that are copied, or that are padded: bounds along a row divide it into sections."""

from __future__ import annotations

import numpy as np
import pytest

from engine.backends.cpu.codegen.printer import NumbaPrinter
from engine.kernels.evaluate import evaluate
from engine.kernels.expr import Expr, arg, cast, index, lit, load, select
from engine.kernels.kernel import Kernel, kernel_call
from engine.kernels.value import Value
from tests.engine.kernels.runners import run_on_cpu

PADS = [(1, 2), (0, 3), (-2, -1), (40, 2), (3, -40)]


def padded(source: Value, before: int, fill: float) -> Expr:
    """Elements of a tensor of one row for each other axis, `before` elements later in their rows."""
    last = source.rank - 1
    at = index(last) - arg(before)
    inside = (at >= lit(0)) & (at < arg(source.shape[last]))
    position = at
    if last:
        # The rows begin one later, too.
        row = index(0) - arg(1)
        inside = inside & (row >= lit(0)) & (row < arg(source.shape[0]))
        position = at + row * arg(source.shape[1])
    return load(source, position, inside, lit(fill, source.arithmetic))


def check(body: Expr, space: tuple[int, ...], dtype: np.dtype) -> Kernel:
    """Compare a formula's kernel with NumPy."""
    kernel, values, inputs = kernel_call(body, len(space), dtype)
    arrays = [(np.arange(v.size) % 250 + 1).astype(v.dtype).reshape(v.shape) for v in inputs]
    found = run_on_cpu(kernel, space, values, [a.reshape(-1) for a in arrays])
    np.testing.assert_array_equal(found, evaluate(kernel, space, values, arrays).reshape(-1))
    return kernel


def text_of(kernel: Kernel) -> str:
    text = NumbaPrinter(kernel).source().source
    return text[text.index("def kernel(") :]


@pytest.mark.parametrize("dtype", ["float32", "uint8", "float16"])
@pytest.mark.parametrize("shape", [(37,), (5, 37)])
def test_padded_rows_are_copied(shape: tuple[int, ...], dtype: str) -> None:
    for before, after in PADS:
        body = padded(Value("x", shape, np.dtype(dtype)), before, 3)
        space = (*(n + 3 for n in shape[:-1]), max(0, shape[-1] + before + after))
        kernel = check(body, space, np.dtype(dtype))
        assert "copy_bytes(" in text_of(kernel)


def test_what_follows_is_computed_in_each_section() -> None:
    x, y = Value("x", (5, 37), np.dtype(np.float32)), Value("y", (8, 40), np.dtype(np.float32))
    inside = padded(x, 2, -1.0)
    kernel = check(-inside * y[index(0), index(1)], (8, 40), np.dtype(np.float32))
    assert "low, high =" in text_of(kernel)


def test_choices_by_several_bounds_stay() -> None:
    x = Value("x", (5, 37), np.dtype(np.float32))
    kernel = check(padded(x, 2, 0.0) + padded(x, 3, 0.0), (8, 42), np.dtype(np.float32))
    assert "low, high =" not in text_of(kernel)


def test_no_row_is_read_that_is_not_there() -> None:
    """A table of rows has an entry only for those inside: it may not be read before the row is tested."""
    rows = Value("rows", (5,), np.dtype(np.int64))
    x = Value("x", (5, 37), np.dtype(np.float32))
    row = index(0) - arg(1)
    inside = (row >= lit(0)) & (row < arg(5)) & (index(1) >= arg(2))
    of_row = rows.at(select(inside, row, lit(0)))
    value = x.at(select(inside, index(1), lit(0))) + cast(of_row, "float32")
    body = select(inside, value, lit(0.0, "float32"))
    kernel = check(body, (9, 37), np.dtype(np.float32))
    assert "low, high =" not in text_of(kernel)


def test_copied_rows_of_many_axes() -> None:
    """Indices are counted on from row to row, not divided anew."""
    x = Value("x", (3, 4, 5, 7), np.dtype(np.int64))
    body = x[index(2), index(1), index(0), index(3)]
    kernel = check(body, (5, 4, 3, 7), np.dtype(np.int64))
    assert text_of(kernel).index("op_rem(") < text_of(kernel).index("for block in")
    assert "copy_bytes(" in text_of(kernel)
