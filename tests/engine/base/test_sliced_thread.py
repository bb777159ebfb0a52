"""A thread that runs only while it is let: slices, calls without the GIL, errors, and nobody who comes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from engine.base import sliced_thread
from engine.base.sliced_thread import SlicedThread


def count_to(n: int, counted: list[int]) -> Callable[[], int]:
    def work() -> int:
        for k in range(n):
            counted.append(int(str(k)))
        return n

    return work


def until_done(thread: SlicedThread[int], seconds: float = 0.002) -> int:
    """Slices until it is done."""
    slices, end = 0, time.monotonic() + 30
    while not thread.advance(seconds):
        slices += 1
        assert time.monotonic() < end
    return slices


def test_its_function_runs_to_the_end_in_slices() -> None:
    counted: list[int] = []
    thread = SlicedThread(count_to(1_000_000, counted))
    assert until_done(thread, 0.0005) > 3
    assert thread.result() == 1_000_000
    assert counted == list(range(1_000_000))


def test_between_slices_it_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sliced_thread, "PATIENCE", 60.0)
    counted: list[int] = []
    thread = SlicedThread(count_to(1_000_000, counted))
    end = time.monotonic() + 30
    while not counted and time.monotonic() < end:
        thread.advance(0.001)
    while not thread._stopped.acquire(timeout=0.1):
        pass
    thread._stopped.release()
    before = len(counted)
    time.sleep(0.05)
    assert before == len(counted)
    thread.wait()
    assert thread.result() == 1_000_000


def test_nobody_waits_for_a_call_that_does_without_the_gil() -> None:
    go_on = threading.Event()
    thread: SlicedThread[bool] = SlicedThread(lambda: go_on.wait(60))
    for _ in range(20):
        thread.advance(0.002)
    assert not thread.is_done
    go_on.set()
    thread.wait()
    assert thread.result()  # a caller that waited would have waited for the whole minute


def test_an_error_is_raised_where_the_result_is_asked_for() -> None:
    def fail() -> int:
        raise ValueError("no such thing")

    thread = SlicedThread(fail)
    until_done(thread)
    with pytest.raises(ValueError, match="no such thing"):
        thread.result()


def test_one_that_nobody_lets_run_goes_on_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sliced_thread, "PATIENCE", 0.02)
    counted: list[int] = []
    thread = SlicedThread(count_to(1000, counted))
    assert thread._ended.wait(30)
    assert thread.advance(0.001)
    assert len(counted) == 1000


def test_a_lock_that_it_holds_does_not_stop_its_caller_for_ever() -> None:
    lock = threading.Lock()
    inside = threading.Event()

    def work() -> None:
        with lock:
            inside.set()
            for _ in range(200_000):
                len("")

    thread: SlicedThread[None] = SlicedThread(work)
    while not inside.is_set():
        thread.advance(0.001)
    assert lock.acquire(timeout=30)
    lock.release()
    thread.wait()


def test_one_that_went_on_freely_can_be_sliced_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sliced_thread, "PATIENCE", 0.01)
    counted: list[int] = []
    thread = SlicedThread(count_to(3_000_000, counted))
    while not counted:
        time.sleep(0.005)
    monkeypatch.setattr(sliced_thread, "PATIENCE", 60.0)
    end = time.monotonic() + 30
    while not thread._stopped.acquire(timeout=0.01) and time.monotonic() < end:
        thread.advance(0.001)
    if not thread.is_done:
        before = len(counted)
        time.sleep(0.03)
        assert len(counted) == before
    thread._stopped.release()
    thread.wait()
    assert len(counted) == 3_000_000
