"""Running sums by blocks, and the positions of what is marked: kernels that write several elements a thread.

The sums of blocks are scanned by generic steps (`engine.operators.scans`). A generic last step would add up
its block for each element; here one thread goes through a block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.backends.operands import Divide, emit
from engine.base.dtypes import INT32, INT64
from engine.compiler.plan import Compute, Tuner
from engine.kernels.expr import lit
from engine.kernels.value import Value


@dataclass(frozen=True)
class Blocks:
    """A running sum or product of x (outer, count, inner), with what is `before` each block."""

    x: Value
    before: Value
    kind: str
    block: int
    exclusive: bool
    reverse: bool

    @property
    def threads(self) -> int:
        """One for each block."""
        return self.before.size

    @property
    def numbers(self) -> tuple[int, ...]:
        """What kernels take: count, inner, blocks, exclusive, reverse."""
        _, count, inner = self.x.shape
        return count, inner, self.before.shape[1], int(self.exclusive), int(self.reverse)


def tune_scan(compute: Compute, emit_blocks: Callable[[Blocks], bool]) -> bool:
    """Rule for hints of kind "scan"; False for a row that is one block.

    `emit_blocks` emits the kernel, if there is one for the types.
    """
    operands, attributes = compute.operands, compute.attributes
    if len(operands) == 1:
        return False
    x, before = operands
    return emit_blocks(
        Blocks(
            x, before, attributes["kind"], attributes["block"], attributes["exclusive"], attributes["reverse"]
        )
    )


@dataclass(frozen=True)
class Marks:
    """What is marked in mask (rows, count), with its inclusive running sum.

    shape: of a row, as what the indices are meant. Output is (rows, axes, room).
    """

    mask: Value
    through: Value
    shape: tuple[int, ...]
    room: int

    @property
    def sizes(self) -> tuple[int, ...]:
        """Those of the axes behind the first."""
        return self.shape[1:]

    @property
    def numbers(self) -> tuple[int, ...]:
        """What kernels take: total, count, room, and `sizes`."""
        return (self.mask.size, self.mask.shape[1], self.room, *self.sizes)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the numbers."""
        return ("total", "count", "room", *(f"size{axis}" for axis in range(1, len(self.shape))))

    @property
    def divisors(self) -> tuple[str, ...]:
        """Names of the numbers by which it divides: `count`, and those of `sizes`."""
        return ("count", *self.names[3:])

    def statements(self, divide: Divide, output: str) -> list[str]:
        """C that stores the indices of place `t` of row `row`; `slot` is where the row's indices go."""
        lines = ["int rest = t - row * count;"]
        for axis in range(len(self.shape) - 1, 0, -1):
            lines += [
                f"int rest{axis} = {divide('rest', f'size{axis}')};",
                f"{output}[{axis} * room + slot] = rest - rest{axis} * size{axis};",
                f"rest = rest{axis};",
            ]
        return [*lines, f"{output}[slot] = rest;"]


def tune_select(compute: Compute, tuner: Tuner, emit_marks: Callable[[Marks], bool]) -> bool:
    """Rule for hints of kind "select": each marked place writes its position where the running sum says.

    `emit_marks` emits the kernel, if there is one.
    """
    mask, through = compute.operands
    output = compute.output
    if compute.epilogue is not None or output.dtype != INT32:
        return False
    # Slots that stand for nothing are read all the same.
    emit(tuner, lit(0, "int32"), (output.size,), INT32, output.name)
    return emit_marks(Marks(mask, through, mask.shape[1:], compute.space[-1]))


def tune_nonzero(compute: Compute, emit_marks: Callable[[Marks], bool]) -> bool:
    """Rule for hints of kind "nonzero": the same with the index along each axis."""
    mask, through = compute.operands
    if compute.epilogue is not None or compute.output.dtype != INT64:
        return False
    return emit_marks(Marks(mask, through, tuple(compute.attributes["shape"]), compute.space[-1]))
