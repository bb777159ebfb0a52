"""Loops that Mesa's renderers on the CPU would leave too early are counted, and run elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from engine import BackendType, Worker
from engine.backends.gl.loops import rounds_of
from engine.devices import GLDevice
from engine.kernels.expr import arg, cast, lit, reduce
from tests.graphs import model, node

LONG = 70_000


def test_rounds_of_loops_inside_others_multiply() -> None:
    def inner(r: object) -> object:
        return reduce("sum", 7, lambda s: cast(s + r, "float32"))  # type: ignore[operator]

    nested = reduce("sum", 5, inner)  # type: ignore[arg-type]
    assert rounds_of(nested) == 5 * (1 + 7)
    assert rounds_of(nested + nested) == 5 * (1 + 7)
    assert rounds_of(nested + reduce("max", lit(3), lambda r: cast(r, "float32"))) == 5 * (1 + 7) + 3
    assert rounds_of(cast(arg(1), "float32")) == 0


@pytest.mark.parametrize("kind", [BackendType.GPU_COMPUTE, BackendType.GPU_PIXEL])
def test_a_sum_over_many_elements_is_right(gl_device: GLDevice, kind: BackendType) -> None:
    made = model(
        [node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)],
        {"x": ("float32", [2, LONG])},
        {"y": ("float32", None)},
        {"axes": np.array([1])},
    )
    x = np.linspace(0, 1, 2 * LONG, dtype=np.float32).reshape(2, LONG)
    with Worker(made, kind, device=gl_device) as worker:
        worker.schedule(x)
        found = worker.peek_output().download_to_array()
        reasons = [fallback.reason for fallback in worker.plan_report().fallbacks]
    np.testing.assert_allclose(found, x.astype(np.float64).sum(axis=1), rtol=1e-4)
    if gl_device.info.most_rounds is not None:
        assert len(reasons) == 1
        assert "rounds of a loop in one shader call" in reasons[0]
