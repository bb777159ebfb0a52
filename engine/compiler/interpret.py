"""Running a model's formulas with NumPy, one after another: for folding constants and checking backends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from engine.compiler.plan import Compute
from engine.compiler.trace import Tracer, reads
from engine.kernels.evaluate import evaluate
from engine.kernels.kernel import number
from engine.kernels.value import Value
from engine.model import Model


def run_computes(computes: Sequence[Compute], arrays: dict[Value, np.ndarray]) -> None:
    """Evaluate formulas in order; `arrays` holds what they read and receives what they yield."""
    for compute in computes:
        kernel, values, inputs = number(compute.formula(), len(compute.space), compute.output.dtype)
        data = [elements(v, arrays) for v in inputs]
        arrays[compute.output] = evaluate(kernel, compute.space, values, data).reshape(compute.output.shape)


def elements(value: Value, arrays: Mapping[Value, np.ndarray]) -> np.ndarray:
    """The elements of a tensor that is known or computed already."""
    if value.known is not None:
        return value.known
    if value.size == 0:
        return np.empty(value.shape, value.dtype)
    return arrays[value.root].reshape(value.shape)


def interpret(model: Model, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """All outputs of a model, by NumPy alone. Slow; every formula is evaluated as the definition wrote it."""
    tracer = Tracer(model)
    arrays: dict[Value, np.ndarray] = {}
    shapes = {name: array.shape for name, array in inputs.items()}
    trace = tracer.trace(shapes)
    while True:
        for name, array in inputs.items():
            arrays[trace.values[name].root] = array
        run_computes(trace.computes, arrays)
        if trace.stopped_at is None:
            return {o.name: elements(trace.values[o.name], arrays) for o in model.outputs}
        known = {name: elements(trace.values[name], arrays) for name in trace.needs}
        trace = tracer.trace(shapes, known, trace.stopped_at, trace.values)


__all__ = ["elements", "interpret", "reads", "run_computes"]
