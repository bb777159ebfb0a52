"""Counts the blocking OpenGL calls of every context made within a block: the game's and the devices'."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from engine.device.counting import CountingLoader


class CountedContexts:
    """The counting loaders of the contexts that were made."""

    def __init__(self) -> None:
        self.loaders: list[CountingLoader] = []

    def wrap(self, loader: Any) -> CountingLoader:
        """A loader that counts, in the place of `loader`."""
        counting = CountingLoader(loader)
        self.loaders.append(counting)
        return counting

    @property
    def counts(self) -> Counter[str]:
        """Blocking calls so far by name, of all contexts."""
        return sum((loader.counts for loader in self.loaders), Counter())


_counting: list[CountedContexts] = []


@contextmanager
def counting_gl_calls() -> Iterator[CountedContexts]:
    """Count in every `GLDevice`, and in every context that asks `loader_wrapper`, made within a block.

    The counted functions take a microsecond or two longer, also after the block.
    """
    contexts = CountedContexts()
    _counting.append(contexts)
    try:
        yield contexts
    finally:
        _counting.remove(contexts)


def loader_wrapper() -> Callable[[Any], CountingLoader] | None:
    """The wrapper for the loader of a new context; None if nothing is counted."""
    return _counting[-1].wrap if _counting else None
