"""What Python's garbage collector does to frames, and what a game's host does about it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def long_lived_kept() -> Iterator[None]:
    """Have the collector leave alone what is there now, until the block ends.

    A full collection looks at every object: modules, types and functions that a game has loaded make it take
    tens of milliseconds, within some frame. What comes later is still collected.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
