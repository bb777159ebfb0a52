"""What `Worker(debug=True)` checks beside running the model."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from engine.compiler.interpret import run_computes
from engine.compiler.trace import Tracer
from engine.errors import InputError
from engine.kernels.value import Value


def check_computed_integers(tracer: Tracer, inputs: Mapping[str, np.ndarray], backend: str) -> None:
    """Work out every tensor with NumPy and refuse 64-bit integers that a GPU's 32 bits would wrap.

    Covers the layers before the first whose shape depends on data. Slow: for finding out, not for playing.
    """
    trace = tracer.trace({name: array.shape for name, array in inputs.items()})
    arrays: dict[Value, np.ndarray] = {trace.values[name].root: array for name, array in inputs.items()}
    names = {value.root: name for name, value in trace.values.items()}
    run_computes(trace.computes, arrays)
    for compute in trace.computes:
        array = arrays[compute.output]
        if array.dtype not in (np.int64, np.uint64):
            continue
        low, high = int(array.min()), int(array.max())
        if low < -(2**31) or high > 2**31 - 1:
            raise InputError(
                f"'{names.get(compute.output, compute.output.name)}' of layer '{compute.layer}' holds "
                f"{low if low < -(2**31) else high}, which {backend} would wrap to 32 bits; use BackendType.CPU"
            )
