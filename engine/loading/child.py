"""A process that makes a worker and runs it once, so that the driver has on disk what it compiled for it.

Drivers that draw on the processor compile a program when a context first uses it, for what is bound, on the
thread that asks: a shared context does not help. But they keep the code on disk, where the game's own context
finds it a moment later. `engine.frozen` is the other end.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.backends.base import BackendType
from engine.native.pool import REHEARSAL_ARGUMENT, can_start_children, is_frozen

LIMIT = 300.0
"""Seconds after which it is ended."""

# Modules may lie on a path that only this process knows.
_START = """
import json, sys
sys.path[:] = json.loads(sys.stdin.readline())["sys_path"]
from engine.frozen import rehearse_here
rehearse_here()
"""


def rehearse(
    model: str | os.PathLike[str], backend_type: BackendType, shapes: object, allow_fallback: bool
) -> bool:
    """Have another process make the worker; whether that went well. Blocks, mostly without the GIL.

    shapes: as `Worker.load_async` takes them; arrays stand for their shapes.
    """
    if not can_start_children():
        return False
    request = {
        "model": os.path.abspath(model),
        "backend": backend_type.value,
        "shapes": _plain(shapes),
        "allow_fallback": allow_fallback,
    }
    where = {"sys_path": [entry or os.getcwd() for entry in sys.path]}
    command = [sys.executable, REHEARSAL_ARGUMENT]
    if not is_frozen():
        command = [sys.executable, "-P", "-c", _START]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            command,
            input=f"{json.dumps(where)}\n{json.dumps(request)}\n".encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=LIMIT,
            check=False,
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
        return done.returncode == 0
    return False


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
