"""Driver warm-up: runs a worker once in another process, so that the driver's disk cache has its programs.

Software renderers compile a program when a context first uses it with its bindings, on the calling thread: a
shared context does not help. But they cache the code on disk, where the game's own context finds it.
The caller names the function that creates the worker there.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.backends.base import BackendType
from engine.device.native import child_processes

LIMIT = 300.0
"""Seconds after which the process is ended."""


def warm_up_driver(
    task: str, model: str | os.PathLike[str], backend_type: BackendType, shapes: object, allow_fallback: bool
) -> bool:
    """Create and run the worker in another process. Blocks, mostly without the GIL.

    Args:
        task: "module:function" to call there, which reads the request (JSON) from standard input.
        model: The model's file.
        backend_type: The worker's backend.
        shapes: As for `Worker.load_async`; arrays stand for their shapes.
        allow_fallback: As for `Worker`.

    Returns:
        Whether that succeeded.
    """
    if not child_processes.can_start():
        return False
    request = {
        "model": os.path.abspath(model),
        "backend": backend_type.value,
        "shapes": _plain(shapes),
        "allow_fallback": allow_fallback,
    }
    try:
        process = child_processes.start(subprocess.DEVNULL, task=task)
    except OSError:
        return False
    try:
        process.communicate(json.dumps(request).encode() + b"\n", LIMIT)
        return process.returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False
    finally:
        child_processes.end(process)


def _plain(shapes: Any) -> Any:
    """Shapes as JSON: lists of dicts of sizes and lists."""
    if shapes is None:
        return None
    if isinstance(shapes, Sequence):
        return [_plain(one) for one in shapes]
    return {
        name: int(value)
        if isinstance(value, int | np.integer)
        else [int(n) for n in (value if isinstance(value, tuple | list) else np.shape(value))]
        for name, value in shapes.items()
    }
