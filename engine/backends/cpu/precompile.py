"""Precompiles kernels that most networks need, on a machine without a cache."""

from __future__ import annotations

from functools import cache

from engine.backends.cpu.execution.template_source import sources_of_sizes
from engine.backends.cpu.kernels.convolution.winograd_weights import transforming_source
from engine.backends.cpu.kernels.matmul.packing import packing_source
from engine.device import native
from engine.device.jobs.builtin_commands import job_sources


@cache
def precompile_kernels(is_certain: bool = False) -> None:
    """Start precompiling in the background, unless any process did so before.

    One by one, when each is needed, they would take three seconds on one core: nothing runs without the job
    threads' program, and weights are packed while plans are made. A process that compiles takes a second to
    start, which is the time that a model takes to be read.

    is_certain: there will be job threads, so their program, the longest, goes before a network's kernels.
    """
    program, *others = job_sources()
    store = native.process_store()
    if store.is_kept(program):
        return
    if is_certain:
        store.prepare_async([program])
    store.prepare_ahead([program, packing_source(), transforming_source(), *sources_of_sizes(), *others])
