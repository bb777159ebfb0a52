"""Incremental work: generators that yield where the caller may do something else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Offload(Generic[T]):
    """Work that a generator yields so that the caller may `run` it on another thread."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._found: list[T] = []
        self._error: Exception | None = None
        self._running = threading.Lock()

    def run(self) -> None:
        """Do the work unless it is done."""
        with self._running:
            if self._found or self._error is not None:
                return
            try:
                self._found.append(self._work())
            except Exception as error:  # noqa: BLE001 - raised by `result`
                self._error = error

    def result(self) -> T:
        """Return the result or raise the error of the work; does the work if it is not done."""
        self.run()
        if self._error is not None:
            raise self._error
        return self._found[0]


SmallSteps = Generator[Offload[Any] | None, None, T]
"""Yields None, or work that another thread may do before the generator is resumed."""


def finish(steps: SmallSteps[T]) -> T:
    """Run a generator to its end, and return what it returns."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        found: T = end.value
        return found


def in_one_step(steps: SmallSteps[T]) -> T | None:
    """Return what a generator returns before its first yield; else close it and return None."""
    try:
        next(steps)
    except StopIteration as end:
        found: T = end.value
        return found
    steps.close()
    return None


def within(block: Callable[[], AbstractContextManager[Any]], steps: SmallSteps[T]) -> SmallSteps[T]:
    """Run each step of a generator within a context manager."""
    while True:
        try:
            with block():
                work = next(steps)
        except StopIteration as end:
            found: T = end.value
            return found
        yield work
