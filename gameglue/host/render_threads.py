"""Thread scheduling of the frame's thread and of a software renderer's threads."""

from __future__ import annotations

from engine.base import thread_scheduling

_PREFIX = "llvmpipe"
"""How the names of Mesa's drawing threads begin."""


def prioritize_frame_thread() -> None:
    """Give this thread short time slices, and keep rendering threads from preempting it."""
    thread_scheduling.set_slice(0, thread_scheduling.FRAME_SLICE)
    for thread in thread_scheduling.threads_named(_PREFIX):
        thread_scheduling.set_batch_policy(thread)
        thread_scheduling.set_slice(thread, thread_scheduling.LONG_SLICE)
