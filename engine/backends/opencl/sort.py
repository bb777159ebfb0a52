"""Tuned stable sort: kernels for blocks and for merges of runs."""

from __future__ import annotations

from collections.abc import Sequence

from engine.backends.gpu.sorts import (
    BLOCK,
    BLOCK_NAMES,
    GROUP,
    MERGE_NAMES,
    Dialect,
    Step,
    block_declarations,
    block_statements,
    key_function,
    merge_statements,
)
from engine.backends.opencl.printer import element
from engine.backends.opencl.storage import WORDS
from engine.backends.opencl.tuned_kernel import build, indent
from engine.compiler.plan import Tuner

# Multiplications that take as long as sorting or merging an element.
_BLOCK_AREA, _MERGE_AREA = 64, 16
# So many elements are ranked by comparing all with all, 16 at a time: sorting by digits takes longer.
_FEW = 128


def emit_blocks(tuner: Tuner, step: Step) -> bool:
    """Emit the step that sorts blocks: a group for each."""
    lines = block_statements(_dialect(step))
    return _emit(tuner, step, lines, BLOCK_NAMES, block_declarations("__local"), _BLOCK_AREA)


def emit_alone(tuner: Tuner, step: Step) -> bool:
    """Emit the step that sorts blocks on a processor: a work-item for each, by bytes from the last on."""
    dialect = _dialect(step)
    length = dialect.length_of("row")
    body = f"""\
    const int t = f0 + (int)get_global_id(0);
    if (t >= segments) return;
    const int row = t / blocks, start = (t - row * blocks) * span, from = row * count + start;
    const int here = min({length} - start, span), most = min(here, keep);
    int keys[{2 * BLOCK}];
    if (here <= {_FEW}) {{
        for (int e = 0; e < here; ++e) keys[e] = {dialect.read("from + e")};
        for (int first = 0; first < here; first += 16) {{
            const int16 own = *(loose16*)(keys + first), at = first + LANES;
            const int end = min(first + 16, here);
            int16 rank = 0;
            for (int e = 0; e < first; ++e) rank -= keys[e] <= own;
            for (int e = first; e < end; ++e) rank -= (keys[e] < own) | ((keys[e] == own) & (e < at));
            for (int e = end; e < here; ++e) rank -= keys[e] < own;
            int ranks[16];
            *(loose16*)ranks = rank;
            for (int e = first; e < end; ++e) {{
                const int to = 2 * (from + ranks[e - first]);
                if (ranks[e - first] >= most) continue;
                y[to] = keys[e];
                y[to + 1] = start + e;
            }}
        }}
        return;
    }}
    int places[{2 * BLOCK}], starts[1024];
    for (int digit = 0; digit < 1024; ++digit) starts[digit] = 0;
    for (int e = 0; e < here; ++e) {{
        const uint key = as_uint({dialect.read("from + e")}) ^ 0x80000000u;
        keys[e] = as_int(key);
        places[e] = start + e;
        for (int k = 0; k < 4; ++k) ++starts[256 * k + (key >> 8 * k & 255u)];
    }}
    int half_ = 0;
    for (int k = 0; k < 4; ++k) {{
        int* ends = starts + 256 * k;
        // A byte that all have in common moves none.
        if (ends[as_uint(keys[half_]) >> 8 * k & 255u] == here) continue;
        for (int digit = 0, total = 0; digit < 256; ++digit) {{
            const int number = ends[digit];
            ends[digit] = total;
            total += number;
        }}
        for (int e = half_; e < half_ + here; ++e) {{
            const int to = {BLOCK} - half_ + ends[as_uint(keys[e]) >> 8 * k & 255u]++;
            keys[to] = keys[e];
            places[to] = places[e];
        }}
        half_ = {BLOCK} - half_;
    }}
    for (int e = 0; e < most; ++e) {{
        y[2 * (from + e)] = as_int(as_uint(keys[half_ + e]) ^ 0x80000000u);
        y[2 * (from + e) + 1] = places[half_ + e];
    }}
"""
    lanes = ", ".join(map(str, range(16)))
    head = f"typedef int16 loose16 __attribute__((aligned(4)));\n#define LANES (int16)({lanes})\n"
    area = BLOCK * _BLOCK_AREA
    kernel = build(
        body, None, _operands(step), BLOCK_NAMES, (1, 1, 1), output="int32", area=area,
        head=head + _functions(step),
    )  # fmt: skip
    tuner.emit(kernel, (step.threads, 1, 1), step.values, _inputs(step), step.target)
    return True


def emit_merge(tuner: Tuner, step: Step) -> bool:
    """Emit a step that merges runs."""
    return _emit(tuner, step, merge_statements(_dialect(step)), MERGE_NAMES, (), _MERGE_AREA)


def _dialect(step: Step) -> Dialect:
    length = step.length

    def length_of(row: str) -> str:
        assert length is not None
        return f"(int){element(length.dtype.name, 'L', row)}"

    barrier = "barrier(CLK_LOCAL_MEM_FENCE);"
    read = "X[{}]" if step.has_keys else "key_of(X[{}])"
    return Dialect(read.format, None if length is None else length_of, "y", barrier)


def _functions(step: Step) -> str:
    kind = WORDS[step.kind]
    return "" if step.has_keys else indent(key_function(step, "static int", kind, "as_int(x)"), 0)


def _emit(
    tuner: Tuner, step: Step, lines: Sequence[str], names: Sequence[str], head: Sequence[str], area: int
) -> bool:
    thread = f"const int t = (f0 + (int)get_group_id(0)) * {GROUP} + (int)get_local_id(0);"
    body = indent([*head, thread, *lines], 1)
    kernel = build(
        body, None, _operands(step), names, (GROUP, 1, 1), output="int32", area=BLOCK * area,
        head=_functions(step),
    )  # fmt: skip
    tuner.emit(kernel, (-(-step.threads // GROUP), 1, 1), step.values, _inputs(step), step.target)
    return True


def _operands(step: Step) -> list[str]:
    return [f"X:{step.kind}", *([] if step.length is None else [f"L:{step.length.dtype.name}"])]


def _inputs(step: Step) -> tuple[str, ...]:
    return (step.source, *(() if step.length is None else (step.length.root.name,)))
