"""Job systems over the life of a process: starts, ends, forks, and how threads are scheduled."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from engine.base.errors import InputError
from engine.device import native
from engine.device.jobs.builtin_commands import job_sources
from engine.device.jobs.command_list import CommandList
from engine.device.jobs.system import JobSystem, shared_job_system
from tests.engine.device.jobs.gates import Gate

ROOT = Path(__file__).parents[3]


def test_a_forgotten_system_ends_its_threads() -> None:
    jobs = JobSystem(2)
    threads = jobs._threads
    del jobs
    gc.collect()
    assert not any(thread.is_alive() for thread in threads)


def test_wrong_arguments_are_refused(pair: JobSystem, functions: dict[str, int]) -> None:
    with pytest.raises(InputError, match="function address"):
        CommandList([(0, 0, 1, 1)])
    with pytest.raises(InputError, match="grain"):
        pair.submit(np.array([[functions["add"], 0, 1, 0]], np.int64))
    with pytest.raises(InputError, match="at least 1 thread"):
        JobSystem(0)
    with pytest.raises(InputError, match="'smoke signals'"):
        JobSystem(1, waiting="smoke signals")
    gate = Gate()
    with JobSystem(1) as other:
        held = other.submit(gate.commands)
        with pytest.raises(InputError, match="own job system"):
            pair.submit(gate.commands, (held,))
        gate.open()


@pytest.mark.skipif(sys.platform != "linux", reason="reads a thread's priority as Linux gives it")
def test_threads_can_let_the_game_go_first() -> None:
    with JobSystem(2, priority="below_normal") as jobs:
        assert not jobs.helps_callers
        usual = os.getpriority(os.PRIO_PROCESS, 0)
        limit = time.monotonic() + 60
        priorities: set[int] = set()
        while priorities != {min(usual + 5, 19)} and time.monotonic() < limit:
            priorities = {os.getpriority(os.PRIO_PROCESS, t.native_id or 0) for t in jobs._threads}
        assert priorities == {min(usual + 5, 19)}
    assert os.getpriority(os.PRIO_PROCESS, 0) == usual


def test_the_shared_system_is_one_and_comes_back_after_close() -> None:
    first = shared_job_system()
    assert shared_job_system() is first
    first.close()
    second = shared_job_system()
    assert second is not first
    assert second.submit(np.zeros((0, 4), np.int64)).complete(20)
    second.close()


def run_script(text: str, timeout: float = 240) -> str:
    head = (
        "import os, sys, time, numpy as np\n"
        "from engine.device.jobs.system import *\n"
        "from engine.device.jobs.builtin_commands import builtin_functions\n"
        "nothing = np.zeros((0, 4), np.int64)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", head + text],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_a_warm_start_needs_no_numba() -> None:
    native.process_store().load(job_sources())
    run_script("assert JobSystem(1).submit(nothing).complete(20)\nassert 'numba' not in sys.modules")


def test_the_program_ends_while_jobs_are_queued() -> None:
    """Nothing waits for 100 TB of memory to be filled, and no thread runs on without the interpreter."""
    native.process_store().load(job_sources())
    run_script(
        "jobs = JobSystem(2)\n"
        "block = np.zeros(1 << 20, np.int8)\n"
        "args = np.array([block.ctypes.data, 1, 1])\n"
        "fill = [builtin_functions()['fill'], args.ctypes.data, block.size, block.size]\n"
        "work = np.array([fill] * 100_000)\n"
        "handles = [jobs.submit(work) for _ in range(1000)]\n"
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_is_told_and_can_start_its_own() -> None:
    native.process_store().load(job_sources())
    said = run_script(
        "jobs = shared_job_system()\n"
        "assert jobs.submit(nothing).complete(20)\n"
        "repeated = jobs.submit_repeated(None, CommandList(nothing))\n"
        "assert repeated.handle.complete(20)\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    assert repeated.again() == 0\n"
        "    try:\n"
        "        jobs.submit(nothing)\n"
        "    except Exception as error:\n"
        "        print(type(error).__name__, error, flush=True)\n"
        "    print(shared_job_system().submit(nothing).complete(20), flush=True)\n"
        "else:\n"
        "    assert os.waitpid(pid, 0)[1] == 0\n"
        "    assert jobs.submit(nothing).complete(20)\n"
    )
    assert "DeviceError" in said
    assert "fork" in said
    assert said.strip().endswith("True")


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="only Linux lets threads be kept off a core")
def test_the_first_thread_is_kept_off_the_core_of_whoever_submits() -> None:
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        pytest.skip("there is one core")
    with JobSystem(2) as jobs:
        thread = jobs._threads[0].native_id
        assert thread is not None
        try:
            for core in sorted(allowed)[:2]:
                os.sched_setaffinity(0, {core})
                end = time.monotonic() + 20
                while os.sched_getaffinity(thread) != allowed - {core} and time.monotonic() < end:
                    time.sleep(0.02)  # threads that spin need not be woken
                    assert jobs.submit(np.zeros((0, 4), np.int64)).complete(20)
                assert os.sched_getaffinity(thread) == allowed - {core}
        finally:
            os.sched_setaffinity(0, allowed)
