"""Matrix products of a few rows with packed low-bit weights, for CPUs and GPUs.

On a CPU a work-item computes 16 columns, four at a time and 16 numbers of each in a vector. On a GPU 32
work-items share a column, so that neighbours read neighbouring words.
"""

from __future__ import annotations

from engine.backends.gpu.packed_matmul import PackedRows
from engine.backends.opencl.codegen.printer import element
from engine.backends.opencl.codegen.tuned_kernel import Epilogue, TunedKernel, build, indent
from engine.backends.opencl.kernels.cpu_products import LOOSE
from engine.compiler.plan import Compute, Tuner

_LANES = 32
_GROUP_COLUMNS = 8
_ITEM_COLUMNS = 16
_AT_ONCE = 4
_NUMBERS = ("M", "N", "K", "zero_bytes")


def read_packed(rows: PackedRows, compute: Compute, tuner: Tuner, form: str) -> bool:
    """Emit the product."""
    epilogue = Epilogue(compute, {}, {})
    kernel = (_cpu if form == "cpu" else _gpu)(epilogue, rows)
    columns = _ITEM_COLUMNS if form == "cpu" else _GROUP_COLUMNS
    grid = (-(-rows.n // columns), rows.rows, 1)
    numbers = (rows.rows, rows.n, rows.k, rows.zero_bytes)
    inputs = (*epilogue.inputs, *(v.root.name for v in rows.operands))
    tuner.emit(kernel, grid, (*numbers, *epilogue.values), inputs, compute.output.name)
    return True


def _built(
    body: str, epilogue: Epilogue, rows: PackedRows, local: tuple[int, ...], columns: int, head: str = ""
) -> TunedKernel:
    names = ("A", "B", "S", "Z")
    operands = [f"{n}:{v.dtype.name}" for n, v in zip(names, rows.operands, strict=False)]
    return build(body, epilogue, operands, _NUMBERS, local, rounds=("K",), area=columns, head=head)


def _scale(rows: PackedRows, column: str) -> str:
    return element(rows.scales.dtype.name, "S", f"(long)({column}) * (K / {rows.block}) + block")


def _zero(rows: PackedRows, column: str) -> str:
    """The zero point of a column's block."""
    if rows.zeros is None:
        return f"{1 << (rows.bits - 1)}.0f"
    if rows.bits == 8:
        return f"(float)Z[({column}) * zero_bytes + block]"
    return f"(float)(Z[({column}) * zero_bytes + block / 2] >> block % 2 * 4 & 15)"


# No functions of 16 floats, as in `engine.backends.opencl.kernels.non_max_suppression`.
_VECTORS = (
    LOOSE
    + """\
#define LOAD16(p) (*(__global const loose16*)(p))
#define FLOAT16(q) ((float16)(convert_float8((q).lo), convert_float8((q).hi)))
"""
)


def _cpu(epilogue: Epilogue, rows: PackedRows) -> TunedKernel:
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
    begin = [
        line
        for c in each
        for line in (
            f"const int c{c} = min(column + {c}, N - 1);",
            f"__global const uchar* B{c} = B + (long)c{c} * K * {rows.bits} / 8;",
            f"float16 s{c} = 0.0f;",
        )
    ]
    scales = [f"const float w{c} = {_scale(rows, f'c{c}')}, z{c} = {_zero(rows, f'c{c}')};" for c in each]
    sums = [
        line
        for c in each
        for line in (
            f"const float8 e{c} = s{c}.lo + s{c}.hi;",
            f"const float4 f{c} = e{c}.lo + e{c}.hi;",
            f"const float2 g{c} = f{c}.lo + f{c}.hi;",
        )
    ]
    body = f"""\
    const int first = (f0 + (int)get_group_id(0)) * {_ITEM_COLUMNS}, row = f1 + (int)get_group_id(1);
    if (row >= M) return;
    __global const float* A0 = A + (long)row * K;
    for (int column = first; column < min(first + {_ITEM_COLUMNS}, N); column += {_AT_ONCE}) {{
{indent(begin, 2)}\
        for (int block = 0; block < K / {rows.block}; ++block) {{
{indent(scales, 3)}\
            for (int at = block * {rows.block}; at < (block + 1) * {rows.block}; at += {per_chunk}) {{
{indent(load + add, 4)}\
            }}
        }}
{indent(sums, 2)}\
        const float tile[{_AT_ONCE}] = {{{", ".join(f"g{c}.x + g{c}.y" for c in each)}}};
        for (int c = 0; c < min({_AT_ONCE}, N - column); ++c) {{
            const int flat = row * N + column + c;
            const float acc = tile[c];
{indent([*epilogue.row_lines, *epilogue.lines], 3)}\
        }}
    }}
"""
    return _built(body, epilogue, rows, (1, 1, 1), _ITEM_COLUMNS, _VECTORS)


def _gpu(epilogue: Epilogue, rows: PackedRows) -> TunedKernel:
    per_word = 32 // rows.bits
    mask = (1 << rows.bits) - 1
    terms = [
        f"sum += scale * (x{v}.{'xyzw'[k]} * ((float)(q >> {rows.bits * (4 * v + k)} & {mask}) - zero));"
        for v in range(per_word // 4)
        for k in range(4)
    ]
    loads = [f"const float4 x{v} = vload4({v}, A0 + at);" for v in range(per_word // 4)]
    body = f"""\
    __local float sums[{_LANES * _GROUP_COLUMNS}];
    const int lane = (int)get_local_id(0), line = (int)get_local_id(1);
    const int column = (f0 + (int)get_group_id(0)) * {_GROUP_COLUMNS} + line, row = f1 + (int)get_group_id(1);
    float sum = 0.0f;
    if (row < M && column < N) {{
        __global const float* A0 = A + (long)row * K;
        __global const uint* B0 = (__global const uint*)B + (long)column * (K / {per_word});
        for (int word = lane; word < K / {per_word}; word += {_LANES}) {{
            const int at = word * {per_word}, block = at / {rows.block};
            const float scale = {_scale(rows, "column")}, zero = {_zero(rows, "column")};
            const uint q = B0[word];
{indent(loads + terms, 3)}\
        }}
    }}
    const int place = line * {_LANES} + lane;
    sums[place] = sum;
    for (int half_ = {_LANES // 2}; half_ > 0; half_ /= 2) {{
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lane < half_) sums[place] += sums[place + half_];
    }}
    if (lane != 0 || row >= M || column >= N) return;
    const int flat = row * N + column;
    const float acc = sums[place];
{indent([*epilogue.row_lines, *epilogue.lines], 1)}\
"""
    return _built(body, epilogue, rows, (_LANES, _GROUP_COLUMNS, 1), _GROUP_COLUMNS)
