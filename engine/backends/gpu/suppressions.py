"""Greedy choice among overlapping boxes on GPUs: a group of threads for a row, a thread for a candidate.

Candidates come a group at a time, best first. Each is compared with the boxes kept so far, until one overlaps
it; then the best free one of the group is kept, and the others are compared with that, until none is free.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from engine.base.dtypes import FLOAT32, INT32
from engine.compiler.plan import Compute, Tuner
from engine.kernels.size import deferrable, deferred, smallest
from engine.kernels.value import Value

GROUP = 64
"""Threads in a group."""

AT_HAND = 512
"""Kept boxes that a group has in shared memory; it looks up further ones by their positions."""

NAMES = ("rows", "count", "most", "classes", "limit_bits", "begin", "end", "rounds")
"""Arguments of a step: which candidates it looks at, and how many rounds its longest loop has at most."""

_ROUNDS = 1 << 14
"""Rounds of a step's loops, so that no dispatch takes long."""


@dataclass(frozen=True)
class Suppression:
    """A step: operands as the hint has them, arguments, and the tensor (rows, most + 1) that goes on."""

    order: Value
    corners: Value
    number: Value | None
    values: tuple[int, ...]
    target: str

    @property
    def operands(self) -> tuple[Value, ...]:
        """The tensors that it reads."""
        return (self.order, self.corners, *([] if self.number is None else [self.number]))


@dataclass(frozen=True)
class Dialect:
    """How a language spells what the kernel does.

    vector: the type of four floats. corners: the text of those of a box. order, number: the text of an
    element. output: the name of the output. limit: the limit as a float. lowest: the statement that lowers an
    element of `first` to `lane`, an atomic minimum. barrier: for shared and global memory.
    """

    vector: str
    corners: Callable[[str], str]
    order: Callable[[str], str]
    number: Callable[[str], str] | None
    output: str
    limit: str
    lowest: Callable[[str], str]
    barrier: str


def tune_suppression(compute: Compute, tuner: Tuner, emit_step: Callable[[Tuner, Suppression], bool]) -> bool:
    """Rule for hints of kind "suppression"; `emit_step` emits a step, if it can."""
    (order, corners, *rest), attributes = compute.operands, compute.attributes
    if compute.epilogue is not None or compute.output.dtype != INT32 or corners.dtype != FLOAT32:
        return False
    (rows, count), most = order.shape, attributes["most"]
    limit, span = deferred(_bits, attributes["limit"]), deferred(_span, most)
    start = 0
    while start < count:  # the number of boxes may be open, that of steps is not
        end = smallest(start + span, count)
        rounds = -(-(end - start) // GROUP) * most
        values = rows, count, most, attributes["classes"], limit, start, end, rounds
        step = Suppression(order, corners, rest[0] if rest else None, values, compute.output.name)
        if not emit_step(tuner, step):
            return False
        start = start + span
    return True


@deferrable
def _bits(number: float) -> int:
    return int(np.float32(number).view(np.int32))


@deferrable
def _span(most: int) -> int:
    """Candidates of a step."""
    return GROUP * max(1, _ROUNDS // most)


def overlap_function(vector: str, kind: str) -> list[str]:
    """The function `overlaps` of two boxes; without an area, none overlaps."""
    return [
        f"{kind} overlaps({vector} a, {vector} b, float limit) {{",
        "    float height = min(a.z, b.z) - max(a.x, b.x), width = min(a.w, b.w) - max(a.y, b.y);",
        "    float inner = max(height, 0.0f) * max(width, 0.0f);",
        "    float area_a = max(a.z - a.x, 0.0f) * max(a.w - a.y, 0.0f);",
        "    float area_b = max(b.z - b.x, 0.0f) * max(b.w - b.y, 0.0f);",
        "    float joined = area_a + area_b - inner;",
        "    bool is_proper = inner > 0.0f && area_a > 0.0f && area_b > 0.0f && joined > 0.0f;",
        "    return is_proper && inner / joined > limit;",
        "}",
    ]


def statements(dialect: Dialect) -> list[str]:
    """Statements of thread `t`. `first` is shared memory for three ints, `held` for `AT_HAND` boxes."""
    o = dialect.output

    def box(position: str) -> str:
        return dialect.corners(f"images + {dialect.order(f'candidates + {position}')}")

    number = "count" if dialect.number is None else dialect.number("row")
    return [
        f"int row = t / {GROUP}, lane = t - row * {GROUP}, own = row * (most + 1);",
        "int kept = 0, turn = 0, total = 0;",
        "int images = row / max(classes, 1) * count, candidates = row * count;",
        f"if (row < rows) total = min(end, {number});",
        f"if (row < rows && begin > 0) kept = {o}[own + most];",
        f"for (int k = lane; k < most && row < rows && begin == 0; k += {GROUP}) {o}[own + k] = 0;",
        f"for (int k = lane; k < min(kept, {AT_HAND}); k += {GROUP}) held[k] = {box(f'{o}[own + k]')};",
        f"if (lane == 0) first[0] = {GROUP};",
        dialect.barrier,
        f"for (int start = begin; start < total && kept < most; start += {GROUP}) {{",
        "    int p = start + lane;",
        "    bool is_free = p < total;",
        f"    {dialect.vector} box = {box('min(p, total - 1)')};",
        f"    for (int m = 0; m < min(kept, {AT_HAND}) && is_free; ++m)",
        f"        is_free = !overlaps(box, held[m], {dialect.limit});",
        f"    for (int m = {AT_HAND}; m < kept && is_free; ++m)",
        f"        is_free = !overlaps(box, {box(f'{o}[own + m]')}, {dialect.limit});",
        "    while (true) {",
        # Three in turn: the next one is reset while this one is lowered, and the previous one may be read.
        "        int now = turn % 3;",
        f"        if (is_free) {dialect.lowest('now')}",
        f"        if (lane == 0) first[(turn + 1) % 3] = {GROUP};",
        "        ++turn;",
        f"        {dialect.barrier}",
        "        int best = first[now];",
        f"        if (best >= {GROUP} || kept >= most) break;",
        "        if (lane == best) {",
        f"            {o}[own + kept] = p;",
        f"            if (kept < {AT_HAND}) held[kept] = box;",
        "        }",
        "        is_free = is_free && lane != best;",
        f"        if (is_free) is_free = !overlaps(box, {box('start + best')}, {dialect.limit});",
        "        ++kept;",
        "    }",
        "}",
        f"if (lane == 0 && row < rows) {o}[own + most] = kept;",
    ]
