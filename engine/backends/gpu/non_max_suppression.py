"""Non-maximum suppression on GPUs: a group per row, a thread per candidate.

Candidates come in blocks of a group's size, best first. Each is compared with the boxes kept so far, until
one overlaps it. Those that are free then are compared with each other, and one thread goes through the bits
that say which overlap. So threads wait for one another three times in a block, however many are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from engine.backends.gpu.kernel_dialect import KernelDialect, ThreadStep
from engine.base.dtypes import FLOAT32, INT32
from engine.compiler.plan import Compute, Tuner
from engine.kernels.size import deferrable, deferred, smallest
from engine.kernels.value import Value

_WORD = 32

GROUP = 2 * _WORD
"""Threads in a group, and boxes of a block."""

AT_HAND = 512
"""Kept boxes that a group has in shared memory; it looks up further ones by their positions."""

NAMES = ("rows", "count", "most", "classes", "limit_bits", "begin", "end", "rounds")
"""Arguments of a step: which candidates it looks at, and how many rounds its longest loop has at most."""

_ROUNDS = 1 << 14
"""Rounds of a step's loops, so that no dispatch takes long."""

AREA, _ROUND_NS = 32, 3.0


@dataclass(frozen=True)
class Suppression:
    """A step: the hint's operands, arguments, and the state tensor (rows, most + 1)."""

    order: Value
    corners: Value
    number: Value | None
    values: tuple[int, ...]
    target: str

    @property
    def operands(self) -> tuple[Value, ...]:
        """The tensors that it reads."""
        return (self.order, self.corners, *([] if self.number is None else [self.number]))

    @property
    def inputs(self) -> list[tuple[str, str]]:
        """Their names and element types."""
        return [(v.root.name, v.dtype.name) for v in self.operands]

    def total(self, dialect: KernelDialect, row: str) -> str:
        """The text of how many candidates a row has."""
        return "count" if self.number is None else dialect.element(2, row, self.number.dtype.name)


def tune_non_max_suppression(compute: Compute, tuner: Tuner, dialect: KernelDialect) -> bool:
    """Rule for hints of kind "non_max_suppression"."""

    def emit_step(step: Suppression) -> bool:
        most, rounds = (step.values[NAMES.index(name)] for name in ("most", "rounds"))
        # Boxes that join a row, and slots that are cleared, are further rounds.
        if rounds + 2 * most > dialect.most_rounds:
            return False
        return dialect.emit(tuner, _thread_step(step, dialect))

    return emit_steps(compute, emit_step)


