"""Thread scheduling: the threads of a software renderer, and the frame's own."""

from __future__ import annotations

from engine.base import thread_scheduling

_PREFIX = "llvmpipe"
"""How the names of Mesa's drawing threads begin."""


def prefer_this_thread() -> None:
    """Give this thread short time slices, and have the drawing threads wait for their turn."""
    thread_scheduling.set_slice(0, thread_scheduling.FRAME_SLICE)
    for thread in thread_scheduling.threads_named(_PREFIX):
        thread_scheduling.wait_for_turn(thread)
        thread_scheduling.set_slice(thread, thread_scheduling.LONG_SLICE)
