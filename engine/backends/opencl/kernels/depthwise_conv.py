"""Convolutions of few outputs per group on CPUs: depthwise ones, and those with a channel multiplier.

A work-item copies the rows that its windows meet to memory of its own, in the type of the sums, less the zero
point and with padding. So elements of any type are read where they are, and once.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from engine.backends.opencl.codegen.printer import OpenCLPrinter, element
from engine.backends.opencl.codegen.storage import WORDS
from engine.backends.opencl.codegen.tuned_kernel import OpenCLEpilogue, TunedKernel, axis_names, build, indent
from engine.backends.opencl.kernels.cpu_gemm import LOOSE, columns_copied
from engine.backends.operands import Fits, promote_operands, rows_of
from engine.backends.windows import Windows2D, windows_first
from engine.compiler.plan import Compute, Tuner
from engine.kernels.size import largest

MOST_OUTPUTS = 4
"""Outputs of a group up to which tiles of several would be nearly empty, see `cpu_gemm.conv`."""

STAGED = 6144
"""Elements of the input that a work-item has at hand: its share of a first-level cache."""

_SUMS = 2048
_COLUMNS = 240
# Vectors whose sums are in registers together.
_VECTORS = 4
_TILE = 16 * _VECTORS
# Multiplications that are worth a group of their own.
_WORK = 1 << 16
_NUMBERS = (
    "H", "W", "OH", "OW", "planes", "Cg", "Mg", "G", "KH", "KW", "sh", "sw", "dh", "dw", "top", "left",
    "span",
)  # fmt: skip


def tune_depthwise_conv(compute: Compute, tuner: Tuner, fits: Fits) -> bool:
    """Rule for hints of kind "conv" and "conv_integer" over one or two axes."""
    win, group = windows_first(compute), int(compute.attributes["group"])
    (x, w), zeros = compute.operands[:2], compute.attributes.get("zeros", (False, False))
    outputs, channels = w.shape[0] // group, w.shape[1]
    if win is None or win.is_pointwise or outputs > MOST_OUTPUTS or x.arithmetic != compute.body.dtype:
        return False
    zero = compute.operands[2] if zeros[0] else None
    if (zero is not None and zero.size != 1) or not _fits(win, channels):
        return False
    promoted = promote_operands(compute, tuner, fits, sides=(1,))
    if promoted is None:
        return False
    weights = rows_of(promoted.operands[1], tuner)
    epilogue = OpenCLEpilogue(compute, axis_names(compute, x.rank, {0: "n", 1: "m"}), {})
    span = largest(1, -(-_WORK // largest(1, win.out[1] * channels * win.taps * outputs)))
    planes = x.shape[0] * group
    numbers = (
        win.height, win.width, *win.out, planes, channels, outputs, group, *win.kernel, *win.strides,
        *win.dilations, *win.pads, span,
    )  # fmt: skip
    read = [x.root.name, weights, *(() if zero is None else (zero.root.name,))]
    kernel = conv(epilogue, x.dtype.name, None if zero is None else zero.dtype.name)
    return epilogue.emit(tuner, kernel, (1, -(-win.out[0] // span), planes), numbers, read)


def _fits(win: Windows2D, channels: int) -> bool:
    """Whether what the windows of a whole row of results meet is staged together."""
    back_h, back_w = (
        (k - 1) * d // s for k, d, s in zip(win.kernel, win.dilations, win.strides, strict=True)
    )
    pitch = _COLUMNS + back_w
    return channels * prod(win.strides) * (back_h + 1) * pitch <= STAGED and pitch <= _SUMS


def conv(epilogue: OpenCLEpilogue, storage: str, zero: str | None) -> TunedKernel:
    """The kernel for an input stored as `storage` with a zero point stored as `zero`.

    With strides, rows and columns are staged as sh * sw images. Results are numbered over staged rows, so
    that 16 neighbours read 16 neighbours; those between two rows are dropped.
    """
    word = OpenCLPrinter.TYPES[epilogue.item]
    value = f"({word}){element(storage, 'from', 'i * {0}')}"
    if zero is not None:
        value = f"{value} - zero"
    sums = [f"item16 a{k} = (item)0;" for k in range(_VECTORS)]
    taps = [
        f"{{ const item16 v = *(const loose16*)(s + {16 * k}); ADD16(a{k}, weight, v); }}"
        for k in range(_VECTORS)
    ]
    stores = [f"*(loose16*)(found + q + {16 * k}) = a{k};" for k in range(_VECTORS)]
    body = f"""\
    const int first = (f1 + (int)get_global_id(1)) * span, image = f2 + (int)get_global_id(2);
    if (first >= OH || image >= planes) return;
    {f"const item zero = {element(zero, 'Z', '0')};" if zero else ""}
    const int n = image / G, g = image - n * G, last = min(OH, first + span);
    const int back_h = (KH - 1) * dh / sh, back_w = (KW - 1) * dw / sw;
    const int rh = dh % sh, rw = dw % sw, qh = dh / sh, qw = dw / sw;
    item staged[{STAGED + 2 * _TILE}], found[{_SUMS + _TILE}];
    for (int next = 0; next < OW; next += {_COLUMNS}) {{
        const int columns = min({_COLUMNS}, OW - next), pitch = columns + back_w;
        const int room = min({STAGED} / (pitch * Cg * sh * sw) - back_h, {_SUMS} / pitch);
        for (int oh0 = first; oh0 < last; oh0 += room) {{
            const int rows = min(room, last - oh0), plane = (rows + back_h) * pitch;
            // The last tile reads behind the last row: what is there by chance may be slow to multiply.
            for (int k = 0; k < Cg * sh * sw * plane + {_TILE}; k += 16) *(loose16*)(staged + k) = (item16)0;
            for (int c = 0, k = 0; c < Cg; ++c) {{
                __global const {WORDS[storage]}* X0 = X + ((long)image * Cg + c) * H * W;
                for (int ph = 0; ph < sh; ++ph) for (int pw = 0; pw < sw; ++pw, k += plane) {{
                    const int w0 = next * sw + pw - left, h0 = oh0 * sh + ph - top;
                    const int lo = w0 < 0 ? (sw - 1 - w0) / sw : 0, hi = min(pitch, (W - w0 + sw - 1) / sw);
                    for (int r = 0, h = h0; r < rows + back_h; ++r, h += sh) {{
                        if (h < 0 || h >= H) continue;
                        __global const {WORDS[storage]}* from = X0 + (long)h * W + w0;
                        item* to = staged + k + r * pitch;
{indent(columns_copied(value), 6)}\
                    }}
                }}
            }}
            for (int mg = 0; mg < Mg; ++mg) {{
                const int m = g * Mg + mg;
                for (int q = 0; q < (rows - 1) * pitch + columns; q += {_TILE}) {{
                    __global const item* w = Wt + (long)m * Cg * KH * KW;
{indent(sums, 5)}\
                    for (int c = 0; c < Cg; ++c) {{
                        const item* images = staged + c * sh * sw * plane + q;
                        for (int kh = 0, ph = 0, oh = 0; kh < KH; ++kh) {{
                            const item* in_row = images + ph * sw * plane + oh * pitch;
                            for (int kw = 0, pw = 0, ow = 0; kw < KW; ++kw) {{
                                const item weight = *w++;
                                const item* s = in_row + pw * plane + ow;
{indent(taps, 8)}\
                                pw += rw; ow += qw;
                                if (pw >= sw) {{ pw -= sw; ++ow; }}
                            }}
                            ph += rh; oh += qh;
                            if (ph >= sh) {{ ph -= sh; ++oh; }}
                        }}
                    }}
{indent(stores, 5)}\
                }}
{indent(epilogue.row_lines, 4)}\
                for (int r = 0; r < rows; ++r) {{
                    const int flat0 = ((n * G * Mg + m) * OH + oh0 + r) * OW + next;
                    const item* sums = found + r * pitch;
                    for (int l = 0; l < columns; ++l) {{
                        const int flat = flat0 + l;
                        const item acc = sums[l];
{indent(epilogue.lines, 6)}\
                    }}
                }}
            }}
        }}
    }}
"""
    operands: Sequence[str] = (f"X:{storage}", "Wt", *(() if zero is None else (f"Z:{zero}",)))
    rounds = ("Cg", "KH", "KW", "Mg", "OW", "span")
    return build(body, epilogue, operands, _NUMBERS, (1, 1, 1), rounds=rounds, head=LOOSE, item=epilogue.item)
