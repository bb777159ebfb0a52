"""Work in parts: each index once, on several threads where it is large, and errors come back."""

from __future__ import annotations

import threading

import pytest

from engine.memory import threaded
from engine.memory.threaded import in_parts


@pytest.fixture(autouse=True)
def three_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 3)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 10])
@pytest.mark.parametrize("size", [1, threaded.LARGE])
def test_every_index_is_worked_on_once(count: int, size: int) -> None:
    seen: list[int] = []
    in_parts(lambda begin, end: seen.extend(range(begin, end)), count, size)
    assert sorted(seen) == list(range(count))


def test_large_work_is_shared_and_small_work_is_not() -> None:
    threads: list[int] = []
    in_parts(lambda begin, end: threads.append(threading.get_ident()), 9, 1)
    assert threads == [threading.get_ident()]
    in_parts(lambda begin, end: threads.append(end - begin), 9, threaded.LARGE)
    assert threads[1:] == [3, 3, 3]


def test_an_error_on_another_thread_is_raised_here() -> None:
    def work(begin: int, end: int) -> None:
        if begin:
            raise ValueError(f"from {begin}")

    with pytest.raises(ValueError, match="from [36]"):
        in_parts(work, 9, threaded.LARGE)
