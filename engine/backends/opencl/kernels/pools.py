"""Tuned pooling: maximum or mean over windows of rows and columns, for CPUs and for GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from engine.backends.opencl.codegen.printer import OpenCLPrinter, element
from engine.backends.opencl.codegen.storage import WORDS
from engine.backends.opencl.codegen.tuned_kernel import OpenCLEpilogue, TunedKernel, axis_names, build, indent
from engine.backends.windows import pair, windows_first
from engine.compiler.plan import Compute, Tuner

GROUP = 64
STAGED = 512
"""Columns of the input that the CPU form has at hand."""

# Taps that are worth a group of their own on a CPU.
_TAPS = 1 << 12
NUMBERS = (
    "H", "W", "OH", "OW", "C", "planes", "KH", "KW", "sh", "sw", "dh", "dw", "top", "left",
    "margin_top", "margin_left", "end_h", "end_w",
)  # fmt: skip
"""`margin_*` and `end_*`: taps at rows -margin_top..end_h-1 count for the mean (columns alike)."""

_START = {"max": "-INFINITY", "average": "0.0f", "sum": "0.0f"}
# The comparison keeps NaN: once in, nothing is larger, and a NaN that comes is not equal to itself.
_STEP = {"max": "a = v > a || v != v ? v : a;", "average": "a += v;", "sum": "a += v;"}


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
    """Rows per work-item of the CPU kernel, given the taps of each."""
    return max(1, -(-_TAPS // max(1, taps)))


def cpu(epilogue: OpenCLEpilogue, kind: str, storage: str) -> TunedKernel:
    """One work-item computes `span` rows: elements along the columns of a window first, then along its rows.

    What the windows of a row have in their columns is staged, between what stands for the elements outside.
    """
    word = OpenCLPrinter.TYPES[epilogue.item]
    is_plain = word == WORDS[storage]
    start = _START[kind] if word == "float" else "INT_MIN"
    # How many columns count is the same for all rows, and a loop without branches stores vectors.
    is_mean = kind == "average"
    # A vector's NaNs are found beside the comparison, so that one does not wait for the other.
    keeps_nan = kind == "max" and word == "float"
    step = "a = v > a ? v : a;" if kind == "max" else "a += v;"
    nan, step = ("int16 nan = 0;", f"{step} nan |= v != v;") if keeps_nan else ("", step)
    finish = "a = nan ? (float16)NAN : a;" if keeps_nan else ""
    counted = ["int counts[64];", "for (int l = 0; l < count; ++l) {", *_indented(_columns("next + l"))]
    counted = [*counted, "    counts[l] = columns;", "}"] if is_mean else []
    mean = ["acc /= (float)(rows * counts[l]);"] if is_mean else []
    stored = ["const int flat = flat0 + l;", f"{word} acc = tile[l];", *mean, *epilogue.lines]
    loaded = f"{word}16 v = *(__global const pack*)(from + at);"
    if not is_plain:
        one = element(storage, "from", "at + l")
        loaded = f"{word}16 v; for (int l = 0; l < 16; ++l) ((__private {word}*)&v)[l] = {one};"
    body = f"""\
    const int first = (f1 + (int)get_global_id(1)) * span, image = f2 + (int)get_global_id(2);
    if (first >= OH || image >= planes) return;
    __global const {WORDS[storage]}* X0 = X + (long)image * H * W;
    const int n = image / C, m = image - n * C;
{indent(epilogue.row_lines, 1)}\
    const int lanes = max(1, min(64, ({STAGED} - 32 - (KW - 1) * dw) / sw));
    {word} staged[{STAGED}], tile[64];
    for (int next = 0; next < OW; next += lanes) {{
        const int count = min(lanes, OW - next), w0 = next * sw - left;
        const int reach = (count - 1) * sw + (KW - 1) * dw;
        const int begin = max(w0, 0), end = min(w0 + reach + 1, W), few = end - begin < 16;
        for (int c = 0; c < reach + 32; c += 16) *(pack*)(staged + c) = {start};
{indent(counted, 2)}\
        for (int oh = first; oh < min(OH, first + span); ++oh) {{
{_COUNT_ROWS if is_mean else ""}\
            const int h0 = oh * sh - top, skipped = h0 < 0 ? (dh - 1 - h0) / dh : 0;
            const int taken = min(KH, (H - h0 + dh - 1) / dh);
            for (int c = begin; c < end && !few; c += 16) {{
                // The last ones overlap those before them.
                const int at = min(c, end - 16);
                {word}16 a = {start}; {nan}
                for (int kh = skipped; kh < taken; ++kh) {{
                    __global const {WORDS[storage]}* from = X0 + (long)(h0 + kh * dh) * W;
                    {loaded}
                    {step}
                }}
                {finish}
                *(pack*)(staged + at - w0) = a;
            }}
            for (int w = begin; w < end && few; ++w) {{
                {word} a = {start};
                for (int kh = skipped; kh < taken; ++kh) {{
                    __global const {WORDS[storage]}* from = X0 + (long)(h0 + kh * dh) * W;
                    const {word} v = {element(storage, "from", "w")};
                    {_STEP[kind]}
                }}
                staged[w - w0] = a;
            }}
            for (int b = 0; b < count; b += 16) {{
                {word}16 a = {start}; {nan}
                const {word}* source = staged + b * sw;
                if (sw == 1) {{
                    for (int kw = 0; kw < KW; ++kw, source += dw) {{
                        const {word}16 v = *(const pack*)source;
                        {step}
                    }}
                }} else if (sw == 2) {{
                    for (int kw = 0; kw < KW; ++kw, source += dw) {{
                        const {word}16 low = *(const pack*)source, high = *(const pack*)(source + 16);
                        const {word}16 v = ({word}16)(low.even, high.even);
                        {step}
                    }}
                }} else {{
                    {word} each[16];
                    for (int l = 0; l < 16; ++l) each[l] = {start};
                    for (int kw = 0; kw < KW; ++kw, source += dw) {{
                        for (int l = 0; l < min(16, count - b); ++l) each[l] = source[l * sw];
                        const {word}16 v = *(const pack*)each;
                        {step}
                    }}
                }}
                {finish}
                *(pack*)(tile + b) = a;
            }}
            const int flat0 = (image * OH + oh) * OW + next;
            for (int l = 0; l < count; ++l) {{
{indent(stored, 4)}\
            }}
        }}
    }}
