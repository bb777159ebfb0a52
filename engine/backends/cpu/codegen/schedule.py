"""Schedules of tuned kernels: partition of the results into tasks.

A kernel has a `TaskGrid`, the axes along which its results are divided. From it come the words of the
argument block that say how many blocks an axis has and how large they are, the kernel's statements that find
a task's block, and the values that a rule packs. A rule divides an axis with `even_blocks`, halves blocks
with `halve` or `partition_axes` until they fit into memory and there are enough of them, or takes the
division of the least estimated time (`engine.backends.cpu.codegen.task_partition`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple

import numpy as np

from engine.backends.cpu.codegen.argument_block import ArgumentBlock
from engine.backends.cpu.codegen.epilogue import Epilogue
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.backends.cpu.codegen.task_partition import up
from engine.compiler.plan import Compute, Tuner
from engine.kernels.expr import FLAT, cast, load, substitute
from engine.kernels.size import largest, smallest
from engine.kernels.value import Value


# Frozen ones take three times as long to make, and each new size makes some for every product.
@dataclass(slots=True, unsafe_hash=True)
class Blocks:
    """An axis of results in blocks, of which the last may be smaller. Never changed."""

    count: int
    size: int

    def times(self, units: int) -> Blocks:
        """Convert blocks of tiles to blocks of results, for tiles of `units` results."""
        return Blocks(self.count, self.size * units)


class TaskSchedule(NamedTuple):
    """How a kernel is scheduled: its tasks, the estimated nanoseconds of one, the blocks along grid axes."""

    tasks: int
    task_ns: float
    blocks: tuple[Blocks, ...] = ()

    @classmethod
    def over(
        cls, blocks: tuple[Blocks, ...], total_ns: float, outer: int = 1, start_ns: float = 0.0
    ) -> TaskSchedule:
        """Create tasks for each block of `outer` grids, from total and start-up nanoseconds."""
        tasks = outer * prod([axis.count for axis in blocks])
        return cls(tasks, total_ns / tasks + start_ns, blocks)


class TaskGrid:
    """The axes along which a kernel's results are divided into tasks, the slowest first.

    Attributes:
        arguments: How many blocks an axis has and the size of one: `m_blocks` and `m_block` of an axis `m`.
    """

    def __init__(self, **axes: str) -> None:
        """Describe a grid. `axes`: by the name of each axis, the kernel's variable that holds its size."""
        assert not axes.keys() & set("acdinpqrt"), "formulas number variables with these letters"
        self._axes = axes
        self.arguments = ArgumentBlock(*(f"{name}_blocks {name}_block" for name in axes))

    def values(self, *blocks: Blocks) -> dict[str, float]:
        """The arguments for blocks along each axis."""
        return self.arguments.named([number for axis in blocks for number in (axis.count, axis.size)])

    def locate(self, outer: str = "") -> list[str]:
        """Statements that find a task's block: along an axis `m` from `m0` to `m1 - 1`.

        Args:
            outer: The variable for how many grids lie before the task's one; empty if there is one grid.
        """
        lines, rest = [], "task"
        for k, (name, size) in reversed([*enumerate(self._axes.items())]):
            above = f"above_{name}" if k else outer
            lines += [f"{above} = op_div({rest}, {name}_blocks)"] if above else []
            place = f"({rest} - {above} * {name}_blocks)" if above else rest
            lines += [f"{name}0 = {place} * {name}_block", f"{name}1 = min({name}0 + {name}_block, {size})"]
            rest = above
        return lines


