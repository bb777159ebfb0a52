"""Stack size of the threads that run kernels."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator

JOB_STACK = 4 << 20
"""Bytes of stack of a job thread. Only what is used takes memory."""

_UNLIMITED_STACK = 2 << 20
"""What glibc gives to threads where the limit of stacks is "unlimited"."""

_starting = threading.Lock()


def smallest_stack() -> int:
    """Return how many bytes of stack a thread of this process has at least.

    Any thread may run a kernel: one that schedules a short plan, or waits for a job.
    """
    if chosen := threading.stack_size():
        return chosen
    if sys.platform == "darwin":
        return 8 << 20
    if "CS_GNU_LIBC_VERSION" not in getattr(os, "confstr_names", {}):
        return 1 << 20
    import resource  # only Unix has it

    soft, _ = resource.getrlimit(resource.RLIMIT_STACK)
    return _UNLIMITED_STACK if soft == resource.RLIM_INFINITY else int(soft)


@contextlib.contextmanager
def job_stacks() -> Iterator[None]:
    """Context manager: new threads get the job threads' stack size, regardless of the process's limit."""
    if sys.platform == "win32":
        # There, a requested stack is committed at once.
        yield
        return
    with _starting:
        before = threading.stack_size(JOB_STACK)
        try:
            yield
        finally:
            threading.stack_size(before)
