"""Tuned kernels for GPUs: a group of 16 x 16 work-items computes a tile through local memory.

A work-item computes `per_item` rows (16 apart) of 4 columns (16 apart), so that neighbours read and write
neighbouring addresses.
"""

from __future__ import annotations

from engine.backends.opencl.codegen.tuned_kernel import OpenCLEpilogue, TunedKernel, build, indent

SIDE = 16
COLUMNS = 64
DEPTH = 16
_LOCAL = (SIDE, SIDE, 1)
MATMUL_NUMBERS = ("M", "N", "K", "a_b", "a_m", "a_k", "b_b", "b_k", "b_n")
CONV_NUMBERS = ("M", "N", "K", "G", "OH", "OW", "Wq", "x_n", "x_g")
TAPS_NUMBERS = ("K", "KH", "KW", "x_c", "plane", "Wq", "sh", "sw", "dh", "dw")
PACK_NUMBERS = ("H", "W", "Hq", "Wq", "sh", "sw", "top", "left", "planes")
GROUP = 64


def rows_for(count: int) -> int:
    """Rows per work-item for a matrix with `count` rows."""
    return 4 if count > 32 else 2 if count > 16 else 1


def _tile_product(per_item: int, load_a: str, load_b: str) -> str:
    """The loop over tiles: `load_a` and `load_b` are statements that fill As[k][row] and Bs[k][column]."""
    rows = SIDE * per_item
    names = [f"a{r}_{c}" for r in range(per_item) for c in range(4)]
    accumulators = [f"item {name} = (item)0;" for name in names]
    values = [f"const item u{r} = As[k][ty + {SIDE * r}];" for r in range(per_item)]
    values += [f"const item v{c} = Bs[k][tx + {SIDE * c}];" for c in range(4)]
    products = [f"ADD(a{r}_{c}, u{r}, v{c});" for r in range(per_item) for c in range(4)]
    return f"""\
    __local item As[{DEPTH}][{rows + 1}];
    __local item Bs[{DEPTH}][{COLUMNS + 1}];
{indent(accumulators, 1)}\
    for (int k0 = 0; k0 < K; k0 += {DEPTH}) {{
        for (int t = lid; t < {DEPTH * rows}; t += {SIDE * SIDE}) {{
{load_a}\
        }}
        for (int t = lid; t < {DEPTH * COLUMNS}; t += {SIDE * SIDE}) {{
{load_b}\
        }}
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int k = 0; k < {DEPTH}; ++k) {{
{indent(values + products, 3)}\
        }}
        barrier(CLK_LOCAL_MEM_FENCE);
    }}
    const item tile[{4 * per_item}] = {{{", ".join(names)}}};
"""


_PLACE = """\
    const int tx = (int)get_local_id(0), ty = (int)get_local_id(1), lid = ty * 16 + tx;
    const int m0 = (f0 + (int)get_group_id(0)) * {rows}, n0 = (f1 + (int)get_group_id(1)) * 64;
    const int slice = f2 + (int)get_group_id(2);
    if (m0 >= M || n0 >= N) return;
"""


def matmul(epilogue: OpenCLEpilogue, per_item: int) -> TunedKernel:
    """(batch, M, K) by (batch, K, N), any strides; loads follow whichever stride is 1."""
    rows = SIDE * per_item
    load_a = f"""\
            const int k = a_k == 1 ? t % {DEPTH} : t / {rows}, i = a_k == 1 ? t / {DEPTH} : t % {rows};
            const bool inside = m0 + i < M && k0 + k < K;
            As[k][i] = inside ? A0[(long)(m0 + i) * a_m + (long)(k0 + k) * a_k] : (item)0;
"""
    load_b = f"""\
            const int k = b_k == 1 ? t % {DEPTH} : t / {COLUMNS}, j = b_k == 1 ? t / {DEPTH} : t % {COLUMNS};
            const bool inside = n0 + j < N && k0 + k < K;
            Bs[k][j] = inside ? B0[(long)(n0 + j) * b_n + (long)(k0 + k) * b_k] : (item)0;
"""
    body = f"""\
{_PLACE.format(rows=rows)}\
    const int batch = slice;
    __global const item* A0 = A + (long)batch * a_b;
    __global const item* B0 = B + (long)batch * b_b;
{_tile_product(per_item, load_a, load_b)}\
    for (int r = 0; r < {per_item}; ++r) {{
        const int m = m0 + ty + {SIDE} * r;
        if (m >= M) break;
{indent(epilogue.row_lines, 2)}\
        for (int c = 0; c < 4; ++c) {{
            const int j = n0 + tx + {SIDE} * c;
            if (j >= N) break;
            const int flat = (batch * M + m) * N + j;
            const item acc = tile[r * 4 + c];
{indent(epilogue.lines, 3)}\
        }}
    }}
"""
    area = rows * COLUMNS
    return build(
        body, epilogue, ("A", "B"), MATMUL_NUMBERS, _LOCAL, rounds=("K",), area=area, item=epilogue.item
    )