def emit_steps(compute: Compute, emit_step: Callable[[Suppression], bool]) -> bool:
    """Emit the steps of a hint of kind "non_max_suppression", if there are such; `emit_step` emits one."""
    (order, corners, *rest), attributes = compute.operands, compute.attributes
    if compute.epilogue is not None or compute.output.dtype != INT32 or corners.dtype != FLOAT32:
        return False
    (rows, count), most = order.shape, attributes["most"]
    limit, span = deferred(_bits, attributes["limit"]), deferred(_span, most)
    start = 0
    while start < count:  # the number of boxes may be open, that of steps is not
        end = smallest(start + span, count)
        rounds = -(-(end - start) // GROUP) * (most + 2 * GROUP)
        values = rows, count, most, attributes["classes"], limit, start, end, rounds
        step = Suppression(order, corners, rest[0] if rest else None, values, compute.output.name)
        if not emit_step(step):
            return False
        start = start + span
    return True


@deferrable
def _bits(number: float) -> int:
    return int(np.float32(number).view(np.int32))


@deferrable
def _span(most: int) -> int:
    """Candidates of a step."""
    return GROUP * max(1, _ROUNDS // (most + 2 * GROUP))


def overlap_function(dialect: KernelDialect) -> list[str]:
    """Source of the function `overlaps` of two boxes; empty boxes never overlap."""
    return [
        f"{dialect.static}bool overlaps({dialect.vector()} a, {dialect.vector()} b, float limit) {{",
        "    float height = min(a.z, b.z) - max(a.x, b.x), width = min(a.w, b.w) - max(a.y, b.y);",
        "    float inner = max(height, 0.0f) * max(width, 0.0f);",
        "    float area_a = max(a.z - a.x, 0.0f) * max(a.w - a.y, 0.0f);",
        "    float area_b = max(b.z - b.x, 0.0f) * max(b.w - b.y, 0.0f);",
        "    float joined = area_a + area_b - inner;",
        "    bool is_proper = inner > 0.0f && area_a > 0.0f && area_b > 0.0f && joined > 0.0f;",
        "    return is_proper && inner / joined > limit;",
        "}",
    ]


def _thread_step(step: Suppression, dialect: KernelDialect) -> ThreadStep:
    """The step of a group for each row."""
    vector = dialect.vector()
    # Kept boxes, the block's boxes and bits, and the number kept.
    kept = [f"{vector} held[{AT_HAND}]", f"{vector} boxes[{GROUP}]"]
    shared = [
        f"{dialect.shared} {name};"
        for name in (*kept, f"uint met[{2 * GROUP}]", "uint free[2]", "int now[1]")
    ]
    return ThreadStep(
        step.values[0] * GROUP, _statements(step, dialect), NAMES, step.values, step.inputs, step.target,
        widths=(1, 4, 1)[: len(step.inputs)],
        shared=shared, functions=overlap_function(dialect), rounds=("rounds",), is_coherent=True, area=AREA,
        ns=GROUP * _ROUND_NS,
    )  # fmt: skip


def _statements(step: Suppression, dialect: KernelDialect) -> list[str]:
    """Statements of thread `t`."""
    o, limit = dialect.output, dialect.from_bits.format("limit_bits")
    kind = step.order.dtype.name

    def box(position: str) -> str:
        return dialect.load_vector(1, f"images + {dialect.element(0, f'candidates + {position}', kind)}")

    next_bit = [
        "uint bit = rest & (~rest + 1u);",
        f"int m = {_WORD} * w + {dialect.bit_place.format('bit')};",
    ]
    return [
        f"int row = t / {GROUP}, lane = t - row * {GROUP}, own = row * (most + 1);",
        "int kept = 0, total = 0;",
        "int images = row / max(classes, 1) * count, candidates = row * count;",
        f"if (row < rows) total = min(end, {step.total(dialect, 'row')});",
        f"if (row < rows && begin > 0) kept = {o}[own + most];",
        f"for (int k = lane; k < most && row < rows && begin == 0; k += {GROUP}) {o}[own + k] = 0;",
        f"for (int k = lane; k < min(kept, {AT_HAND}); k += {GROUP}) held[k] = {box(f'{o}[own + k]')};",
        "if (lane < 2) free[lane] = 0u;",
        dialect.full_barrier,
        f"for (int start = begin; start < total && kept < most; start += {GROUP}) {{",
        "    int p = start + lane;",
        "    bool is_free = p < total;",
        f"    {dialect.vector()} box = {box('min(p, total - 1)')};",
        f"    for (int k = 0; k < min(kept, {AT_HAND}) && is_free; ++k)",
        f"        is_free = !overlaps(box, held[k], {limit});",
        f"    for (int k = {AT_HAND}; k < kept && is_free; ++k)",
        f"        is_free = !overlaps(box, {box(f'{o}[own + k]')}, {limit});",
        "    boxes[lane] = box;",
        f"    if (is_free) {dialect.atomic('or', 'free', f'lane / {_WORD}', f'1u << lane % {_WORD}')}",
        f"    {dialect.full_barrier}",
        "    uint low = free[0], high = free[1], low_kept = 0u, high_kept = 0u;",
        "    for (int w = 0; w < 2; ++w) {",
        f"        int below = clamp(lane - {_WORD} * w, 0, {_WORD});",
        f"        uint better = below < {_WORD} ? (1u << below) - 1u : ~0u, word = 0u;",
        "        better &= w == 0 ? low : high;",
        "        for (uint rest = is_free ? better : 0u; rest != 0u; rest &= rest - 1u) {",
        *(f"            {x}" for x in next_bit),
        f"            if (overlaps(box, boxes[m], {limit})) word |= bit;",
        "        }",
        "        met[2 * lane + w] = word;",
        "    }",
        f"    {dialect.full_barrier}",
        # One thread scans the bits: in software, every group of lanes that does so adds its own time.
        "    for (int w = 0; w < 2 && lane == 0; ++w) {",
        "        for (uint rest = w == 0 ? low : high; rest != 0u && kept < most; rest &= rest - 1u) {",
        *(f"            {x}" for x in next_bit),
        "            if ((met[2 * m] & low_kept | met[2 * m + 1] & high_kept) != 0u) continue;",
        "            if (w == 0) low_kept |= bit; else high_kept |= bit;",
        f"            {o}[own + kept] = start + m;",
        f"            if (kept < {AT_HAND}) held[kept] = boxes[m];",
        "            ++kept;",
        "        }",
        "    }",
        "    if (lane == 0) now[0] = kept;",
        "    if (lane < 2) free[lane] = 0u;",
        f"    {dialect.full_barrier}",
        "    kept = now[0];",
        "}",
        f"if (lane == 0 && row < rows) {o}[own + most] = kept;",
    ]
