"""NumPy operations on large arrays in several threads, as their loops release the GIL."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from typing import TypeVar

T = TypeVar("T")

LARGE = 1 << 22
"""Bytes below which one thread is done before another has started."""

MOST = 4
"""Threads; memory is no faster for more."""

here = threading.local()
"""`is_beside_a_game`: set on threads that run only while a game's frames let them, and start no others."""

LARGE_EACH = 1 << 20
"""Bytes of an array below which it takes no longer to make than to hand over."""


@contextmanager
def prefetched(makers: Mapping[str, tuple[Callable[[], T], int]]) -> Iterator[Callable[[str], T]]:
    """Context manager: other threads create arrays ahead, in the order of `makers` (function, bytes).

    Yields what gives each of them, once: what is small, or nobody has begun with, is made on the calling
    thread, and so is what failed on another.
    """
    threads = 0 if getattr(here, "is_beside_a_game", False) else min(MOST, os.cpu_count() or 1) - 1
    large = [name for name, (_, size) in makers.items() if size >= LARGE_EACH]
    begun: dict[str, Future[T]] = {}

    def get(name: str) -> T:
        future = begun.pop(name, None)
        if future is None or future.cancel() or future.exception() is not None:
            return makers[name][0]()
        return future.result()

    if threads < 1 or len(large) < 2:
        yield get
        return
    pool = ThreadPoolExecutor(threads, thread_name_prefix="gameglue-packing")
    # They begin at the end, and meet the caller in the middle.
    begun.update((name, pool.submit(makers[name][0])) for name in reversed(large))
    try:
        yield get
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def in_parts(work: Callable[[int, int], object], count: int, size: int) -> None:
    """`work(begin, end)` for parts of `range(count)` that together touch `size` bytes.

    What one of them raises is raised when all have ended.
    """
    threads = 1 if size < LARGE else min(MOST, os.cpu_count() or 1, count)
    if threads < 2:
        work(0, count)
        return
    bounds = [number * count // threads for number in range(threads + 1)]
    with ThreadPoolExecutor(threads - 1, thread_name_prefix="gameglue-parts") as pool:
        others = [pool.submit(work, *part) for part in pairwise(bounds[1:])]
        work(0, bounds[1])
    for other in others:
        other.result()
