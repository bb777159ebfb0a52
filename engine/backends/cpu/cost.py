"""How long a step takes, roughly: enough to tell how many chunks to cut, and whether to wake a thread."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from engine.backends.cpu.native_kernel import NativeKernel
from engine.compiler.plan import Step
from engine.kernels.expr import Expr
from engine.kernels.kernel import Kernel

INLINE_NS = 20_000.0
"""Plans estimated below this run on the calling thread: waking another takes as long."""

CHUNK_NS = 20_000.0
"""Work below this is not worth handing to another thread."""

CHUNKS_PER_THREAD = 4
"""So many that a thread which starts late still finds something to do."""

# Nanoseconds per element on one core of a few years ago, in loops that vectorise.
_OPERATION_NS = 0.15
_FUNCTION_NS = 1.0
_INTEGER_DIVISION_NS = 3.0
_SCALAR_STEP_NS = 1.5
_FUNCTIONS = frozenset("exp log sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf pow".split())
_SHORTEST_BLOCK = 256
# What a loop's extent counts for when it depends on the element.
_UNKNOWN_EXTENT = 16


def step_ns(step: Step) -> float:
    """Estimated nanoseconds on one thread."""
    if isinstance(step.kernel, NativeKernel):
        return float(step.values[0]) * step.space[0]
    assert isinstance(step.kernel, Kernel)
    return prod(step.space) * formula_ns(step.kernel.body, step.values)


def formula_ns(body: Expr, values: Sequence[int | float]) -> float:
    """Estimated nanoseconds per element, repeated nodes counted once."""
    return sum(_OPERATION_NS if cost is None else cost for cost in _costs(body, values, set()))


def _costs(node: Expr, values: Sequence[int | float], seen: set[Expr]) -> list[float | None]:
    if node in seen or node.op in ("const", "param"):
        return []
    seen.add(node)
    if node.op in ("reduce", "fold"):
        extent = node.args[0]
        steps = float(_UNKNOWN_EXTENT)
        if extent.op == "param":
            steps = float(values[extent.attr])
        elif extent.op == "const":
            steps = float(extent.attr)
        inner = sum(_OPERATION_NS if c is None else c for a in node.args[1:] for c in _costs(a, values, seen))
        return [max(steps, 1.0) * (inner + _SCALAR_STEP_NS)]
    costs = [c for a in node.args for c in _costs(a, values, seen)]
    if node.op in _FUNCTIONS:
        costs.append(_FUNCTION_NS)
    elif node.op in ("div", "rem") and node.dtype not in ("float32", "float64"):
        costs.append(_INTEGER_DIVISION_NS)
    else:
        costs.append(None)
    return costs


def grain(total: int, nanoseconds: float, threads: int) -> int:
    """Into chunks of how many of its `total` units a command is cut."""
    chunks = min(int(nanoseconds / CHUNK_NS), threads * CHUNKS_PER_THREAD, total)
    if threads == 1 or chunks <= 1:
        return max(total, 1)
    return -(-total // chunks)


def row_blocks(space: Sequence[int], nanoseconds: float, threads: int) -> int:
    """Into how many blocks to cut each row of a printed kernel, where there are few and long ones."""
    rows = prod(space[:-1])
    wanted = min(int(nanoseconds / CHUNK_NS), threads * CHUNKS_PER_THREAD) if threads > 1 else 1
    if len(space) == 1 or rows == 0 or rows >= wanted:
        return 1
    return max(1, min(-(-wanted // rows), space[-1] // _SHORTEST_BLOCK))
