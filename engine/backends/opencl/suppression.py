"""The steps of a choice among overlapping boxes."""

from __future__ import annotations

from engine.backends.opencl.printer import element
from engine.backends.opencl.tuned import build, indent
from engine.backends.suppressions import GROUP, NAMES, Dialect, Suppression, overlap_function, statements
from engine.compiler.plan import Tuner

_AREA = 32


def emit_step(tuner: Tuner, step: Suppression) -> bool:
    """Emit a step: a group for each row."""
    kinds = [v.dtype.name for v in step.operands]
    dialect = Dialect(
        vector="float4",
        corners="vload4({}, C)".format,
        order="X[{}]".format,
        number=None if step.number is None else lambda row: f"(int){element(kinds[2], 'N', row)}",
        output="y",
        limit="as_float(limit_bits)",
        lowest="atomic_min(first + {}, lane);".format,
        barrier="barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);",
    )
    thread = f"const int t = (f0 + (int)get_group_id(0)) * {GROUP} + (int)get_local_id(0);"
    body = indent(["__local int first[3];", thread, *statements(dialect)], 1)
    operands = [f"{name}:{kind}" for name, kind in zip("XCN", kinds, strict=False)]
    head = indent(overlap_function("float4", "static int"), 0)
    kernel = build(
        body, None, operands, NAMES, (GROUP, 1, 1), rounds=("rounds",), area=_AREA, output="int32", head=head
    )
    inputs = tuple(v.root.name for v in step.operands)
    tuner.emit(kernel, (step.values[0], 1, 1), step.values, inputs, step.target)
    return True
