"""Debug check: computed 64-bit integers must fit into the 32 bits that GPU backends store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.backends.gpu.integers import beyond_32_bits
from engine.base.errors import InputError
from engine.compiler.interpreter import run_computes, trace_arrays
from engine.compiler.trace import Tracer
from engine.kernels.value import leaves


def check_computed_integers(tracer: Tracer, inputs: Mapping[str, Any], backend: str) -> None:
    """Compute every tensor with NumPy and raise `InputError` for integers that a GPU would wrap to 32 bits.

    For `Worker(debug=True)`. Covers the layers before the first one whose shape depends on data. Slow.
    """
    trace, arrays = trace_arrays(tracer, inputs)
    names = {value.root.name: name for name, entry in trace.values.items() for value in leaves(entry)}
    run_computes(trace.computes, arrays)
    for compute in trace.computes:
        if (found := beyond_32_bits(arrays[compute.output.name])) is not None:
            name = names.get(compute.output.name, compute.output.name)
            raise InputError(
                f"'{name}' of layer '{compute.layer}' holds {found}, which {backend} would wrap to 32 bits; "
                "use BackendType.CPU"
            )
