"""Range checks of 64-bit integers, which GPU backends store in 32 bits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from engine.base.errors import InputError
from engine.compiler.interpreter import leaf_arrays, run_computes, shape_of
from engine.compiler.trace import SCHEDULE_COUNT, Tracer
from engine.kernels.value import leaves


def beyond_int32(array: np.ndarray) -> int | None:
    """An element of a 64-bit integer array that does not fit 32 bits, or None."""
    if array.dtype not in (np.int64, np.uint64) or not array.size:
        return None
    low, high = int(array.min()), int(array.max())
    return low if low < -(2**31) else high if high > 2**31 - 1 else None


def check_int32(array: np.ndarray, subject: str, backend: str) -> None:
    """Raise `InputError` for an input or constant that does not fit 32 bits."""
    if (found := beyond_int32(array)) is not None:
        raise InputError(
            f"{subject} holds {found}, beyond the 32-bit integers of {backend}; "
            "use BackendType.CPU for this model"
        )


def check_computed_integers(tracer: Tracer, inputs: Mapping[str, Any], backend: str) -> None:
    """Compute every tensor with NumPy and raise `InputError` for integers that a GPU would wrap to 32 bits.

    For `Worker(debug=True)`. Covers the layers before the first one whose shape depends on data. Slow.
    """
    arrays = leaf_arrays(inputs) | {SCHEDULE_COUNT: np.zeros(1, np.uint32)}
    texts = {name: array for name, array in arrays.items() if array.dtype == object}
    trace = tracer.trace({name: shape_of(feed) for name, feed in inputs.items()}, texts)
    names = {value.root.name: name for name, entry in trace.values.items() for value in leaves(entry)}
    run_computes(trace.computes, arrays)
    for compute in trace.computes:
        if (found := beyond_int32(arrays[compute.output.name])) is not None:
            name = names.get(compute.output.name, compute.output.name)
            raise InputError(
                f"'{name}' of layer '{compute.layer}' holds {found}, which {backend} would wrap to 32 bits; "
                "use BackendType.CPU"
            )
