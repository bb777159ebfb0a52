"""Tuned kernels for OpenCL devices that are CPUs: one work-item computes a tile of rows x 16 columns.

Groups have one work-item, so that the tile stays in registers and the compiler sees plain vector code;
with more, PoCL would keep every private value in an array over the group.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.backends.opencl.codegen.tuned_kernel import OpenCLEpilogue, TunedKernel, build, indent
from engine.compiler.plan import storable

COLUMNS = 16
_LOCAL = (1, 1, 1)
# Multiplications that are worth a group of their own: a microsecond or two.
_WORK = 1 << 15
# A dereference of this type is one unaligned vector move; PoCL's vload16 is a function call.
LOOSE = "typedef item16 loose16 __attribute__((aligned(4)));\n"
MATMUL_NUMBERS = ("M", "N", "K", "a_b", "a_m", "a_k", "b_b", "b_strip", "b_k", "readable")
CONV_NUMBERS = (
    "Q", "Mg", "Cg", "KH", "KW", "G", "OH", "OW", "Wq", "x_n", "x_g", "x_c", "plane",
    "sh", "sw", "qh", "qw", "rh", "rw", "readable", "span",
)  # fmt: skip
PACK_NUMBERS = ("H", "W", "Hq", "Wq", "sh", "sw", "top", "left", "planes")
PACK_ROWS = 8
STRIP_ROWS = 32
STRIP_NUMBERS = ("N", "K", "b_b", "b_row", "b_col", "strips")


def positions_for(multiplications: int) -> int:
    """Number of positions per work-item, given the multiplications of each.

    So many that starting a group, about 100 ns, does not count.
    """
    return COLUMNS * max(1, -(-_WORK // max(1, multiplications * COLUMNS)))


def rows_for(count: int) -> int:
    """Rows of a tile for a matrix with `count` rows: 6 x 16 results fill 12 of 16 AVX registers."""
    return 6 if count > 4 else 4 if count > 2 else count


def _accumulators(rows: int) -> list[str]:
    return [f"item16 a{i} = (item)0;" for i in range(rows)]


def _multiply_add(weights: Sequence[str]) -> list[str]:
    # Contracted to one instruction; PoCL's fma is a function call.
    return [f"ADD16(a{i}, {w}, v);" for i, w in enumerate(weights)]


def _loaded(is_whole: bool, left: str) -> list[str]:
    if is_whole:
        return ["const item16 v = *(__global const loose16*)b;"]
    return [
        "item part[16];",
        f"for (int l = 0; l < 16; ++l) part[l] = l < {left} ? b[l] : (item)0;",
        "const item16 v = *(loose16*)part;",
    ]


def matmul(epilogue: OpenCLEpilogue, rows: int) -> TunedKernel:
    """(batch, M, K) by (batch, K, N). Rows of the second operand are contiguous, at least in strips of 16."""

    def loop(count: int, is_whole: bool) -> str:
        # Rows beyond the last read the last: their results are not stored.
        lines = [f"__global const item* r{i} = A0 + (long)min(m0 + {i}, M - 1) * a_m;" for i in range(count)]
        lines += ["__global const item* b = B0;"]
        lines += ["for (int k = 0, ka = 0; k < K; ++k, ka += a_k, b += b_k) {"]
        lines += ["    " + s for s in _loaded(is_whole, "N - j0")]
        lines += ["    " + s for s in _multiply_add([f"r{i}[ka]" for i in range(count)])]
        return indent([*lines, "}"], 2)

    stores = "".join(f"    *(loose16*)(tile + {16 * i}) = a{i};\n" for i in range(rows))
    body = f"""\
    const int m0 = (f0 + (int)get_global_id(0)) * {rows}, j0 = (f1 + (int)get_global_id(1)) * 16;
    const int batch = f2 + (int)get_global_id(2);
    if (m0 >= M || j0 >= N) return;
    __global const item* A0 = A + (long)batch * a_b;
    __global const item* B0 = B + (long)batch * b_b + (long)(j0 / 16) * b_strip;
{indent(_accumulators(rows), 1)}\
    if (j0 + 16 > readable) {{
{loop(rows, False)}\
    }} else if (M == 1) {{
{loop(1, True)}\
    }} else {{
{loop(rows, True)}\
    }}
    item tile[{16 * rows}];
{stores}\
    const int rows = min({rows}, M - m0), columns = min(16, N - j0);
    for (int r = 0; r < rows; ++r) {{
        const int m = m0 + r;
{indent(epilogue.row_lines, 2)}\
        const int base = (batch * M + m) * N + j0;
        for (int l = 0; l < columns; ++l) {{
            const int flat = base + l, j = j0 + l;
            const item acc = tile[r * 16 + l];
{indent(epilogue.lines, 3)}\
        }}
    }}
