"""RoiAlign.

On a CPU a work-item computes all channels of a bin, several in a vector; on a GPU four of them.
"""

from __future__ import annotations

from engine.backends.gpu.roi_align import NAMES, WIDTH, Dialect, Regions, statements
from engine.backends.opencl.codegen.printer import element
from engine.backends.opencl.codegen.tuned_kernel import build, indent
from engine.compiler.plan import Tuner

_GROUP = 64


def emit_means(step: Regions, tuner: Tuner, form: str) -> bool:
    """Emit the step."""
    is_cpu = form == "cpu"
    width = next(w for w in (16, 8, WIDTH) if step.channels % w == 0) if is_cpu else WIDTH
    local, blocks = (1, 1) if is_cpu else (_GROUP, step.channels // WIDTH)
    dialect = Dialect(
        vector=f"float{width}",
        zero="0.0f",
        cast="({})({})".format,
        pixel=f"*(__global const loose*)(X + {width} * ({{}}))".format,
        place="P[{}]".format,
        number=lambda at: f"(int){element(step.kinds[2], 'N', at)}",
        store=[
            f"int to = (region * channels + block * {width}) * bins + p;",
            f"float each[{width}];",
            "*(loose*)each = sum;",
            f"for (int k = 0; k < {width}; ++k) y[to + k * bins] = each[k];",
        ],
    )
    lines = statements(dialect, step.ratio)
    thread = f"int t = (f0 + (int)get_group_id(0)) * {local} + (int)get_local_id(0);"
    if is_cpu:
        walk = ["if (t >= total) return;", "for (int block = 0; block < blocks; ++block) {"]
        lines = [*walk, *(f"    {line}" for line in lines), "}"]
    else:
        lines = ["if (t >= total * blocks) return;", "const int block = t % blocks;", "t /= blocks;", *lines]
    body = indent([thread, f"const int blocks = channels / {width};", *lines], 1)
    operands = [f"{name}:{kind}" for name, kind in zip("XPN", step.kinds, strict=True)]
    area = local * 4 * step.ratio**2 * (step.channels if is_cpu else WIDTH)
    head = f"typedef float{width} loose __attribute__((aligned(4)));\n"
    kernel = build(body, None, operands, NAMES, (local, 1, 1), area=area, output="float32", head=head)
    tuner.emit(kernel, (-(-step.values[0] * blocks // local), 1, 1), step.values, step.inputs, step.target)
    return True
