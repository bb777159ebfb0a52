"""A recorded plan on OpenCL, and how its steps become dispatches."""

from __future__ import annotations

from math import prod
from typing import Any

from engine.backends.base import Program
from engine.backends.opencl.printer import GenericSource
from engine.backends.opencl.programs import Compiled
from engine.backends.opencl.tuned import Dispatch, TunedKernel
from engine.compiler.plan import Step
from engine.kernels.expr import Expr
from engine.kernels.kernel import Kernel

# PoCL compiles a kernel again for grids with more groups than this along an axis.
_MAX_GROUPS = 65535
# Loop rounds of one dispatch. Drivers reset devices whose dispatches take a second or two.
_MAX_WORK = 1 << 32
Command = tuple[Any, tuple[int, ...], tuple[int, ...]]
"""Kernel with its arguments, work-items, work-items in a group."""


class CLProgram(Program):
    """A recorded plan: commands in order, and the temporaries that belong to it."""

    def __init__(self, commands: list[Command], memory: list[Any]) -> None:
        self.commands = commands
        self._memory = memory

    def temporaries(self) -> dict[int, int]:
        """Buffers; parts of one count with it."""
        return {id(mem): mem.size for mem in self._memory if mem.associated_memobject is None}

    def release(self) -> None:
        """Free the temporaries and the commands; OpenCL keeps both until what is enqueued has run."""
        self.commands.clear()
        for mem in self._memory:
            mem.release()
        self._memory.clear()


def dispatches(compiled: Compiled, step: Step) -> list[Dispatch]:
    """The dispatches of a step, none of them too long for a driver's watchdog."""
    source, kernel = compiled.source, step.kernel
    if not isinstance(source, GenericSource):
        assert isinstance(kernel, TunedKernel)
        return kernel.dispatches(step.space, step.values, _MAX_GROUPS)
    assert isinstance(kernel, Kernel)
    total, local = prod(step.space), source.local[0]
    limit = most_groups(compiled, step) * local
    parts: list[Dispatch] = []
    for first in range(0, total, limit):
        count = min(limit, total - first)
        parts.append((source.values(step.values, step.space, first, count), (-(-count // local) * local,)))
    return parts


def most_groups(compiled: Compiled, step: Step) -> int:
    """How many groups a dispatch of the step may have, for drivers' watchdogs; at least 1."""
    kernel = step.kernel
    if isinstance(kernel, TunedKernel):
        return kernel.most_groups(step.values, _MAX_GROUPS)
    assert isinstance(kernel, Kernel)
    local = compiled.source.local[0]
    return max(1, min(_MAX_GROUPS, _MAX_WORK // rounds(kernel.body, step.values) // local))


def rounds(formula: Expr, values: tuple[int | float, ...]) -> int:
    """About how many loop rounds one element takes: the product of nested loops' extents."""
    memo: dict[Expr, int] = {}

    def visit(node: Expr) -> int:
        if node not in memo:
            inner = max((visit(a) for a in node.args), default=1)
            memo[node] = inner * extent(node.args[0]) if node.op in ("reduce", "fold") else inner
        return memo[node]

    def extent(node: Expr) -> int:
        if node.op == "param":
            return max(1, int(values[node.attr]))
        return max(1, int(node.attr)) if node.op == "const" else 1

    return visit(formula)
