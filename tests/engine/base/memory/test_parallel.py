"""Work in parts: each index once, on several threads where it is large, and errors come back."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

import pytest

from engine.base.memory import parallel
from engine.base.memory.parallel import in_parts, prefetched
from engine.base.sliced_thread import SlicedThread

LARGE = parallel.LARGE_EACH


@pytest.fixture(autouse=True)
def three_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 3)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 10])
@pytest.mark.parametrize("size", [1, parallel.LARGE])
def test_every_index_is_worked_on_once(count: int, size: int) -> None:
    seen: list[int] = []
    in_parts(lambda begin, end: seen.extend(range(begin, end)), count, size)
    assert sorted(seen) == list(range(count))


def test_large_work_is_shared_and_small_work_is_not() -> None:
    threads: list[int] = []
    in_parts(lambda begin, end: threads.append(threading.get_ident()), 9, 1)
    assert threads == [threading.get_ident()]
    in_parts(lambda begin, end: threads.append(end - begin), 9, parallel.LARGE)
    assert threads[1:] == [3, 3, 3]


def test_an_error_on_another_thread_is_raised_here() -> None:
    def work(begin: int, end: int) -> None:
        if begin:
            raise ValueError(f"from {begin}")

    with pytest.raises(ValueError, match="from [36]"):
        in_parts(work, 9, parallel.LARGE)


@pytest.mark.parametrize("size", [1, parallel.LARGE_EACH])
def test_what_is_wanted_is_made_once(size: int) -> None:
    made: list[int] = []

    def maker(number: int) -> Callable[[], int]:
        return lambda: made.append(number) or number * number  # type: ignore[func-returns-value]

    makers = {str(number): (maker(number), size) for number in range(30)}
    with prefetched(makers) as get:
        assert [get(name) for name in makers] == [number * number for number in range(30)]
    assert sorted(made) == list(range(30))


def test_other_threads_begin_at_the_end() -> None:
    here, is_made = threading.get_ident(), threading.Event()

    def last() -> int:
        is_made.set()
        return threading.get_ident()

    def first() -> int:
        assert is_made.wait(60)
        return threading.get_ident()

    with prefetched({"first": (first, LARGE), "last": (last, LARGE)}) as get:
        assert get("last") != here
        get("first")


def test_beside_a_game_no_other_thread_works() -> None:
    makers = dict.fromkeys("abc", (threading.get_ident, LARGE))

    def all_made() -> tuple[int, set[int]]:
        with prefetched(makers) as get:
            return threading.get_ident(), {get(name) for name in makers}

    thread = SlicedThread(all_made)
    assert thread.wait(60)
    own, made_by = thread.result()
    assert made_by == {own}


def test_what_fails_on_another_thread_is_made_here() -> None:
    here, has_failed = threading.get_ident(), threading.Event()

    def make() -> int:
        if threading.get_ident() == here:
            return 7
        has_failed.set()
        raise MemoryError

    with prefetched({"other": (lambda: 1, LARGE), "last": (make, LARGE)}) as get:
        assert has_failed.wait(60)
        assert get("last") == 7


def test_nothing_is_made_any_more_once_nobody_wants_it() -> None:
    began, go_on, made = threading.Event(), threading.Event(), list[int]()

    def make() -> None:
        began.set()
        assert go_on.wait(60)
        made.append(1)

    threads = set(threading.enumerate())
    with contextlib.suppress(KeyError), prefetched(dict.fromkeys(map(str, range(9)), (make, LARGE))):
        assert began.wait(60)
        raise KeyError
    go_on.set()
    for thread in set(threading.enumerate()) - threads:
        thread.join(60)
    assert len(made) < 9
