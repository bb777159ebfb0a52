"""Evaluates a model's formulas with NumPy, for constant folding and for checking backends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engine.compiler.plan import Compute
from engine.compiler.plan_walk import Trace
from engine.compiler.trace import SCHEDULE_COUNT, InputShape, SequenceShape, Tracer, leaf_names
from engine.compiler.value_conversion import arrays_in, as_arrays
from engine.graph.model import Model
from engine.kernels.evaluate import evaluate
from engine.kernels.kernel import kernel_call
from engine.kernels.value import Value

Feed = Any
"""An array, a list of arrays for a sequence, None for an optional left empty."""


def run_computes(computes: Sequence[Compute], arrays: dict[str, np.ndarray]) -> None:
    """Evaluate formulas in order; `arrays` maps buffers to inputs and receives the outputs."""
    for compute in computes:
        kernel, values, inputs = kernel_call(compute.formula(), len(compute.space), compute.output.dtype)
        data = [elements(v, arrays) for v in inputs]
        arrays[compute.output.name] = evaluate(kernel, compute.space, values, data)


def elements(value: Value, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """The elements of a tensor that is known or computed already, cut to their exact number."""
    if value.bound is not None:
        count = int(elements(value.bound.count, arrays).reshape(-1)[0])
        return elements(value.view(value.shape), arrays).take(range(count), value.bound.axis)
    if value.known is not None:
        return value.known
    if value.size == 0:
        return np.empty(value.shape, value.dtype)
    return arrays[value.root.name].reshape(-1)[: value.size].reshape(value.shape)


def shape_of(feed: Feed) -> InputShape:
    """The shape of an input's value."""
    if isinstance(feed, Mapping):
        return SequenceShape(((len(feed),), (len(feed),)))
    if isinstance(feed, list | tuple):
        return SequenceShape(np.asarray(x).shape for x in feed)
    return None if feed is None else np.asarray(feed).shape


def leaf_arrays(feeds: Mapping[str, Feed]) -> dict[str, np.ndarray]:
    """The arrays that inputs consist of, by the names of their tensors."""
    found: dict[str, np.ndarray] = {}
    for name, feed in feeds.items():
        items = feed if isinstance(feed, list | tuple) else [feed]
        if isinstance(feed, Mapping):
            items = [np.array([*feed, None], object)[:-1], np.array([*feed.values()])]
        names = [leaf for leaf, _ in leaf_names(name, shape_of(feed))]
        found.update(zip(names, map(np.asarray, items), strict=False))
    return found


def trace_arrays(
    tracer: Tracer, inputs: Mapping[str, Feed], schedules: int = 0
) -> tuple[Trace, dict[str, np.ndarray]]:
    """The trace for some inputs, and the arrays that it begins with; for `schedules` see `interpret`."""
    arrays = leaf_arrays(inputs) | {SCHEDULE_COUNT: np.array([schedules], np.uint32)}
    texts = {name: array for name, array in arrays.items() if array.dtype == object}
    return tracer.trace({name: shape_of(feed) for name, feed in inputs.items()}, texts), arrays


def interpret(
    model: Model, inputs: Mapping[str, Feed], schedules: int = 0, tracer: Tracer | None = None
) -> dict[str, Any]:
    """All outputs of a model, by NumPy alone. Slow; every formula is evaluated as the definition wrote it.

    Outputs that are sequences come as lists, optionals without an element as None. `schedules` is how often
    the model is taken to have run before. `tracer` is the model's, for those who evaluate it more than once.
    """
    tracer = Tracer(model) if tracer is None else tracer
    trace, arrays = trace_arrays(tracer, inputs, schedules)
    while True:
        run_computes(trace.computes, arrays)
        if trace.stop is None:
            outputs = {o.name: trace.values[o.name] for o in model.outputs}
            return {name: as_arrays(x, lambda v: elements(v, arrays)) for name, x in outputs.items()}
        trace = _resumed(tracer, trace, arrays)


def _resumed(tracer: Tracer, trace: Trace, arrays: dict[str, np.ndarray]) -> Trace:
    assert trace.stop is not None
    if trace.stop.call is None:
        return tracer.resume(trace, {v.root.name: elements(v, arrays) for v in trace.stop.needs})
    results = trace.stop.call.run(lambda v: elements(v, arrays))
    following = tracer.resume(trace, {}, results)
    arrays.update(zip((v.name for v in following.received), arrays_in(results), strict=True))
    return following


__all__ = ["elements", "interpret", "leaf_arrays", "run_computes", "shape_of"]
