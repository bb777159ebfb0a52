"""Garbage collection: keeps full collections out of a game's frames."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_blocks = 0
"""How many blocks of `freeze_garbage_collector` are open."""


@contextmanager
def freeze_garbage_collector(*, collects: bool = True) -> Iterator[None]:
    """Context manager: the collector ignores the objects that exist now.

    A full collection looks at every object: modules, types and functions that a game has loaded make it take
    tens of milliseconds, within some frame. What comes later is still collected. Blocks nest and only
    the outermost one collects, so a program that runs an app a few frames at a time can hold one around all.

    Args:
        collects: Whether to collect garbage first, which takes tens of milliseconds. Otherwise garbage of
            before is kept until the block ends.
    """
    global _blocks
    if _blocks == 0:
        if collects:
            gc.collect()
        gc.freeze()
    _blocks += 1
    try:
        yield
    finally:
        _blocks -= 1
        if _blocks == 0:
            gc.unfreeze()
