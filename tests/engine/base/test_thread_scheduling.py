"""What Linux is asked for, for the threads of a game: asked of Linux again."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from engine import JobSystem
from engine.base import thread_scheduling
from engine.base.sliced_thread import SlicedThread


def on_thread(work: Callable[[], object]) -> object:
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


@pytest.fixture
def usual() -> float:
    """A new thread's slice."""
    found = on_thread(lambda: thread_scheduling.get_slice(0))
    if not isinstance(found, float):
        pytest.skip("this system has no time slices that can be asked for")
    return found


def test_a_slice_is_kept_and_not_inherited(usual: float) -> None:
    def work() -> tuple[object, ...]:
        thread_scheduling.set_slice(0, 0.016)
        return (
            thread_scheduling.get_slice(0),
            on_thread(lambda: thread_scheduling.get_slice(0)),
            thread_scheduling.get_slice(0),
        )

    assert on_thread(work) == (0.016, usual, 0.016)


def test_another_thread_and_its_niceness(usual: float) -> None:
    go, done = threading.Event(), threading.Event()
    numbers: list[int] = []
    niceness = min(os.getpriority(os.PRIO_PROCESS, 0) + 5, 19)

    def work() -> None:
        os.setpriority(os.PRIO_PROCESS, 0, niceness)
        numbers.append(threading.get_native_id())
        go.set()
        done.wait()

    thread = threading.Thread(target=work)
    thread.start()
    go.wait()
    thread_scheduling.set_batch_policy(numbers[0])
    thread_scheduling.set_slice(numbers[0], 0.04)
    assert thread_scheduling.get_slice(numbers[0]) == 0.04
    assert os.sched_getscheduler(numbers[0]) & 0xFF == os.SCHED_BATCH
    assert os.getpriority(os.PRIO_PROCESS, numbers[0]) == niceness
    done.set()
    thread.join()
    end = time.monotonic() + 10
    while thread_scheduling.get_slice(numbers[0]) is not None:  # Linux may take a moment to forget it
        assert time.monotonic() < end
        thread_scheduling.set_slice(numbers[0], 0.04)


def test_a_process_that_gives_way_goes_on_to(usual: float) -> None:
    """`gameglue warmup --low-priority` is of the idle class, which has no slices of its own."""
    code = (
        "import os; from engine.base import thread_scheduling as turns;"
        "os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0));"
        "turns.set_slice(0, 0.04); print(os.sched_getscheduler(0) == os.SCHED_IDLE, turns.get_slice(0))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["True", str(usual)]


def test_what_works_beside_frames_lets_them_go_first(usual: float) -> None:
    before = set(thread_scheduling.threads_named(""))
    with JobSystem(1, priority="below_normal"):
        (job,) = set(thread_scheduling.threads_named("")) - before
        end = time.monotonic() + 10
        while (
            thread_scheduling.get_slice(job) != thread_scheduling.LONG_SLICE
        ):  # it says so itself, once it runs
            assert time.monotonic() < end
            time.sleep(0.001)
    loading = SlicedThread(lambda: thread_scheduling.get_slice(0))
    loading.wait()
    assert loading.result() == thread_scheduling.LONG_SLICE
    assert thread_scheduling.LONG_SLICE > thread_scheduling.FRAME_SLICE


def test_elsewhere_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "pdp11")
    thread_scheduling.set_slice(0, 0.016)
    assert thread_scheduling.get_slice(0) is None
    monkeypatch.setattr(sys, "platform", "win32")
    thread_scheduling.set_slice(0, 0.016)
    assert thread_scheduling.get_slice(0) is None


def test_threads_are_found_by_name() -> None:
    assert thread_scheduling.threads_named("no thread is called that") == []
    if sys.platform.startswith("linux"):
        with open("/proc/thread-self/comm") as file:
            assert threading.get_native_id() in thread_scheduling.threads_named(file.read().strip())
