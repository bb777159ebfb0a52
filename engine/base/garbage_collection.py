"""Garbage collection control while long-lived objects are created."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType

_RARELY = (10_000, 20, 100)
"""Thresholds of `gc.set_threshold` for a thread that makes a plan: Python's own find nothing there, and take
a third of its time.
"""


class _Blocks:
    """How many blocks of `collecting_rarely` are open, and the thresholds outside of them and within."""

    lock = threading.Lock()
    count = 0
    before = within = (0, 0, 0)


def imported(name: str) -> ModuleType:
    """Import a module within `importing`, unless it is already imported."""
    if name in sys.modules:
        # The end of such a block takes milliseconds where a program has frozen much.
        return import_module(name)
    with importing():
        return import_module(name)


@contextmanager
def importing() -> Iterator[None]:
    """Context manager: pauses garbage collection during imports.

    Nor does it look at these objects soon after: they go to the oldest generation.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        # Together, these two move all objects there. If a program has frozen its own, they stay frozen.
        if not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()
        if was_enabled:
            gc.enable()


@contextmanager
def collecting_rarely() -> Iterator[None]:
    """Context manager: makes garbage collection rarer while long-lived objects, such as plans, are created.

    Any thread may use this, and several at once. Thresholds that are higher stay as they are.
    """
    with _Blocks.lock:
        if not _Blocks.count:
            _Blocks.before = gc.get_threshold()
            if 0 < _Blocks.before[0] < _RARELY[0]:
                gc.set_threshold(*_RARELY)
            # Some versions of Python ignore the last one.
            _Blocks.within = gc.get_threshold()
        _Blocks.count += 1
    try:
        yield
    finally:
        with _Blocks.lock:
            _Blocks.count -= 1
            if not _Blocks.count and gc.get_threshold() == _Blocks.within:
                gc.set_threshold(*_Blocks.before)
