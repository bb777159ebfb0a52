"""The steps of a sort."""

from __future__ import annotations

from collections.abc import Sequence

from engine.backends.opencl.printer import element
from engine.backends.opencl.tuned import build, indent
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

# Multiplications that take as long as sorting or merging an element.
_BLOCK_AREA, _MERGE_AREA = 64, 16


def emit_blocks(tuner: Tuner, step: Step) -> bool:
    """Emit the step that sorts blocks: a group for each."""
    lines = block_statements(_dialect(step))
    return _emit(tuner, step, lines, BLOCK_NAMES, block_declarations("__local"), _BLOCK_AREA)


def emit_merge(tuner: Tuner, step: Step) -> bool:
    """Emit a step that merges runs."""
    return _emit(tuner, step, merge_statements(_dialect(step)), MERGE_NAMES, (), _MERGE_AREA)


def _dialect(step: Step) -> Dialect:
    length = step.length

    def length_of(row: str) -> str:
        assert length is not None
        return f"(int){element(length.dtype.name, 'L', row)}"

    barrier = "barrier(CLK_LOCAL_MEM_FENCE);"
    return Dialect("X[{}]".format, None if length is None else length_of, "y", barrier)


def _emit(
    tuner: Tuner, step: Step, lines: Sequence[str], names: Sequence[str], head: Sequence[str], area: int
) -> bool:
    thread = f"const int t = (f0 + (int)get_group_id(0)) * {GROUP} + (int)get_local_id(0);"
    lengths = [] if step.length is None else [step.length]
    operands = ["X:int32", *(f"L:{v.dtype.name}" for v in lengths)]
    body = indent([*head, thread, *lines], 1)
    kernel = build(body, None, operands, names, (GROUP, 1, 1), output="int32", area=BLOCK * area)
    inputs = (step.source, *(v.root.name for v in lengths))
    tuner.emit(kernel, (-(-step.threads // GROUP), 1, 1), step.values, inputs, step.target)
    return True
