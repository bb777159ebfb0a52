"""Freeze support: a frozen program starts itself again to compile kernels in the background."""

from __future__ import annotations

import json
import sys

from engine.api.asset import ModelLoader
from engine.api.worker import Worker
from engine.backends.base import BackendType
from engine.device.native import compiler_process
from engine.device.native.child_processes import allow_reentry


def freeze_support() -> None:
    """Let a frozen program compile kernels in child processes; call it first in the main module.

    Its main script calls this first, before it opens a window: a frozen program has no Python to start, so it
    starts itself again, and this call does the compiling there and ends that process. Without it kernels
    compile in the game's own process. Elsewhere it does nothing.
    """
    allow_reentry()
    if sys.argv[1:] != [compiler_process.CHILD_ARGUMENT]:
        return
    task = compiler_process.begin(is_frozen=True)
    if task is not None:
        compiler_process.run(task)
    else:
        # Numba takes a third of a second to import, and only these processes need it.
        from engine.device.native import compile as compiler

        compiler.main()
    raise SystemExit(0)


def run_driver_warm_up() -> None:
    """Create the worker described on standard input and run it once, for the driver warm-up."""
    request = json.loads(sys.stdin.readline())
    loading = Worker.load_async(
        ModelLoader.load(request["model"]),
        BackendType(request["backend"]),
        device="gl",
        shapes=request["shapes"],
        allow_fallback=request["allow_fallback"],
    )
    loading.wait().dispose()
