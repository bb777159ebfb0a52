"""Kernels that a first network needs besides its own, compiled together on a machine that has none yet."""

from __future__ import annotations

from functools import cache

from engine import native
from engine.backends.cpu.packing import packing_source
from engine.backends.cpu.winograd_weights import transforming_source
from engine.jobs.system import job_sources


@cache
def compile_ahead() -> None:
    """Begin to compile them, unless that was done before, by this process or another; returns at once.

    One by one, as each is asked for, they would take three seconds on one core: nothing runs without the job
    threads' program, and weights are packed while plans are made.
    """
    program, *others = job_sources()
    if not native.is_kept(program):
        native.prepare_async([program, packing_source(), transforming_source(), *others])
