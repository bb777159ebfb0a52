"""Work of NumPy's on large arrays, cut in parts for several threads: its loops do not hold Python's lock."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

LARGE = 1 << 22
"""Bytes below which one thread is done before another has started."""

MOST = 4
"""Threads; memory is no faster for more."""


def in_parts(work: Callable[[int, int], object], count: int, size: int) -> None:
    """`work(begin, end)` for parts of `range(count)` that together touch `size` bytes.

    What one of them raises is raised when all have ended.
    """
    threads = min(MOST, os.cpu_count() or 1, count)
    if size < LARGE or threads < 2:
        work(0, count)
        return
    errors: list[BaseException] = []

    def part(number: int) -> None:
        try:
            work(number * count // threads, (number + 1) * count // threads)
        except BaseException as error:  # noqa: BLE001 - raised below, on the thread that asked
            errors.append(error)

    others = [threading.Thread(target=part, args=(number,)) for number in range(1, threads)]
    for other in others:
        other.start()
    part(0)
    for other in others:
        other.join()
    if errors:
        raise errors[0]
