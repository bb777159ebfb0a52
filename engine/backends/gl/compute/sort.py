"""Tuned stable sort: shaders for blocks and for merges of runs."""

from __future__ import annotations

from collections.abc import Sequence

from engine.backends.gl.compute.epilogue import grid_fits
from engine.backends.gl.compute.flat import flat_grid, flat_kernel
from engine.backends.gl.compute.printer import element
from engine.backends.gl.compute.target import Target
from engine.backends.gpu.sorts import (
    BLOCK,
    BLOCK_NAMES,
    EACH,
    GROUP,
    MERGE_NAMES,
    Dialect,
    Step,
    block_declarations,
    block_statements,
    key_function,
    merge_statements,
    small_block_statements,
)
from engine.compiler.plan import Tuner

_BLOCK_NS, _MERGE_NS = 20.0, 10.0


def _dialect(target: Target, step: Step) -> Dialect:
    texels, length = target.texels, step.length

    def read(position: str) -> str:
        text = element("b0", position, step.kind, texels)
        return text if step.has_keys else f"key_of({text})"

    def length_of(row: str) -> str:
        assert length is not None
        return f"int({element('b1', row, length.dtype.name, texels)})"

    return Dialect(read, None if length is None else length_of, "o", "memoryBarrierShared(); barrier();")


def block_for(target: Target) -> int:
    """Elements of a block: those of a thread where shared memory is slow, which it is in software."""
    return EACH if target.texels else BLOCK


def emit_blocks(target: Target, tuner: Tuner, step: Step) -> bool:
    """Emit the step that sorts blocks; False beyond the device's limits."""
    dialect, word = _dialect(target, step), "float" if step.kind == "float32" else "int"
    functions = [] if step.has_keys else key_function(step, "int", word, "floatBitsToInt(x)")
    if target.texels:
        lines = small_block_statements(dialect)
        return _emit(target, tuner, step, lines, BLOCK_NAMES, functions, BLOCK * _BLOCK_NS)
    lines, head = block_statements(dialect), [*block_declarations("shared"), *functions]
    return _emit(target, tuner, step, lines, BLOCK_NAMES, head, BLOCK * _BLOCK_NS)


def emit_merge(target: Target, tuner: Tuner, step: Step) -> bool:
    """Emit a step that merges runs; False beyond the device's limits."""
    lines = merge_statements(_dialect(target, step))
    return _emit(target, tuner, step, lines, MERGE_NAMES, (), GROUP * EACH * _MERGE_NS)


def _emit(
    target: Target,
    tuner: Tuner,
    step: Step,
    lines: Sequence[str],
    names: Sequence[str],
    head: Sequence[str],
    group_ns: float,
) -> bool:
    grid = flat_grid(step.threads, target)
    if not grid_fits(grid, target):
        return False
    lengths = [] if step.length is None else [step.length]
    kinds = [step.kind, *(v.dtype.name for v in lengths)]
    kernel = flat_kernel(lines, names, kinds, "int32", target, head, group_ns)
    inputs = (step.source, *(v.root.name for v in lengths))
    tuner.emit(kernel, grid, (*step.values, 0, 0, 0), inputs, step.target)
    return True
