"""Entry point of child processes; imports the standard library only, as the rest takes time.

    python -P child.py --gameglue-child

It reads one line from standard input, says on standard output whether it may be held, and runs the task that
the line names, or compiles kernels if it names none. `engine.device.native.child_processes` is the other
end. A frozen program is started with the same argument and calls `begin` itself.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import sys
from pathlib import Path

CHILD_ARGUMENT = "--gameglue-child"
"""The argument of a program that was started as a child process."""

_SET_PARENT_DEATH_SIGNAL = 1
"""Of Linux's prctl(2)."""


def begin(is_frozen: bool = False) -> str | None:
    """Take over the parent's module path, lower the priority, and answer.

    Returns:
        The task ("module:function"); None for a process that compiles kernels.
    """
    request = json.loads(sys.stdin.readline())
    if not is_frozen:
        sys.path[:] = request["sys_path"]
    if hasattr(os, "nice"):
        os.nice(5)
    sys.stdout.write(json.dumps({"may_be_held": _goes_on_without(request["parent"])}) + "\n")
    sys.stdout.flush()
    task: str | None = request["task"]
    return task


def run(task: str) -> None:
    """Import a task's module and call its function."""
    module, _, function = task.partition(":")
    getattr(importlib.import_module(module), function)()


def _goes_on_without(parent: int) -> bool:
    """Resume this process if its parent ends while it is stopped; returns whether that is guaranteed."""
    if not sys.platform.startswith("linux"):
        return False
    failed = ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGCONT, 0, 0, 0)
    # One-file programs are started by a process between the two, which nothing would wake.
    return failed == 0 and os.getppid() == parent


if __name__ == "__main__":
    import runpy

    wanted = begin()
    if wanted is not None:
        run(wanted)
    else:
        runpy.run_path(str(Path(__file__).with_name("compile.py")), run_name="__main__")
