"""The engines that this one is measured against, by name, each with the threads that it may use."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec

from gameglue.profiling.contenders import Call, onnxruntime_call, openvino_call

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
