"""Sessions of onnxruntime, from which tests take what they expect."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import onnx

from gameglue.profiling.exact_products import products_saturate, with_unsigned_weights

if TYPE_CHECKING:
    import onnxruntime


def open_session(
    source: str | bytes | Path,
    *,
    threads: int = 0,
    optimised: bool = True,
    reuses_memory: bool = True,
    severity: int = 3,
) -> onnxruntime.InferenceSession:
    """A model in onnxruntime on the CPU, whose products with constant int8 weights are exact everywhere.

    Args:
        source: A path, or a model's bytes.
        threads: 0 for as many as suit it.
        optimised: Whether it may fuse and fold.
        reuses_memory: Whether results that are no longer needed give their memory to others.
        severity: The least that it logs: 2 warnings, 3 errors, 4 what is fatal.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = severity
    options.intra_op_num_threads = threads
    options.enable_mem_reuse = reuses_memory
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    given = source if isinstance(source, bytes) else str(source)
    if products_saturate():
        model = onnx.load_from_string(given) if isinstance(given, bytes) else onnx.load(given)
        if with_unsigned_weights(model):
            given = model.SerializeToString()
    return onnxruntime.InferenceSession(given, options, providers=["CPUExecutionProvider"])