"""
    return build(
        body, epilogue, ("A", "B"), MATMUL_NUMBERS, _LOCAL, rounds=("K",), area=16 * rows,
        head=LOOSE, item=epilogue.item,
    )  # fmt: skip


def strips(item: str) -> TunedKernel:
    """Pack a strided matrix in strips of 16 columns, the last one zero-padded."""
    load = [f"item16 v{k} = *(__global const loose16*)(from + {k} * (long)b_col);" for k in range(16)]
    store = [f"*(__global loose16*)(to + {16 * k}) = v{k};" for k in range(16)]
    body = f"""\
    const int first = (f0 + (int)get_global_id(0)) * {STRIP_ROWS}, strip = f1 + (int)get_global_id(1);
    const int batch = f2 + (int)get_global_id(2);
    if (first >= K || strip >= strips) return;
    const int end = min(first + {STRIP_ROWS}, K);
    int k = first;
    // Columns that are contiguous are transposed in registers.
    for (; b_row == 1 && k + 16 <= end && strip * 16 + 16 <= N; k += 16) {{
        __global const item* from = B + (long)batch * b_b + (long)strip * 16 * b_col + k;
        __global item* to = y + (((long)batch * strips + strip) * K + k) * 16;
{indent([*load, *_transposed(), *store], 2)}\
    }}
    for (; k < end; ++k) {{
        __global const item* from = B + (long)batch * b_b + (long)k * b_row;
        __global item* to = y + (((long)batch * strips + strip) * K + k) * 16;
        for (int l = 0; l < 16; ++l) {{
            const int j = strip * 16 + l;
            to[l] = j < N ? from[(long)j * b_col] : (item)0;
        }}
    }}
"""
    return build(body, None, ("B",), STRIP_NUMBERS, _LOCAL, item=item, head=LOOSE)


def _transposed() -> list[str]:
    """Statements that transpose v0 to v15: each round interleaves the halves of vectors k and k + 8."""
    lines = []
    for _ in range(4):
        lines += ["{", *(f"    const item16 u{k} = v{k};" for k in range(16))]
        for k in range(8):
            lines.append(f"    v{2 * k}.even = u{k}.lo; v{2 * k}.odd = u{k + 8}.lo;")
            lines.append(f"    v{2 * k + 1}.even = u{k}.hi; v{2 * k + 1}.odd = u{k + 8}.hi;")
        lines.append("}")
    return lines


@storable
def pack_strips(known: np.ndarray, batch: int, strides: tuple[int, ...], k: int, n: int) -> np.ndarray:
    """Pack a strided (batch, k, n) matrix as (batch, strips, k, 16), the last strip zero-padded."""
    flat = np.ascontiguousarray(known).reshape(-1)
    step = flat.itemsize
    in_bytes = tuple(s * step for s in strides)
    view = np.lib.stride_tricks.as_strided(flat, (batch, k, n), in_bytes, writeable=False)
    width = COLUMNS
    count = -(-n // width)
    wide = np.zeros((batch, k, count * width), flat.dtype)
    wide[:, :, :n] = view
    return np.ascontiguousarray(wide.reshape(batch, k, count, width).transpose(0, 2, 1, 3)).reshape(-1)


def conv(epilogue: OpenCLEpilogue, rows: int) -> TunedKernel:
    """Convolution over a padded input with a row stride of `Wq`.

    Results are numbered over the padded rows (q = row * Wq + column), so 16 neighbours always read 16
    neighbours; those that fall between two rows are dropped. With strides, the input is split into
    sh * sw images (`pack`), and this holds again. Weights are [group][tile][kh][kw][c][row].
    """

    def loop(is_whole: bool) -> str:
        lines = ["__global const item* w = W0;"]
        lines += ["for (int kh = 0, ph = 0, oh = 0; kh < KH; ++kh) {"]
        lines += ["    for (int kw = 0, pw = 0, ow = 0; kw < KW; ++kw) {"]
        lines += ["        __global const item* b = X0 + (ph * sw + pw) * plane + oh * Wq + ow;"]
        lines += [f"        for (int c = 0; c < Cg; ++c, b += x_c, w += {rows}) {{"]
        lines += ["            " + s for s in _loaded(is_whole, "Q - q0")]
        lines += ["            " + s for s in _multiply_add([f"w[{i}]" for i in range(rows)])]
        lines += ["        }", "        pw += rw; ow += qw;", "        if (pw >= sw) { pw -= sw; ++ow; }"]
        lines += ["    }"]
        lines += ["    ph += rh; oh += qh;", "    if (ph >= sh) { ph -= sh; ++oh; }", "}"]
        return indent(lines, 3)

    stores = "".join(f"        *(loose16*)(tile + {16 * i}) = a{i};\n" for i in range(rows))
    body = f"""\
    const int tile_row = f0 + (int)get_global_id(0), q_first = (f1 + (int)get_global_id(1)) * span;
    const int image_group = f2 + (int)get_global_id(2), m0 = tile_row * {rows};
    if (q_first >= Q || m0 >= Mg) return;
    const int n = image_group / G, g = image_group - n * G;
    const int tiles = (Mg + {rows - 1}) / {rows};
    __global const item* W0 = W + (long)(g * tiles + tile_row) * Cg * KH * KW * {rows};
    for (int q0 = q_first; q0 < min(Q, q_first + span); q0 += 16) {{
        __global const item* X0 = X + (long)n * x_n + (long)g * x_g + q0;
{indent(_accumulators(rows), 2)}\
        if (q0 + 16 <= readable) {{
{loop(True)}\
        }} else {{
{loop(False)}\
        }}
        item tile[{16 * rows}];
{stores}\
        const int rows = min({rows}, Mg - m0), oh0 = q0 / Wq, ow0 = q0 - oh0 * Wq;
        const bool in_a_row = ow0 + 16 <= OW || (Wq == OW && q0 + 16 <= Q);
        for (int r = 0; r < rows; ++r) {{
            const int m = g * Mg + m0 + r;
{indent(epilogue.row_lines, 3)}\
            const int plane0 = (n * Mg * G + m) * OH * OW;
            if (in_a_row) {{
                for (int l = 0; l < 16; ++l) {{
                    const int flat = plane0 + oh0 * OW + ow0 + l;
                    const item acc = tile[r * 16 + l];
{indent(epilogue.lines, 5)}\
                }}
            }} else {{
                for (int l = 0, oh = oh0, ow = ow0; l < 16; ++l) {{
                    if (ow < OW && oh < OH) {{
                        const int flat = plane0 + oh * OW + ow;
                        const item acc = tile[r * 16 + l];
{indent(epilogue.lines, 6)}\
                    }}
                    if (++ow == Wq) {{ ow = 0; ++oh; }}
                }}
            }}
        }}
    }}
