"""Tuned pooling: maximum or mean over windows of rows and columns, for CPUs and for GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from engine.backends.opencl.tuned_kernel import Epilogue, TunedKernel, build, indent

GROUP = 64
# Taps that are worth a group of their own on a CPU.
_TAPS = 1 << 12
NUMBERS = (
    "H", "W", "OH", "OW", "C", "planes", "KH", "KW", "sh", "sw", "dh", "dw", "top", "left",
    "margin_top", "margin_left", "end_h", "end_w",
)  # fmt: skip
"""`margin_*` and `end_*`: taps at rows -margin_top..end_h-1 count for the mean (columns alike)."""

_START = {"max": "-INFINITY", "average": "0.0f", "sum": "0.0f"}
# The comparison keeps NaN: once in, nothing is larger, and a NaN that comes is not equal to itself.
_SCALAR_STEP = {"max": "a = v > a || v != v ? v : a;", "average": "a += v;", "sum": "a += v;"}
_VECTOR_STEP = {"max": "a = (v > a) | (v != v) ? v : a;", "average": "a += v;", "sum": "a += v;"}


def _columns(column: str) -> list[str]:
    """Statements that count the taps of a row that count for the mean."""
    return [
        f"const int begin = ({column}) * sw - left;",
        "int columns = KW;",
        "if (begin < -margin_left || begin + (KW - 1) * dw >= end_w) {",
        "    columns = 0;",
        "    for (int kw = 0, w = begin; kw < KW; ++kw, w += dw) columns += w >= -margin_left && w < end_w;",
        "}",
    ]


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


_COUNT_ROWS = """\
    int rows = 0;
    for (int kh = 0, h = oh * sh - top; kh < KH; ++kh, h += dh) rows += h >= -margin_top && h < end_h;
"""


def rows_for(taps: int) -> int:
    """Rows that one work-item of the CPU form computes, where each takes this many taps."""
    return max(1, -(-_TAPS // max(1, taps)))


def cpu(epilogue: Epilogue, kind: str) -> TunedKernel:
    """One work-item computes `span` rows, 16 neighbours at a time, or one by one where there are fewer."""
    # How many columns count is the same for all rows, and a loop without branches stores vectors.
    is_mean = kind == "average"
    counted = ["int counts[16];", "for (int l = 0; l < width; ++l) {", *_indented(_columns("ow0 + l"))]
    counted = [*counted, "    counts[l] = columns;", "}"] if is_mean else []
    mean = ["acc /= (float)(rows * counts[l]);"] if is_mean else []
    stored = ["const int flat = flat0 + l;", "float acc = tile[l];", *mean, *epilogue.lines]
    body = f"""\
    const int first = (f1 + (int)get_global_id(1)) * span, image = f2 + (int)get_global_id(2);
    if (first >= OH || image >= planes) return;
    __global const float* X0 = X + (long)image * H * W;
    const int n = image / C, m = image - n * C, width = min(16, OW);
{indent(epilogue.row_lines, 1)}\
    // 16 neighbours, between what stands for those outside.
    float edge[48];
    for (int l = 0; l < 48; ++l) edge[l] = {_START[kind]};
    for (int next = 0; next < OW; next += width) {{
        // The last ones overlap those before them.
        const int ow0 = min(next, OW - width);
{indent(counted, 2)}\
        for (int oh = first; oh < min(OH, first + span); ++oh) {{
{_COUNT_ROWS if is_mean else ""}\
            const int flat0 = (image * OH + oh) * OW + ow0;
            float tile[16];
            if (width == 16) {{
                float16 a = {_START[kind]};
                for (int kh = 0, h = oh * sh - top; kh < KH; ++kh, h += dh) {{
                    if (h < 0 || h >= H) continue;
                    for (int kw = 0, w = ow0 * sw - left; kw < KW; ++kw, w += dw) {{
                        __global const float* from = X0 + (long)h * W + w;
                        float part[16];
                        if (w >= 0 && w + 15 * sw < W) {{
                            if (sw == 1) {{
                                for (int l = 0; l < 16; ++l) part[l] = from[l];
                            }} else if (sw == 2) {{
                                for (int l = 0; l < 16; ++l) part[l] = from[2 * l];
                            }} else {{
                                for (int l = 0; l < 16; ++l) part[l] = from[l * sw];
                            }}
                        }} else if (sw == 1 && W >= 16) {{
                            const int base = min(max(w, 0), W - 16), shift = min(max(w - base, -16), 16);
                            *(loose16*)(edge + 16) = *(__global const loose16*)(from + (base - w));
                            *(loose16*)part = *(loose16*)(edge + 16 + shift);
                        }} else {{
                            for (int l = 0; l < 16; ++l) {{
                                const int at = w + l * sw, inside = min(max(at, 0), W - 1);
                                part[l] = at == inside ? from[inside - w] : {_START[kind]};
                            }}
                        }}
                        const float16 v = *(loose16*)part;
                        {_VECTOR_STEP[kind]}
                    }}
                }}
                *(loose16*)tile = a;
                for (int l = 0; l < 16; ++l) {{
{indent(stored, 5)}\
                }}
            }} else {{
                for (int l = 0; l < width; ++l) {{
                    float a = {_START[kind]};
                    for (int kh = 0, h = oh * sh - top; kh < KH; ++kh, h += dh) {{
                        if (h < 0 || h >= H) continue;
                        for (int kw = 0, w = l * sw - left; kw < KW; ++kw, w += dw) {{
                            if (w < 0 || w >= W) continue;
                            const float v = X0[(long)h * W + w];
                            {_SCALAR_STEP[kind]}
                        }}
                    }}
                    tile[l] = a;
                }}
                for (int l = 0; l < width; ++l) {{
{indent(stored, 5)}\
                }}
            }}
        }}
    }}
"""
    head = "typedef float16 loose16 __attribute__((aligned(4)));\n"
    numbers = (*NUMBERS, "span")
    rounds = ("KH", "KW", "span", "OW")
    return build(body, epilogue, ("X",), numbers, (1, 1, 1), rounds=rounds, head=head)


def gpu(epilogue: Epilogue, kind: str) -> TunedKernel:
    """One work-item computes one element."""
    mean = [*_columns("ow"), "acc /= (float)(rows * columns);"] if kind == "average" else []
    body = f"""\
    const int at = (f0 + (int)get_group_id(0)) * {GROUP} + (int)get_local_id(0);
    const int image = f2 + (int)get_group_id(2);
    if (at >= OH * OW || image >= planes) return;
    const int oh = at / OW, ow = at - oh * OW;
    __global const float* X0 = X + (long)image * H * W;
    float a = {_START[kind]};
    for (int kh = 0, h = oh * sh - top; kh < KH; ++kh, h += dh) {{
        if (h < 0 || h >= H) continue;
        for (int kw = 0, w = ow * sw - left; kw < KW; ++kw, w += dw) {{
            if (w < 0 || w >= W) continue;
            const float v = X0[h * W + w];
            {_SCALAR_STEP[kind]}
        }}
    }}
{_COUNT_ROWS if kind == "average" else ""}\
    const int n = image / C, m = image - n * C, flat = image * OH * OW + at;
    float acc = a;
{indent(mean, 1)}\
{indent(epilogue.row_lines, 1)}\
{indent(epilogue.lines, 1)}\
"""
    return build(body, epilogue, ("X",), NUMBERS, (GROUP, 1, 1), rounds=("KH", "KW"), area=GROUP)
