"""Matrix products of a few rows with packed low-bit weights, for software renderers.

A thread computes four columns and reads four bytes a fetch from a buffer texture.
"""

from __future__ import annotations

from engine.backends.gl.compute.epilogue import product_ns
from engine.backends.gl.compute.flat_grid import emit_with_epilogue
from engine.backends.gl.compute.target import ShaderTarget
from engine.backends.gl.glsl import COMPONENTS
from engine.backends.gpu.kernel_dialect import GROUP, KernelDialect, ThreadStep
from engine.backends.gpu.packed_matmul import NAMES, PackedRows, scale_of, zero_of
from engine.compiler.plan import Compute, Tuner

_COLUMNS = 4
# Rounds of loops at most: for a word, for a block, and for storing.
_WORD_ROUNDS = 3
_STORE_ROUNDS = 32


def read_texels(
    rows: PackedRows, compute: Compute, tuner: Tuner, dialect: KernelDialect, target: ShaderTarget
) -> bool:
    """Emit the product; returns False if it exceeds the driver's loop or binding limits."""
    if rows.k * rows.bits // 32 * _WORD_ROUNDS + _STORE_ROUNDS > dialect.most_rounds:
        return False
    ns = GROUP * product_ns(_COLUMNS * 32 // rows.bits, 1 + _COLUMNS)
    step = ThreadStep(
        -(-rows.n // _COLUMNS) * rows.rows, _statements(rows, dialect), NAMES, rows.values, rows.inputs,
        compute.output.name, widths=(4, 4, 1, 1)[: len(rows.inputs)], rounds=("words",), ns=ns,
    )  # fmt: skip
    return emit_with_epilogue(compute, tuner, step, target)


def _statements(rows: PackedRows, dialect: KernelDialect) -> list[str]:
    each = range(_COLUMNS)
    if rows.bits == 4:
        load = [
            "vec4 x0 = texelFetch(b0, a), x1 = texelFetch(b0, a + 1);",
            "vec4 even = vec4(x0.xz, x1.xz), odd = vec4(x0.yw, x1.yw);",
            "a += 2;",
        ]
        product = "dot(even, vec4(q{c} & 15u) - z{c}) + dot(odd, vec4(q{c} >> 4u) - z{c})"
    else:
        load = ["vec4 x = texelFetch(b0, a++);"]
        product = "dot(x, vec4(q{c}) - z{c})"
    return [
        f"int quads = (n + {_COLUMNS - 1}) / {_COLUMNS};",
        "int y = t / max(quads, 1);",
        f"int column = (t - y * quads) * {_COLUMNS};",
        "if (y >= m) return;",
        f"int a = y * words * {8 // rows.bits};",
        *(f"int c{c} = min(column + {c}, n - 1), at{c} = c{c} * words;" for c in each),
        "vec4 sums = vec4(0.0);",
        "for (int block = 0; block < blocks; ++block) {",
        *(f"    float z{c} = {zero_of(rows, dialect, f'c{c}')};" for c in each),
        "    vec4 part = vec4(0.0);",
        f"    for (int t = 0; t < {rows.block * rows.bits // 32}; ++t) {{",
        *(f"        {line}" for line in load),
        *(f"        uvec4 q{c} = texelFetch(b1, at{c}++);" for c in each),
        *(f"        part.{COMPONENTS[c]} += {product.format(c=c)};" for c in each),
        "    }",
        f"    sums += part * vec4({', '.join(scale_of(rows, dialect, f'c{c}') for c in each)});",
        "}",
        *(f"if (column + {c} < n) finish(y * n + column + {c}, sums.{COMPONENTS[c]});" for c in each),
    ]
