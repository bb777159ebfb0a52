"""Where a child process of this program begins: the standard library alone, as the rest may take a while.

    python -P child.py --gameglue-compile

It reads one line from standard input, says on standard output whether it may be held, and goes on as its
argument says. `engine.device.native.children` is the other end. A frozen program is started with the same
argument and calls `begin` itself; see `engine.api.freeze_support`.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from pathlib import Path

COMPILER_ARGUMENT = "--gameglue-compile"
"""A process that compiles kernels; see `engine.device.native.compile`."""

DRIVER_WARM_UP_ARGUMENT = "--gameglue-warm-up-driver"
"""Argument of the process that warms a driver up (`engine.runtime.loading.driver_warm_up`)."""

_SET_PARENT_DEATH_SIGNAL = 1
"""Of Linux's prctl(2)."""


def begin(is_frozen: bool = False) -> None:
    """Takes over the parent's module path, which may hold what no other does, steps back, and answers."""
    told = json.loads(sys.stdin.readline())
    if not is_frozen:
        sys.path[:] = told["sys_path"]
    if hasattr(os, "nice"):
        os.nice(5)
    sys.stdout.write(json.dumps({"may_be_held": _goes_on_without(told["parent"])}) + "\n")
    sys.stdout.flush()


def _goes_on_without(parent: int) -> bool:
    """Have this process go on when its parent ends while it is stopped; whether that is sure."""
    if not sys.platform.startswith("linux"):
        return False
    failed = ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGCONT, 0, 0, 0)
    # One-file programs are started by a process between the two, which nothing would wake.
    return failed == 0 and os.getppid() == parent


if __name__ == "__main__":
    import importlib
    import runpy

    begin()
    if sys.argv[1] == DRIVER_WARM_UP_ARGUMENT:
        # Named only, as processes that compile have no use for the engine.
        importlib.import_module("engine.api.freeze_support").run_driver_warm_up()
    else:
        runpy.run_path(str(Path(__file__).with_name("compile.py")), run_name="__main__")
