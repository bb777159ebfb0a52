"""Tuned pooling: maximum or mean over windows of rows and columns, for CPUs and for GPUs."""

from __future__ import annotations

from engine.backends.opencl.tuned import Epilogue, TunedKernel, build, indent

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


def _mean(kind: str, column: str) -> list[str]:
    """The statement that turns a sum into a mean, over the taps that count; `rows` has been counted."""
    if kind != "average":
        return []
    return [
        f"const int begin = ({column}) * sw - left;",
        "int columns = KW;",
        "if (begin < -margin_left || begin + (KW - 1) * dw >= end_w) {",
        "    columns = 0;",
        "    for (int kw = 0, w = begin; kw < KW; ++kw, w += dw) columns += w >= -margin_left && w < end_w;",
        "}",
        "acc /= (float)(rows * columns);",
    ]


_COUNT_ROWS = """\
    int rows = 0;
    for (int kh = 0, h = oh * sh - top; kh < KH; ++kh, h += dh) rows += h >= -margin_top && h < end_h;
"""


def rows_for(taps: int) -> int:
    """Rows that one work-item of the CPU form computes, where each takes this many taps."""
    return max(1, -(-_TAPS // max(1, taps)))


def cpu(epilogue: Epilogue, kind: str) -> TunedKernel:
    """One work-item computes `span` rows, 16 neighbours at a time, or one by one where there are fewer."""
    body = f"""\
    const int first = (f1 + (int)get_global_id(1)) * span, image = f2 + (int)get_global_id(2);
    if (first >= OH || image >= planes) return;
    __global const float* X0 = X + (long)image * H * W;
    const int n = image / C, m = image - n * C, width = min(16, OW);
{indent(epilogue.row_lines, 1)}\
    for (int oh = first; oh < min(OH, first + span); ++oh) {{
{_COUNT_ROWS if kind == "average" else ""}\
        for (int next = 0; next < OW; next += width) {{
            // The last ones overlap those before them.
            const int ow0 = min(next, OW - width);
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
            }}
            for (int l = 0; l < width; ++l) {{
                const int flat = (image * OH + oh) * OW + ow0 + l;
                float acc = tile[l];
{indent(_mean(kind, "ow0 + l"), 4)}\
{indent(epilogue.lines, 4)}\
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
{indent(_mean(kind, "ow"), 1)}\
{indent(epilogue.row_lines, 1)}\
{indent(epilogue.lines, 1)}\
"""
    return build(body, epilogue, ("X",), NUMBERS, (GROUP, 1, 1), rounds=("KH", "KW"), area=GROUP)
