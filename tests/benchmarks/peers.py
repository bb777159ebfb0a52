"""The engines that this one is measured against, by name, each with the threads that it may use."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from gameglue.profiling.benchmark_cases import Arrays, Call, onnxruntime_call


def openvino_call(source: str | Path | bytes, threads: int | None = None, precision: str = "f32") -> Call:
    """OpenVINO on the CPU, tuned for latency, as a function from inputs to outputs by name.

    Inputs are read where they lie; the outputs are OpenVINO's own memory, good until the next call.

    threads: how many compute; None lets OpenVINO decide.
    precision: of the computation; "" lets OpenVINO decide, which is bfloat16 where the processor has it.
    Raises `ImportError` where it is not installed, and exceptions of its own, which have no common class.
    """
    import openvino  # optional

    settings: dict[str, Any] = {"PERFORMANCE_HINT": "LATENCY"}
    if precision:
        settings["INFERENCE_PRECISION_HINT"] = precision
    if threads is not None:
        settings["INFERENCE_NUM_THREADS"] = threads
    core = openvino.Core()
    model = core.read_model(source if isinstance(source, bytes) else str(source))
    request = core.compile_model(model, "CPU", settings).create_infer_request()
    names = [output.get_any_name() for output in model.outputs]

    def call(inputs: Mapping[str, np.ndarray]) -> Arrays:
        values = request.infer(dict(inputs), share_inputs=True, share_outputs=True)
        return dict(zip(names, values.to_tuple(), strict=True))

    return call


PEERS: dict[str, Callable[[str | bytes, int], Call]] = {
    "onnxruntime": onnxruntime_call,
    "openvino": openvino_call,
    "openvino-default": lambda source, threads: openvino_call(source, threads, precision=""),
}
"""All compute in float32 but the last, which takes the precision that OpenVINO chooses for the processor."""

ALLOWED = {"onnxruntime": 1e-5, "openvino": 1e-4, "openvino-default": 0.5}
"""Their largest error, or 4 times onnxruntime's own; what is further off computes something else."""


def add_peer_option(parser: argparse.ArgumentParser) -> None:
    """Add `--peers`."""
    parser.add_argument(
        "--peers",
        nargs="*",
        choices=tuple(PEERS),
        metavar="NAME",
        default=["onnxruntime", "openvino"],
        help=f"some of {', '.join(PEERS)} (bfloat16 where the processor has it). Default: the first two",
    )


def installed(wanted: Sequence[str]) -> list[str]:
    """The peers of these that are installed; standard error tells which are not."""
    found = []
    for name in wanted:
        package = name.partition("-")[0]
        if find_spec(package) is not None:
            found.append(name)
        else:
            print(f"{name} is left out: not installed (pip install {package})", file=sys.stderr)
    return found