"""
    rounds = ("Cg", "KH", "KW", "span")
    return build(
        body, epilogue, ("X", "W"), CONV_NUMBERS, _LOCAL, rounds=rounds, area=rows,
        head=LOOSE, item=epilogue.item,
    )  # fmt: skip


def columns_copied(element: str) -> list[str]:
    """Statements that copy columns lo..hi-1 of every sw-th `element`, which names the stride `{0}`.

    Compilers make vectors of loops whose stride they know.
    """
    loop = "for (int i = lo; i < hi; ++i) to[i] = {0};"
    copies = [loop.format(element.format(stride)) for stride in ("1", "2", "sw")]
    return [f"if (sw == 1) {copies[0]}", f"else if (sw == 2) {copies[1]}", f"else {copies[2]}"]


def pack(item: str) -> TunedKernel:
    """Images -> padded with 0, and split into sh * sw images of every sh-th row and sw-th column."""
    body = f"""\
    const int first = (f0 + (int)get_global_id(0)) * {PACK_ROWS}, phase = f1 + (int)get_global_id(1);
    const int image = f2 + (int)get_global_id(2);
    if (first >= Hq || image >= planes) return;
    const int ph = phase / sw, pw = phase - ph * sw, last = min(first + {PACK_ROWS}, Hq);
    // Columns lo..hi-1 come from the input: 0 <= column * sw + pw - left < W.
    const int lo = min(Wq, max(0, (left - pw + sw - 1) / sw));
    const int end = W + left - pw;
    const int hi = end <= 0 ? lo : max(lo, min(Wq, (end - 1) / sw + 1));
    for (int row = first; row < last; ++row) {{
        __global item* to = y + (((long)image * sh * sw + phase) * Hq + row) * Wq;
        const int h = row * sh + ph - top;
        if (h < 0 || h >= H) {{
            for (int i = 0; i < Wq; ++i) to[i] = (item)0;
            continue;
        }}
        __global const item* from = X + ((long)image * H + h) * W + pw - left;
        for (int i = 0; i < lo; ++i) to[i] = (item)0;
{indent(columns_copied("from[i * {0}]"), 2)}\
        for (int i = hi; i < Wq; ++i) to[i] = (item)0;
    }}
"""
    return build(body, None, ("X",), PACK_NUMBERS, _LOCAL, item=item)
