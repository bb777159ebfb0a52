"""Child processes that stand still while a frame works."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.device.native import NativeSource, NativeStore, child_processes, compiler_process
from engine.device.native.child_processes import PausedProcesses
from engine.device.native.pool import CompilePool
from engine.device.native.prelude import PRELUDE
from tests.conftest import ROOT

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only there processes are held")

COUNTS = "import time\nwhile True:\n    time.sleep(0.001)\n"
"""What a process to hold may do."""


def kernel(name: str) -> NativeSource:
    return NativeSource(name, f"{PRELUDE}\n\ndef {name}(args, begin, end):\n    pass\n", name)


def state(pid: int) -> str:
    """As ps(1) tells it: T is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def until(holds: Callable[[], bool], seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.002)
    return True


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    running = subprocess.Popen([sys.executable, "-c", COUNTS])
    yield running
    running.kill()
    running.wait()


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> PausedProcesses:
    monkeypatch.setattr(child_processes, "SHARE", 0.0)
    # On a busy machine a process may take longer than the usual limit to stop at all.
    monkeypatch.setattr(child_processes, "LIMIT", 1e6)
    return PausedProcesses()


@linux
def test_a_process_stands_still_from_hold_to_let_go(
    held: PausedProcesses, process: subprocess.Popen[bytes]
) -> None:
    held.hold()  # nothing to hold is fine
    held.add(process)
    for _ in range(2):
        held.hold()
        held.hold()
        assert until(lambda: state(process.pid) == "T")
        held.let_go()
        held.let_go()
        assert until(lambda: state(process.pid) != "T")


@linux
def test_what_is_left_alone_runs(held: PausedProcesses, process: subprocess.Popen[bytes]) -> None:
    held.add(process)
    held.hold()
    assert until(lambda: state(process.pid) == "T")
    held.discard(process)
    held.discard(process)
    assert until(lambda: state(process.pid) != "T")
    held.let_go()
    held.hold()
    assert not until(lambda: state(process.pid) == "T", 0.05)


@linux
def test_a_frame_that_does_not_end_holds_nothing_for_long(
    held: PausedProcesses, process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_processes, "LIMIT", 2.0)
    held.add(process)
    held.hold()
    assert until(lambda: state(process.pid) == "T")
    assert until(lambda: state(process.pid) != "T")
    held.discard(process)
    assert until(lambda: not held._is_watched), "nobody watches where nothing can be held"


@linux
def test_frames_without_rest_leave_a_share(
    process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(child_processes, "perf_counter", lambda: now)
    held = PausedProcesses()
    held.add(process)

    def play(work: float, rest: float) -> list[bool]:
        """Which of four frames held it, after a pause."""
        nonlocal now
        now += 1.0
        holds = []
        for _ in range(4):
            held.hold()
            holds.append(held._since is not None)
            now += work
            held.let_go()
            now += rest
        return holds

    assert play(0.010, 0.001) == [True, False, True, False]
    assert play(0.010, 0.010 * child_processes.SHARE + 0.0001) == [True] * 4


@linux
def test_a_process_that_has_ended_harms_nobody(
    held: PausedProcesses, process: subprocess.Popen[bytes]
) -> None:
    held.add(process)
    process.kill()
    process.wait()
    held.hold()
    held.let_go()


@linux
def test_who_waits_for_a_kernel_lets_its_process_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_processes, "LIMIT", 1e6)
    held = PausedProcesses()
    monkeypatch.setattr(child_processes, "_held", held)
    monkeypatch.setattr(child_processes, "let_go", held.let_go)
    store = NativeStore(tmp_path, CompilePool(limit=1))
    pending = store.prepare_async([kernel("first")])
    assert until(lambda: bool(held._processes))
    held.hold()
    (process,) = held._processes
    assert until(lambda: state(process.pid) == "T")
    assert pending.result()
    assert held._since is None


PARENT = """
import os, signal, subprocess, sys, time
from engine.device.native import child_processes
child_processes.LIMIT = 60.0
process = child_processes.start(subprocess.DEVNULL)
print(process.pid, flush=True)
child_processes.hold()
while open(f"/proc/{process.pid}/stat").read().rpartition(")")[2].split()[0] != "T":
    time.sleep(0.001)
os.kill(os.getpid(), signal.SIGKILL)
"""


@linux
def test_a_game_that_is_killed_leaves_no_stopped_process() -> None:
    found = subprocess.run(
        [sys.executable, "-c", PARENT], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert found.returncode == -signal.SIGKILL, found.stderr
    pid = int(found.stdout)

    def is_gone() -> bool:
        try:
            return state(pid) == "Z"
        except FileNotFoundError:
            return True

    assert until(is_gone)


@pytest.mark.parametrize("is_parent", [True, False])
def test_a_process_is_held_only_where_its_parent_wakes_it(is_parent: bool) -> None:
    """A one-file program is started by another process, whose end nothing would tell."""
    parent = os.getpid() if is_parent else os.getppid()
    told = {"sys_path": sys.path, "parent": parent, "task": None}
    found = subprocess.run(
        [sys.executable, "-P", compiler_process.__file__, compiler_process.CHILD_ARGUMENT],
        input=json.dumps(told) + "\n" + json.dumps({"shared_above": ""}) + "\n",
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    began, is_ready = map(json.loads, found.stdout.splitlines())
    assert began == {"may_be_held": is_parent and sys.platform.startswith("linux")}
    assert is_ready == {}


def test_a_process_that_does_not_begin_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then kernels compile in this one."""
    broken = tmp_path / "compiler_process.py"
    broken.write_text("raise SystemExit(3)\n")
    monkeypatch.setattr(compiler_process, "__file__", str(broken))
    with pytest.raises(OSError, match="status 3 before it began"):
        child_processes.start(subprocess.DEVNULL)
    assert NativeStore(tmp_path / "store", CompilePool(limit=1)).load([kernel("here")])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_leaves_the_processes_to_its_parent() -> None:
    code = (
        "import os, subprocess, sys, threading; from engine.device.native import child_processes\n"
        "process = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "child_processes._held.add(process)\n"
        "child_processes._held._lock.acquire()\n"  # as another thread might at that moment
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    child_processes.hold()\n"
        "    os._exit(len(child_processes._held._processes) + threading.active_count())\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])); process.kill()\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300, check=True
    )
    assert found.stdout.split() == ["1"], "no process, and no thread but its own"
