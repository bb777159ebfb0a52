"""A process that makes a worker and runs it once, so that the driver has on disk what it compiled for it.

Drivers that draw on the processor compile a program when a context first uses it, for what is bound, on the
thread that asks: a shared context does not help. But they keep the code on disk, where the game's own context
finds it a moment later. `engine.api.freeze_support` is the other end.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.backends.base import BackendType
from engine.device.native import children
from engine.device.native.child import REHEARSAL_ARGUMENT

LIMIT = 300.0
"""Seconds after which it is ended."""


def rehearse(
    model: str | os.PathLike[str], backend_type: BackendType, shapes: object, allow_fallback: bool
) -> bool:
    """Have another process make the worker; whether that went well. Blocks, mostly without the GIL.

    shapes: as `Worker.load_async` takes them; arrays stand for their shapes.
    """
    if not children.can_start():
        return False
    request = {
        "model": os.path.abspath(model),
        "backend": backend_type.value,
        "shapes": _plain(shapes),
        "allow_fallback": allow_fallback,
    }
    try:
        process = children.start(REHEARSAL_ARGUMENT, subprocess.DEVNULL)
    except OSError:
        return False
    try:
        process.communicate(json.dumps(request).encode() + b"\n", LIMIT)
        return process.returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False
    finally:
        children.end(process)


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
