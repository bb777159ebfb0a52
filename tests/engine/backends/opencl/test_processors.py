"""Kernels for processors: no work-items wait for one another.

A processor runs those of a group one after another, and its compiler splits a kernel wherever they wait. PoCL
lost stores to global memory between such places in loops, and took twenty times as long to compile them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from engine import Model
from engine.backends.opencl import OpenCLBackend
from tests.engine.conftest import MakeWorker
from tests.engine.operators.single import one_layer
from tests.engine.operators.test_scan_with_batches import feeds_for, model, source

pytestmark = pytest.mark.opencl

Feeds = dict[str, np.ndarray]

ROWS = np.random.default_rng(3).random((3, 700), np.float32)
TARGETS = np.random.default_rng(4).integers(0, 3, ROWS.shape)
CORNERS = np.concatenate([ROWS[:, :2], ROWS[:, :2] + 0.3], 1)[None]
SCORES = ROWS[None, :, :3].copy()


def layer(op: str, *given: np.ndarray, known: tuple[np.ndarray, ...] = ()) -> tuple[Model, Feeds]:
    """A model of one layer, and its inputs; constants follow them."""
    constants = range(len(given), len(given) + len(known))
    return one_layer(op, [*given, *known], known=constants), {f"x{k}": a for k, a in enumerate(given)}


CASES: dict[str, Callable[[], tuple[Model, Feeds]]] = {
    "sort": lambda: layer("TopK", ROWS, known=(np.array([600]),)),
    "select": lambda: layer("NonZero", ROWS > 0.5),
    "running sum": lambda: layer("CumSum", ROWS, known=(np.array(1),)),
    "suppression": lambda: layer(
        "NonMaxSuppression", CORNERS, SCORES, known=(np.array([2]), np.array([0.4], np.float32))
    ),
    "product": lambda: layer("MatMul", ROWS, ROWS.T.copy()),
    "scatter": lambda: layer("ScatterElements", ROWS, TARGETS, ROWS),
    "reduction": lambda: layer("ReduceSum", ROWS, known=(np.array([1]),)),
    "repeated steps": lambda: (model(source(9, 12, False)), feeds_for(9, 12)),
}


@pytest.mark.parametrize("case", CASES)
def test_no_kernel_waits(case: str, make_worker: MakeWorker) -> None:
    made, feeds = CASES[case]()
    worker = make_worker(made, "opencl")
    worker.schedule(feeds)
    worker.peek_output(worker.model.outputs[0].name).download_to_array()
    run = worker._latest
    assert run is not None
    (backend,) = (b for b in run.session.backends.values() if isinstance(b, OpenCLBackend))
    if backend.form != "cpu":
        pytest.skip("the device is no processor")
    kernels = [
        kernel
        for recorded in run.recorded_plans
        for segment in recorded.lowered.segments
        for kernel in segment.plan.kernels
    ]
    assert kernels
    for kernel in kernels:
        assert "barrier(" not in backend.programs.source(kernel).text
