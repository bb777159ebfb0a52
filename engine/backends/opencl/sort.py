"""The steps of a sort."""

from __future__ import annotations

from collections.abc import Sequence

from engine.backends.opencl.tuned import TunedKernel, build, indent
from engine.backends.sorts import (
    BLOCK,
    BLOCK_NAMES,
    GROUP,
    MERGE_NAMES,
    Dialect,
    Step,
    block_declarations,
    block_statements,
    merge_statements,
)
from engine.compiler.plan import Tuner

_DIALECT = Dialect("X[{}]".format, "y", "barrier(CLK_LOCAL_MEM_FENCE);")
# Multiplications that take as long as sorting or merging an element.
_BLOCK_AREA, _MERGE_AREA = 64, 16


def emit_blocks(tuner: Tuner, step: Step) -> bool:
    """Emit the step that sorts blocks: a group for each."""
    lines = [*block_declarations("__local"), *_thread(), *block_statements(_DIALECT)]
    return _emit(tuner, step, _kernel(lines, BLOCK_NAMES, BLOCK * _BLOCK_AREA))


def emit_merge(tuner: Tuner, step: Step) -> bool:
    """Emit a step that merges runs."""
    lines = [*_thread(), *merge_statements(_DIALECT)]
    return _emit(tuner, step, _kernel(lines, MERGE_NAMES, BLOCK * _MERGE_AREA))


def _thread() -> list[str]:
    return [f"const int t = (f0 + (int)get_group_id(0)) * {GROUP} + (int)get_local_id(0);"]


def _kernel(lines: Sequence[str], names: Sequence[str], area: int) -> TunedKernel:
    return build(indent(lines, 1), None, ("X:int32",), names, (GROUP, 1, 1), output="int32", area=area)


def _emit(tuner: Tuner, step: Step, kernel: TunedKernel) -> bool:
    tuner.emit(kernel, (-(-step.threads // GROUP), 1, 1), step.values, (step.source,), step.target)
    return True
