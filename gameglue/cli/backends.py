"""Command-line options that select a backend."""

from __future__ import annotations

import argparse
from typing import get_args

from engine import BackendType
from engine.backends.base import Precision
from engine.backends.table import BACKENDS
from engine.base.errors import InputError
from gameglue.inference.backend_choice import BACKEND_NAMES, BackendChoice


def add_backend_options(parser: argparse.ArgumentParser, default: str) -> None:
    """Add `--backend` and `--device`; `default` is the help text for when they are not given."""
    parser.add_argument(
        "--backend",
        choices=BACKEND_NAMES,
        help=f"where the network runs: cpu (any machine), gpu_compute (OpenGL 4.3 or OpenCL), gpu_pixel "
        f"(OpenGL 3.3). Default: {default}",
    )
    parser.add_argument(
        "--device",
        choices=[entry.device for entry in BACKENDS if entry.backend_type is BackendType.GPU_COMPUTE],
        help="API of --backend gpu_compute. Default: gl",
    )


def add_precision_option(parser: argparse.ArgumentParser) -> None:
    """Add `--precision`."""
    parser.add_argument(
        "--precision",
        choices=get_args(Precision),
        help="precision of matrix products and convolutions on --backend cpu; bf16 and int8 need a "
        "processor with instructions for it. Default: float32",
    )


def choice_of(arguments: argparse.Namespace) -> BackendChoice | None:
    """The backend that the options select, `None` if none; raises `InputError` if they conflict."""
    name, device = arguments.backend, arguments.device
    precision: Precision | None = getattr(arguments, "precision", None)
    if precision is not None:
        if name not in (None, "cpu") or device is not None:
            raise InputError(f"--precision {precision} goes with --backend cpu")
        return BackendChoice(BackendType.CPU, None, precision)
    if name is None:
        return BackendChoice(BackendType.GPU_COMPUTE, device) if device is not None else None
    if device is not None and name == "cpu":
        raise InputError("--backend cpu takes no --device: it runs on the processor's cores")
    if device == "opencl" and name == "gpu_pixel":
        raise InputError(
            "--backend gpu_pixel draws with OpenGL; for OpenCL use --backend gpu_compute --device opencl"
        )
    return BackendChoice(BackendType(name), device)
