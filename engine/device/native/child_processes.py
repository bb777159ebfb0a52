"""Background child processes, which can be suspended while a frame is computed.

However little of the processor a process needs, Linux gives it a core for a whole tick now and then (4 ms
at 250 ticks a second) while a thread of the game waits, and lets threads of a game share one core because the
process has the other. So the host calls `hold` when a frame begins and `let_go` when its work is done.
A process is held for no longer than `LIMIT`, regardless of the frame, and only where frames leave it
its share of the time; see `PausedProcesses`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from typing import IO

from engine.base import thread_scheduling
from engine.device.native import compiler_process

LIMIT = 0.1
"""Seconds after which processes continue although the frame has not ended: it may wait for one of them."""

SHARE = 0.5
"""How long processes have to have run since they were held, of the time for which they were."""

_LAST_MOMENT = 1.0
"""Seconds for a process that has not begun to end by itself."""

_may_reenter: list[bool] = []


class PausedProcesses:
    """Processes that are stopped and resumed together. Thread-safe.

    A process that frames would hold for more than 1 / (1 + `SHARE`) of the time is not held in some of them.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget all processes, as after a fork."""
        self._lock = threading.Lock()
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._since: float | None = None
        self._next = 0.0
        self._is_watched = False

    def add(self, process: subprocess.Popen[bytes]) -> None:
        """Add a process for `hold` to suspend; it must resume itself if this process ends."""
        with self._lock:
            self._processes.add(process)
            if not self._is_watched:
                self._is_watched = True
                threading.Thread(target=self._watch, name="gameglue-held", daemon=True).start()

    def discard(self, process: subprocess.Popen[bytes]) -> None:
        """Remove a process and let it run."""
        with self._lock:
            if process in self._processes:
                self._processes.remove(process)
                if self._since is not None:
                    process.send_signal(signal.SIGCONT)

    def hold(self) -> None:
        """Suspend the processes until `let_go`, unless they have run too little since the last time."""
        if not self._processes:
            return
        with self._lock:
            now = perf_counter()
            if self._since is not None or now < self._next:
                return
            self._since = now
            self._signal(signal.SIGSTOP)

    def let_go(self) -> None:
        """Resume the processes."""
        if self._since is None:
            return
        with self._lock:
            self._resume()

    def _resume(self) -> None:
        if self._since is not None:
            self._signal(signal.SIGCONT)
            now = perf_counter()
            self._next = now + SHARE * (now - self._since)
            self._since = None

    def _signal(self, number: int) -> None:
        for process in self._processes:
            process.send_signal(number)

    def _watch(self) -> None:
        while True:
            time.sleep(LIMIT)
            with self._lock:
                if self._since is not None and perf_counter() - self._since >= LIMIT:
                    self._resume()
                if not self._processes:
                    self._is_watched = False
                    return


_held = PausedProcesses()
hold, let_go = _held.hold, _held.let_go
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_held.forget)


def start(
    stderr: int | IO[bytes], environment: Mapping[str, str] | None = None, task: str | None = None
) -> subprocess.Popen[bytes]:
    """Start a child process (`engine.device.native.compiler_process`), with pipes to and from it.

    Blocks until it answers, without the GIL. `end` ends it. Raises OSError where none can be started.

    Args:
        stderr: Where its standard error goes, as for `subprocess.Popen`.
        environment: Its environment variables; by default those of this process.
        task: "module:function" to call there; `None` for compiling kernels.
    """
    command = [sys.executable, compiler_process.CHILD_ARGUMENT]
    if not is_frozen():
        command = [sys.executable, "-P", compiler_process.__file__, compiler_process.CHILD_ARGUMENT]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env=environment,
        creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
    )
    try:
        path = [entry or os.getcwd() for entry in sys.path]
        send(process, {"sys_path": path, "parent": os.getpid(), "task": task})
        assert process.stdout is not None
        may_be_held = json.loads(process.stdout.readline())["may_be_held"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        # One that is about to end says with what.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_LAST_MOMENT)
        end(process)
        raise OSError(f"a child process ended with status {process.returncode} before it began") from error
    thread_scheduling.set_slice(process.pid, thread_scheduling.LONG_SLICE)
    if may_be_held:
        _held.add(process)
    return process


def send(process: subprocess.Popen[bytes], message: Mapping[str, object]) -> None:
    """Write one line of JSON to its standard input; raises OSError if it has ended."""
    assert process.stdin is not None
    process.stdin.write(json.dumps(message).encode() + b"\n")
    process.stdin.flush()


def end(process: subprocess.Popen[bytes]) -> None:
    """End it at once, if it has not ended, and forget it."""
    _held.discard(process)
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        # What was still to be written to a dead process is of no use to anyone.
        with contextlib.suppress(OSError):
            if stream is not None:
                stream.close()


def is_frozen() -> bool:
    """Whether this program was made one file or folder by PyInstaller, Nuitka, cx_Freeze or the like."""
    return bool(getattr(sys, "frozen", False)) or "__compiled__" in globals()


def can_start() -> bool:
    """Whether this Python can run a script of ours, or, as a frozen program, itself."""
    if is_frozen():
        return bool(sys.executable and _may_reenter)
    return bool(sys.executable) and Path(compiler_process.__file__).is_file()


def allow_reentry() -> None:
    """Declare that the program handles `compiler_process.CHILD_ARGUMENT`, so it may be started as a child."""
    _may_reenter.append(True)
