"""Estimated cost of a step: decides the number of chunks, and whether to wake a thread."""

from __future__ import annotations

from math import prod, trunc

from engine.backends.cost import formula_ns
from engine.backends.cpu.codegen import task_partition
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.backends.cpu.codegen.task_partition import CHUNK_NS, CHUNKS_PER_THREAD
from engine.compiler.plan import RepeatedSteps, Step, StoredKernel
from engine.kernels.kernel import Kernel
from engine.kernels.size import as_float, largest, smallest

TRIAL_NS = 200_000.0
"""Plans estimated below this run on the calling thread a few times, to learn what they really take."""

DETERMINISTIC_THREADS = 4
"""For how many threads work is cut where the cut must not depend on how many there are: 16 tasks at most."""

SHORTEST_BLOCK = 256
"""Elements of the shortest piece of a row."""


def step_ns(step: Step) -> float:
    """Estimated nanoseconds on one thread."""
    if isinstance(step.kernel, RepeatedSteps):
        run, last = (as_float(sum(map(step_ns, steps))) for steps in (step.kernel.body, step.kernel.last))
        return step.space[0] * run + last
    if isinstance(step.kernel, NativeKernel):
        return as_float(step.values[0]) * step.space[0]
    if isinstance(step.kernel, StoredKernel):
        return step.kernel.nanoseconds
    assert isinstance(step.kernel, Kernel)
    elements = prod(step.space) if step.window is None else step.window.elements
    body = step.kernel.body
    whole = formula_ns(body, step.values)
    # What no element of a row changes is computed once a row.
    each = formula_ns(body, step.values, frozenset((len(step.space) - 1, "flat")))
    return elements * each + prod(step.space[:-1]) * (whole - each)


def tasks_wanted(nanoseconds: float, threads: int) -> int:
    """The number of tasks that keep all threads busy."""
    if threads == 1 or type(nanoseconds) is float:
        return task_partition.tasks_wanted(nanoseconds, threads)
    return largest(1, smallest(trunc(nanoseconds / CHUNK_NS), threads * CHUNKS_PER_THREAD))
