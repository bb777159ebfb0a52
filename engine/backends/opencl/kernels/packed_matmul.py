"""Matrix products of a few rows with packed low-bit weights on a CPU.

A work-item computes 16 columns, four at a time and 16 numbers of each in a vector.
"""

from __future__ import annotations

from engine.backends.gpu.kernel_dialect import KernelDialect, Store, ThreadStep
from engine.backends.gpu.packed_matmul import NAMES, PackedRows, scale_of, zero_of
from engine.compiler.plan import Compute, Tuner

_ITEM_COLUMNS = 16
_AT_ONCE = 4


def read_alone(rows: PackedRows, compute: Compute, tuner: Tuner, dialect: KernelDialect) -> bool:
    """Emit the product."""
    step = ThreadStep(
        -(-rows.n // _ITEM_COLUMNS) * rows.rows, (), NAMES, rows.values, rows.inputs, compute.output.name,
        functions=_FUNCTIONS, rounds=("words",), is_alone=True, area=_ITEM_COLUMNS * 32 // rows.bits,
    )  # fmt: skip
    return dialect.emit_with_epilogue(compute, tuner, step, lambda store: _statements(rows, dialect, store))


# No functions of 16 floats, as in `engine.backends.opencl.kernels.non_max_suppression`.
_FUNCTIONS = [
    "#define LOAD16(p) (*(__global const loose16*)(p))",
    "#define FLOAT16(q) ((float16)(convert_float8((q).lo), convert_float8((q).hi)))",
]


def _statements(rows: PackedRows, dialect: KernelDialect, store: Store) -> list[str]:
    """Statements of work-item `t`."""
    each = range(_AT_ONCE)
    per_chunk = 128 // rows.bits
    if rows.bits == 4:
        load = [
            "const float16 x0 = LOAD16(A0 + at), x1 = LOAD16(A0 + at + 16);",
            "const float16 even = (float16)(x0.even, x1.even), odd = (float16)(x0.odd, x1.odd);",
        ]
        add = [
            f"{{ const uchar16 q = vload16(0, B{c} + at / 2), low = q & (uchar)15, high = q >> (uchar)4; "
            f"s{c} += w{c} * (even * (FLOAT16(low) - z{c}) + odd * (FLOAT16(high) - z{c})); }}"
            for c in each
        ]
    else:
        load = ["const float16 x = LOAD16(A0 + at);"]
        add = [
            f"{{ const uchar16 q = vload16(0, B{c} + at); s{c} += w{c} * (x * (FLOAT16(q) - z{c})); }}"
            for c in each
        ]
    halves = (("float8", "e", "s"), ("float4", "f", "e"), ("float2", "g", "f"))
    tile = ", ".join(f"g{c}.x + g{c}.y" for c in each)
    return [
        f"const int across = (n + {_ITEM_COLUMNS - 1}) / {_ITEM_COLUMNS}, row = t / across;",
        f"const int first = (t - row * across) * {_ITEM_COLUMNS};",
        "if (row >= m) return;",
        f"const int k = words * {32 // rows.bits};",
        "__global const float* A0 = X + (long)row * k;",
        f"for (int column = first; column < min(first + {_ITEM_COLUMNS}, n); column += {_AT_ONCE}) {{",
        *(f"    const int c{c} = min(column + {c}, n - 1);" for c in each),
        *(f"    __global const uchar* B{c} = L + (long)c{c} * words * 4;" for c in each),
        *(f"    float16 s{c} = 0.0f;" for c in each),
        "    for (int block = 0; block < blocks; ++block) {",
        *(f"        const float w{c} = {scale_of(rows, dialect, f'c{c}')};" for c in each),
        *(f"        const float z{c} = {zero_of(rows, dialect, f'c{c}')};" for c in each),
        f"        for (int at = block * {rows.block}; at < (block + 1) * {rows.block}; at += {per_chunk}) {{",
        *(f"            {line}" for line in (*load, *add)),
        "        }",
        "    }",
        *(f"    const {kind} {to}{c} = {of}{c}.lo + {of}{c}.hi;" for kind, to, of in halves for c in each),
        f"    const float tile[{_AT_ONCE}] = {{{tile}}};",
        f"    for (int c = 0; c < min({_AT_ONCE}, n - column); ++c)",
        *(f"        {line}" for line in store("row * n + column + c", "tile[c]")),
        "}",
    ]