@dataclass(slots=True)
class TiledAxis:
    """An axis divided into blocks of a multiple of `step` results, and at least `least`."""

    size: int
    block: int
    step: int = 1
    least: int = 1

    @classmethod
    def of_tiles(cls, size: int, block: int, tile: int) -> TiledAxis:
        """An axis whose blocks are whole tiles."""
        return cls(size, block, tile, tile)

    @property
    def count(self) -> int:
        """Number of blocks."""
        return -(-self.size // self.block)

    @property
    def blocks(self) -> Blocks:
        """The axis as currently partitioned."""
        return Blocks(self.count, self.block)

    @property
    def is_divisible(self) -> bool:
        """Whether a block may be smaller."""
        return self.block > self.least

    def halved(self) -> TiledAxis:
        """The axis with blocks of half the size."""
        return TiledAxis(self.size, up(-(-self.block // 2), self.step), self.step, self.least)


def first_divisible(*axes: TiledAxis) -> int | None:
    """The number of the first axis whose blocks may be smaller."""
    return next((k for k, axis in enumerate(axes) if axis.is_divisible), None)


def halve(
    axes: Iterable[TiledAxis],
    are_too_large: Callable[..., bool],
    choose: Callable[..., int | None] = first_divisible,
) -> list[TiledAxis]:
    """Halve blocks while they are too large.

    Args:
        axes: The axes, with the largest blocks to begin with.
        are_too_large: Says so of axes.
        choose: The number of the axis whose blocks are halved next; None if there is none.
    """
    found = [*axes]
    while are_too_large(*found):
        next_one = choose(*found)
        if next_one is None:
            break
        found[next_one] = found[next_one].halved()
    return found


def partition_axes(
    axes: Sequence[TiledAxis], outer: int, wanted: int, choose: Callable[..., int | None] = first_divisible
) -> tuple[Blocks, ...]:
    """Halve blocks until `outer` grids of them give as many tasks as wanted; see `halve`."""

    def are_too_few(*axes: TiledAxis) -> bool:
        tasks = outer
        for axis in axes:
            tasks *= -(-axis.size // axis.block)
        return tasks < wanted

    return tuple([axis.blocks for axis in halve(axes, are_too_few, choose)])


def even_blocks(size: int, wanted: int, step: int = 1) -> Blocks:
    """Blocks of equal size, a multiple of `step`: up to as many as wanted."""
    block = -(-size // largest(1, smallest(wanted, size)))
    if step > 1:
        block = up(block, step)
    return Blocks(-(-size // block), block)


def emit(
    tuner: Tuner, kernel: NativeKernel, schedule: TaskSchedule, arguments: Iterable[float],
    inputs: Iterable[str], output: str, epilogue: Epilogue | None = None,
) -> bool:  # fmt: skip
    """Emit the step of a tuned kernel, with its arguments in the prologue's order; True, as a rule returns.

    Args:
        tuner: Takes the step.
        kernel: The kernel.
        schedule: Its tasks.
        arguments: What the `values` of its `ArgumentBlock` gave.
        inputs: The buffers that the prologue names behind the output.
        output: The buffer that is written.
        epilogue: The kernel's epilogue, whose words and inputs come before these.
    """
    own, read = ((), ()) if epilogue is None else (epilogue.values, epilogue.inputs)
    values = (schedule.task_ns, *arguments, *own)
    tuner.emit(kernel, (schedule.tasks,), values, (*read, *inputs), output)
    return True


def emit_raw(
    compute: Compute, tuner: Tuner, dtype: np.dtype, kernel: NativeKernel,
    *steps: tuple[TaskSchedule, Iterable[float]], inputs: Iterable[str],
) -> bool:  # fmt: skip
    """Emit steps of a kernel that writes elements of type `dtype`, and the epilogue as a step of its own.

    steps: the schedule of each, and its arguments. Returns True, as `emit` does.
    """
    output = compute.output
    target = output.name if compute.epilogue is None else tuner.temporary(output.size, dtype)
    for schedule, arguments in steps:
        emit(tuner, kernel, schedule, arguments, inputs, target)
    if compute.epilogue is not None:
        made = load(Value(target, output.shape, dtype), FLAT)
        formula = substitute(compute.epilogue, lambda e: cast(made, e.dtype) if e.op == "acc" else None)
        tuner.steps.append(replace(compute, body=formula, hint=None, epilogue=None).as_step())
    return True
