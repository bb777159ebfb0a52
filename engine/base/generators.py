"""Incremental work: generators that yield where the caller may do something else."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from typing import Any, TypeVar

T = TypeVar("T")


def finish(steps: Generator[None, None, T]) -> T:
    """Run a generator to its end, and return what it returns."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        found: T = end.value
        return found


def in_one_step(steps: Generator[None, None, T]) -> T | None:
    """Return what a generator returns before its first yield; None if it yields, where it is closed."""
    try:
        next(steps)
    except StopIteration as end:
        found: T = end.value
        return found
    steps.close()
    return None


def within(
    block: Callable[[], AbstractContextManager[Any]], steps: Generator[None, None, T]
) -> Generator[None, None, T]:
    """The same steps, each within a block of its own."""
    while True:
        try:
            with block():
                next(steps)
        except StopIteration as end:
            found: T = end.value
            return found
        yield
