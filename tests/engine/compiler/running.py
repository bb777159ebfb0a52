"""Formulas of a model after fusion, run with NumPy, and which kernels they need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from engine import Model
from engine.compiler.fusion import fuse_elementwise
from engine.compiler.interpreter import elements, run_computes
from engine.compiler.plan import Compute
from engine.compiler.trace import Tracer, live
from engine.kernels.value import Value

Arrays = Mapping[str, np.ndarray]
Shapes = Mapping[str, Sequence[int]]


def planned(tracer: Tracer, shapes: Shapes) -> tuple[list[Compute], dict[str, Value]]:
    """The fused formulas for given input shapes, and the tensors by name. It must not stop for data."""
    trace = tracer.trace({name: tuple(shape) for name, shape in shapes.items()})
    assert trace.stop is None, f"it stops for {trace.stop}"
    values = {name: value for name, value in trace.values.items() if isinstance(value, Value)}
    wanted = [values[o.name] for o in tracer.model.outputs]
    return fuse_elementwise(live(trace.computes, wanted), wanted, tracer.fan_in), values


def kernel_keys(tracer: Tracer, shapes: Shapes) -> list[str]:
    """The kernels of a plan, in order."""
    return [compute.as_step().kernel.key for compute in planned(tracer, shapes)[0]]


def run_fused(model: Model, feeds: Arrays, fan_in: int = 7) -> dict[str, np.ndarray]:
    """A model's outputs by NumPy, its formulas joined as for a backend."""
    computes, values = planned(Tracer(model, fan_in), {name: array.shape for name, array in feeds.items()})
    arrays: dict[str, np.ndarray] = {values[name].root.name: array for name, array in feeds.items()}
    run_computes(computes, arrays)
    return {o.name: elements(values[o.name], arrays) for o in model.outputs}


def check_same_answers(
    plain: Sequence[Compute], fused: Sequence[Compute], feeds: Arrays, wanted: Sequence[Value]
) -> None:
    """Formulas and the same ones fused give the same tensors, but for rounding."""
    answers = []
    for computes in (plain, fused):
        arrays = dict(feeds)
        run_computes(computes, arrays)
        answers.append([elements(v, arrays) for v in wanted])
    for before, after in zip(*answers, strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-6, atol=1e-6)
