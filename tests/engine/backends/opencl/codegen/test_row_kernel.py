"""Formulas by rows on processors, beside the generic kernels of the same formulas."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from engine.backends.opencl import OpenCLBackend
from engine.backends.opencl.codegen.row_kernel import VECTOR, row_step
from engine.backends.opencl.execution.dispatches import command_count
from engine.compiler.plan import Compute, Plan
from engine.device.cl.device import CLDevice
from engine.kernels.expr import FLAT, Expr, arg, cast, index, lit, load, reduce
from engine.kernels.value import Value
from tests.engine.backends.steps import result_of, value

pytestmark = pytest.mark.opencl

X = np.random.default_rng(5).standard_normal((5, 37, 70)).astype(np.float32)


@pytest.fixture
def processor(cl_device: CLDevice) -> Iterator[OpenCLBackend]:
    backend = OpenCLBackend(cl_device, form="cpu")
    yield backend
    backend.dispose()


def compute(shape: tuple[int, ...], body: Expr, static: bool = True) -> Compute:
    output = Value("y", shape, np.dtype(np.float32))
    extents = tuple((n,) if static else (n, n + 1) for n in shape)
    return Compute(output, shape, body, "layer", "Test", extents=extents)


def both(
    backend: OpenCLBackend, step: Compute, arrays: dict[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """The result by rows, and that of the generic kernel."""
    by_rows = backend.generic(step)
    assert not by_rows.is_generic
    steps = by_rows, step.as_step()
    first, second = (result_of(backend, Plan([s]), arrays, step.output) for s in steps)
    return first, second


def windows() -> Compute:
    """A loop whose length is an argument, with loads beyond the row left out."""

    def tap(r: Expr) -> Expr:
        at = index(2) + r - lit(2)
        inside = (at >= lit(0)) & (at < lit(70))
        return value("x", X).load_where(inside, (index(0), index(1), at))

    return compute(X.shape, reduce("sum", arg(5), tap) * arg(0.5, "float32"))


def by_position() -> Compute:
    """An axis beside the position among all elements."""
    body = load(value("x", X), FLAT) * cast(index(2) + FLAT % lit(3), "float32")
    return compute(X.shape, body)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "uint8"])
@pytest.mark.parametrize("formula", [windows, by_position])
def test_rows_are_as_the_generic_kernel_has_them(
    processor: OpenCLBackend, formula: Callable[[], Compute], dtype: str
) -> None:
    step = formula()
    step.output = Value("y", step.space, np.dtype(dtype))
    found, expected = both(processor, step, {"x": X})
    np.testing.assert_array_equal(found, expected)
    assert np.any(expected)


def test_a_transposed_tensor(processor: OpenCLBackend) -> None:
    found = both(processor, compute((70, 5, 37), value("x", X)[(index(1), index(2), index(0))]), {"x": X})
    for result in found:
        np.testing.assert_array_equal(result, X.transpose(2, 0, 1))


def test_a_step_of_rows_is_cut_into_dispatches(
    processor: OpenCLBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = windows()
    expected = both(processor, step, {"x": X})[1]
    monkeypatch.setattr("engine.backends.opencl.codegen.tuned_kernel._MAX_MULTIPLICATIONS", 1 << 17)
    by_rows = processor.generic(step)
    assert command_count(processor.programs, by_rows) > 9
    np.testing.assert_array_equal(result_of(processor, Plan([by_rows]), {"x": X}, step.output), expected)


def test_which_steps_are_computed_by_rows(cl_device: CLDevice, processor: OpenCLBackend) -> None:
    long = load(value("x", X), index(1))
    assert not row_step(compute((100, 70), long)).is_generic
    # Few elements, short rows, one axis, and where no axis is asked for.
    assert row_step(compute((10, 70), long)).is_generic
    assert row_step(compute((1000, VECTOR - 1), long)).is_generic
    assert row_step(compute((7000,), load(value("x", X), index(0) % lit(70)))).is_generic
    assert row_step(compute((100, 70), load(value("x", X), FLAT))).is_generic
    # Rows whose length varies are computed so whatever it is now, as kernels must not depend on sizes.
    assert not row_step(compute((1000, VECTOR - 1), long, static=False)).is_generic
    unknown = compute((100, 70), long)
    unknown.extents = None
    assert row_step(unknown).is_generic
    card = OpenCLBackend(cl_device, form="gpu")
    assert card.generic(compute((100, 70), long)).is_generic
    card.dispose()
