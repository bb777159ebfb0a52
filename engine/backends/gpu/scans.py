"""Prefix sums by blocks, and positions of set mask elements.

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
    """A prefix sum or product of x (outer, count, inner), with the total `before` each block."""

    x: Value
    before: Value
    kind: str
    block: int
    exclusive: bool
    reverse: bool

    @property
    def threads(self) -> int:
        """Number of threads, one per block."""
        return self.before.size

    @property
    def numbers(self) -> tuple[int, ...]:
        """Kernel arguments: count, inner, blocks, exclusive, reverse."""
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
    """The set elements of mask (rows, count), with its inclusive prefix sum.

    shape: of a row, as what the indices are meant. Output is (rows, axes, room).
    """

    mask: Value
    through: Value
    shape: tuple[int, ...]
    room: int

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of the axes after the first."""
        return self.shape[1:]

    @property
    def numbers(self) -> tuple[int, ...]:
        """Kernel arguments: total, count, room, and `sizes`."""
        return (self.mask.size, self.mask.shape[1], self.room, *self.sizes)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the numbers."""
        return ("total", "count", "room", *(f"size{axis}" for axis in range(1, len(self.shape))))

    @property
    def divisors(self) -> tuple[str, ...]:
        """Names of the divisors among the arguments: `count`, and those of `sizes`."""
        return ("count", *self.names[3:])

    def statements(self, divide: Divide, output: str) -> list[str]:
        """Statements that store the indices of element `t` of row `row` at `slot`."""
        lines = ["int rest = t - row * count;"]
        for axis in range(len(self.shape) - 1, 0, -1):
            lines += [
                f"int rest{axis} = {divide('rest', f'size{axis}')};",
                f"{output}[{axis} * room + slot] = rest - rest{axis} * size{axis};",
                f"rest = rest{axis};",
            ]
        return [*lines, f"{output}[slot] = rest;"]


LONGEST_ROW = 1 << 14
"""Marks of a row up to which one group looks at all of them."""

ROW_NAMES = ("rows", "count", "room")
"""Arguments of a kernel for whole rows."""


@dataclass(frozen=True)
class MarkedRows:
    """The set elements of each row of mask (rows, count): their positions, or only their number."""

    mask: Value
    room: int

    @property
    def numbers(self) -> tuple[int, ...]:
        """Kernel arguments in the order of `ROW_NAMES`."""
        return (*self.mask.shape, self.room)


def row_statements(group: int, is_marked: str, barrier: str, output: str, has_room: bool) -> list[str]:
    """Statements of thread `t`, with one group per row: each thread scans a part of the row.

    Args:
        group: how many threads a group has. They share `sums`, if they are several.
        is_marked: the text of whether the mask holds at position `p`.
        barrier: the statement for shared memory.
        output: the name of the output.
        has_room: whether it takes positions.
    """
    lines = [
        f"int row = t / {group}, lane = t - row * {group}, each = (count + {group - 1}) / {group};",
        "int begin = min(lane * each, count), end = row < rows ? min(begin + each, count) : 0;",
        "int found = 0, slot = 0, total = 0;",
    ]
    counted = f"for (int k = begin; k < end; ++k) {{ int p = row * count + k; if ({is_marked}) ++found; }}"
    if group > 1:
        lines += [
            counted,
            "sums[lane] = found;",
            barrier,
            f"for (int k = 0; k < {group}; ++k) {{ if (k < lane) slot += sums[k]; total += sums[k]; }}",
        ]
    elif not has_room:
        lines += [counted, "total = found;"]
    if not has_room:
        return [*lines, f"if (lane == 0 && row < rows) {output}[row] = total;"]
    return [
        *lines,
        "for (int k = begin; k < end; ++k) {",
        f"    int p = row * count + k; if ({is_marked}) {output}[row * room + slot++] = k;",
        "}",
        # A thread alone knows how many there are when it has stored them.
        *(["total = slot;"] if group == 1 else []),
        # Slots that stand for nothing are read all the same.
        f"for (int k = total + lane; k < room && row < rows; k += {group}) {output}[row * room + k] = 0;",
    ]


def _has_short_rows(compute: Compute) -> bool:
    mask = compute.operands[0]
    return compute.epilogue is None and mask.is_static(1) and mask.shape[1] <= LONGEST_ROW


def tune_count(compute: Compute, emit_rows: Callable[[MarkedRows], bool]) -> bool:
    """Rule for hints of kind "count": False for long rows, whose running sum has the number."""
    return _has_short_rows(compute) and emit_rows(MarkedRows(compute.operands[0], 0))


def tune_select(
    compute: Compute,
    tuner: Tuner,
    emit_marks: Callable[[Marks], bool],
    emit_rows: Callable[[MarkedRows], bool],
) -> bool:
    """Rule for hints of kind "select".

    A group goes through a short row. In longer ones, each marked place writes its position where the running
    sum says. `emit_marks` and `emit_rows` emit the kernel, if there is one.
    """
    mask, through = compute.operands
    output = compute.output
    if compute.epilogue is not None or output.dtype != INT32:
        return False
    if _has_short_rows(compute) and emit_rows(MarkedRows(mask, compute.space[-1])):
        return True
    # Slots that stand for nothing are read all the same.
    emit(tuner, lit(0, "int32"), (output.size,), INT32, output.name)
    return emit_marks(Marks(mask, through, mask.shape[1:], compute.space[-1]))


def tune_nonzero(compute: Compute, emit_marks: Callable[[Marks], bool]) -> bool:
    """Rule for hints of kind "nonzero": the same with the index along each axis."""
    mask, through = compute.operands
    if compute.epilogue is not None or compute.output.dtype != INT64:
        return False
    return emit_marks(Marks(mask, through, tuple(compute.attributes["shape"]), compute.space[-1]))
