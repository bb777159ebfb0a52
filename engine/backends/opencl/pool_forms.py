"""Tuned pooling: maximum or mean over windows of rows and columns, for CPUs and for GPUs."""

from __future__ import annotations

from engine.backends.opencl.tuned import Epilogue, TunedKernel, build, indent

COLUMNS = 16
GROUP = 64
NUMBERS = (
    "H", "W", "OH", "OW", "C", "planes", "KH", "KW", "sh", "sw", "dh", "dw", "top", "left",
    "margin_top", "margin_left", "end_h", "end_w",
)  # fmt: skip
"""`margin_*` and `end_*`: taps at rows -margin_top..end_h-1 count for the mean (columns alike)."""

_START = {"max": "-INFINITY", "average": "0.0f"}
# The comparison keeps NaN: once in, nothing is larger, and a NaN that comes is not equal to itself.
_SCALAR_STEP = {"max": "a = v > a || v != v ? v : a;", "average": "a += v;"}
_VECTOR_STEP = {"max": "a = (v > a) | (v != v) ? v : a;", "average": "a += v;"}


def _mean(kind: str, column: str) -> list[str]:
    """The statement that turns a sum into a mean, over the taps that count; `rows` has been counted."""
    if kind == "max":
        return []
    return [
        "int columns = 0;",
        f"for (int kw = 0, w = ({column}) * sw - left; kw < KW; ++kw, w += dw)",
        "    columns += w >= -margin_left && w < end_w;",
        "acc /= (float)(rows * columns);",
    ]


_COUNT_ROWS = """\
    int rows = 0;
    for (int kh = 0, h = oh * sh - top; kh < KH; ++kh, h += dh) rows += h >= -margin_top && h < end_h;
"""


def cpu(epilogue: Epilogue, kind: str) -> TunedKernel:
    """One work-item computes 16 neighbours of a row."""
    body = f"""\
    const int ow0 = (f0 + (int)get_global_id(0)) * {COLUMNS}, oh = f1 + (int)get_global_id(1);
    const int image = f2 + (int)get_global_id(2);
    if (oh >= OH || ow0 >= OW || image >= planes) return;
    __global const float* X0 = X + (long)image * H * W;
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
                    const int at = w + l * sw;
                    part[l] = at >= 0 && at < W ? from[l * sw] : {_START[kind]};
                }}
            }}
            const float16 v = *(loose16*)part;
            {_VECTOR_STEP[kind]}
        }}
    }}
    float tile[16];
    *(loose16*)tile = a;
{_COUNT_ROWS if kind == "average" else ""}\
    const int n = image / C, m = image - n * C, plane0 = (image * OH + oh) * OW + ow0;
{indent(epilogue.row_lines, 1)}\
    for (int l = 0; l < min(16, OW - ow0); ++l) {{
        const int flat = plane0 + l;
        float acc = tile[l];
{indent(_mean(kind, "ow0 + l"), 2)}\
{indent(epilogue.lines, 2)}\
    }}
"""
    head = "typedef float16 loose16 __attribute__((aligned(4)));\n"
    return build(body, epilogue, ("X",), NUMBERS, (1, 1, 1), rounds=("KH", "KW"), area=COLUMNS, head=head)


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