"""
    head = f"typedef {word}16 pack __attribute__((aligned(4)));\n"
    numbers = (*NUMBERS, "span", "taps")
    rounds = ("taps", "span", "OW")
    return build(
        body, epilogue, (f"X:{storage}",), numbers, (1, 1, 1), rounds=rounds, head=head, item=epilogue.item
    )


def gpu(epilogue: OpenCLEpilogue, kind: str) -> TunedKernel:
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
            {_STEP[kind]}
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


def tune_pool(compute: Compute, tuner: Tuner, form: str) -> bool:
    """Rule for hints of kind "pool" of float32, and for maxima of integers on CPUs."""
    (x,), attributes = compute.operands, compute.attributes
    win, kind = windows_first(compute), attributes["kind"]
    is_integer_max = form == "cpu" and kind == "max" and compute.body.dtype == "int32"
    if win is None or not (compute.is_float32 or is_integer_max):
        return False
    sizes, out, begins, ends = (win.height, win.width), win.out, win.pads, pair(attributes["ends"], 0)
    margins = begins if attributes["include_pad"] else (0, 0)
    limits = [n + e if attributes["include_pad"] else n for n, e in zip(sizes, ends, strict=True)]
    planes = x.shape[0] * x.shape[1]
    numbers: tuple[int, ...] = (
        *sizes, *out, x.shape[1], planes, *win.kernel, *win.strides, *win.dilations, *begins, *margins,
        *limits,
    )  # fmt: skip
    epilogue = OpenCLEpilogue(compute, axis_names(compute, x.rank, {0: "n", 1: "m"}), {})
    if form == "cpu":
        if (win.kernel[1] - 1) * win.dilations[1] > STAGED // 2:
            return False
        kernel = cpu(epilogue, kind, x.dtype.name)
        taps = win.kernel[0] + win.kernel[1]
        span = rows_for(out[1] * taps)
        numbers = (*numbers, span, taps)
        grid = (1, -(-out[0] // span), planes)
    else:
        kernel = gpu(epilogue, kind)
        grid = (-(-prod(out) // GROUP), 1, planes)
    return epilogue.emit(tuner, kernel, grid, numbers, (x.root.name,))