def conv(epilogue: OpenCLEpilogue, per_item: int) -> TunedKernel:
    """Convolution as a product: M output channels of a group by N positions q = row * Wq + column.

    Column q of the right side holds X[taps[k] + q]: the input was packed so that this holds (`pack`).
    """
    rows = SIDE * per_item
    load_a = f"""\
            const int k = t % {DEPTH}, i = t / {DEPTH};
            As[k][i] = m0 + i < M && k0 + k < K ? W0[(long)(m0 + i) * K + k0 + k] : (item)0;
"""
    load_b = f"""\
            const int k = t / {COLUMNS}, j = t % {COLUMNS};
            Bs[k][j] = n0 + j < N && k0 + k < K ? X0[taps[k0 + k] + n0 + j] : (item)0;
"""
    body = f"""\
{_PLACE.format(rows=rows)}\
    const int n = slice / G, g = slice - n * G;
    __global const item* X0 = X + (long)n * x_n + (long)g * x_g;
    __global const item* W0 = W + (long)g * M * K;
{_tile_product(per_item, load_a, load_b)}\
    for (int r = 0; r < {per_item}; ++r) {{
        const int row = m0 + ty + {SIDE} * r, m = g * M + row;
        if (row >= M) break;
{indent(epilogue.row_lines, 2)}\
        for (int c = 0; c < 4; ++c) {{
            const int q = n0 + tx + {SIDE} * c;
            if (q >= N) break;
            const int oh = q / Wq, ow = q - oh * Wq;
            if (ow >= OW) continue;
            const int flat = ((n * M * G + m) * OH + oh) * OW + ow;
            const item acc = tile[r * 4 + c];
{indent(epilogue.lines, 3)}\
        }}
    }}
"""
    area = rows * COLUMNS
    operands = ("X", "W", "taps:int32")
    return build(body, epilogue, operands, CONV_NUMBERS, _LOCAL, rounds=("K",), area=area, item=epilogue.item)


def taps() -> TunedKernel:
    """The offset of each tap (channel, kh, kw) of a convolution from its first."""
    body = f"""\
    const int k = (f0 + (int)get_group_id(0)) * {GROUP} + (int)get_local_id(0);
    if (k >= K) return;
    const int kw = k % KW, kh = k / KW % KH, c = k / KW / KH;
    const int h = kh * dh, w = kw * dw;
    y[k] = c * x_c + (h % sh * sw + w % sw) * plane + h / sh * Wq + w / sw;
"""
    return build(body, None, (), TAPS_NUMBERS, (GROUP, 1, 1), output="int32")


def pack(item: str) -> TunedKernel:
    """Images -> padded with 0, and split into sh * sw images of every sh-th row and sw-th column."""
    body = f"""\
    const int at = (f0 + (int)get_group_id(0)) * {GROUP} + (int)get_local_id(0);
    const int phase = f1 + (int)get_group_id(1), image = f2 + (int)get_group_id(2);
    if (at >= Hq * Wq || image >= planes) return;
    const int row = at / Wq, column = at - row * Wq, ph = phase / sw, pw = phase - ph * sw;
    const int h = row * sh + ph - top, w = column * sw + pw - left;
    const bool inside = h >= 0 && h < H && w >= 0 && w < W;
    y[((long)image * sh * sw + phase) * Hq * Wq + at] = inside ? X[((long)image * H + h) * W + w] : (item)0;
"""
    return build(body, None, ("X",), PACK_NUMBERS, (GROUP, 1, 1), item=item)
