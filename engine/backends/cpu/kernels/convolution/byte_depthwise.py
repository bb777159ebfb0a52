"""Depthwise convolutions of bytes over small planes, channels first: a vector holds channels of one pixel.

Planes of a few pixels leave vectors along their rows empty. So the planes of 16 channels are transposed and
laid out with their padding, and the sums are transposed back for the epilogue.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from engine.backends.cpu.codegen.argument_block import ArgumentBlock
from engine.backends.cpu.codegen.epilogue import Epilogue, print_epilogue
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.backends.cpu.codegen.printer import indent, kernel_text, read_text
from engine.backends.cpu.codegen.schedule import Schedule, emit
from engine.backends.cpu.codegen.tiles import MAX_TAPS, host_tile
from engine.backends.cpu.kernels.convolution.nchw_staging import tap_offsets_text
from engine.backends.cpu.kernels.convolution.window_arguments import WINDOW_ARGUMENTS, window_values
from engine.backends.cpu.kernels.matmul.words import elements_of, known_zeros, zeros_of
from engine.backends.cpu.kernels.transpose import band_text
from engine.backends.cpu.library import library_text
from engine.backends.windows import Windows
from engine.compiler.plan import Compute, Tuner, storable
from engine.kernels.size import deferrable, deferred

_CHANNELS = 16
"""Channels that are computed side by side: a square of bytes is turned over in registers."""

_PIXELS = 4
"""Pixels that share the weights of a tap."""

_MOST_PIXELS, _MOST_OUTPUTS = 1200, 800
"""Pixels of a padded plane and of the result; what is larger leaves no room in the nearest caches."""

_MOST_STRIDE = 4

_BYTES = (np.dtype(np.int8), np.dtype(np.uint8))

_NS_PER_TAP = 0.5
_NS_PER_PIXEL = 2.0

_ARGUMENTS = ArgumentBlock(WINDOW_ARGUMENTS, "channels blocks rows length pitch")


@deferrable
def _sizes(win: Windows, channels: int) -> tuple[float, ...] | None:
    """The arguments; None for planes that are too large."""
    (kh, kw), (sh, sw), (dh, dw), (oh, ow) = win.kernel, win.strides, win.dilations, win.out
    rows, length = (oh - 1) * sh + (kh - 1) * dh + 1, (ow - 1) * sw + (kw - 1) * dw + 1
    pixels = max(rows * length, win.height * win.width)
    if pixels > _MOST_PIXELS or oh * ow > _MOST_OUTPUTS or win.taps > MAX_TAPS:
        return None
    return _ARGUMENTS.values(
        **window_values(win), channels=channels, blocks=-(-channels // _CHANNELS), rows=rows, length=length,
        pitch=oh * ow + host_tile().lanes,
    )  # fmt: skip


def tune_byte_depthwise(compute: Compute, tuner: Tuner, win: Windows) -> bool:
    """Whether a convolution is one of bytes with a channel for each group, and its step is emitted."""
    (x, w), (x_zero, w_zero) = compute.operands[:2], zeros_of(compute)
    channels, inputs = w.shape[:2]
    if x.dtype not in _BYTES or w.dtype not in _BYTES or compute.body.dtype != "int32":
        return False
    if inputs != 1 or channels != int(compute.attributes["group"]) or max(win.strides) > _MOST_STRIDE:
        return False
    if w.known is None or (w_zero is not None and (w_zero.known is None or w_zero.size not in (1, channels))):
        return False
    if x_zero is not None and x_zero.size != 1:
        return False
    sizes = deferred(_sizes, win, channels)
    if sizes is None:
        return False
    name = f"{w.name}|channels of bytes|{'' if w_zero is None else w_zero.name}"
    weights = tuner.constant(name, partial(pack_channels, elements_of(w), known_zeros(w_zero, 0)))
    epilogue = print_epilogue(compute, _ARGUMENTS.end, core="int32")
    batch, outputs = x.shape[0], win.out[0] * win.out[1]
    each = outputs * (win.taps * _NS_PER_TAP + _CHANNELS * epilogue.nanoseconds / 2)
    each += win.height * win.width * _NS_PER_PIXEL
    zero = [] if x_zero is None else [x_zero]
    text = depthwise_text(x.dtype.name, zero[0].dtype.name if zero else "", epilogue)
    schedule = Schedule(batch * -(-channels // _CHANNELS), each)
    names = (x.name, weights, *(z.name for z in zero))
    return emit(
        tuner, NativeKernel("byte_depthwise", text), schedule, sizes, names, compute.output.name, epilogue
    )


@storable
def pack_channels(elements: np.ndarray, zeros: np.ndarray) -> np.ndarray:
    """(C, 1, kh, kw) weights as int32s: for each block of channels their sums over taps, then the taps."""
    channels = len(elements)
    taps = elements.reshape(channels, -1).astype(np.int32) - zeros.reshape(-1, 1)
    whole = np.concatenate([taps.sum(1, keepdims=True, dtype=np.int32), taps], 1)
    padded = np.zeros((-(-channels // _CHANNELS) * _CHANNELS, whole.shape[1]), np.int32)
    padded[:channels] = whole
    return np.ascontiguousarray(padded.reshape(-1, _CHANNELS, whole.shape[1]).transpose(0, 2, 1)).reshape(-1)


def depthwise_text(storage: str, zero: str, epilogue: Epilogue) -> str:
    """The kernel's module, for an input of the type `storage`. zero: its zero point's type, if it has one."""
    lanes = host_tile().lanes
    slack = _PIXELS * _MOST_STRIDE * _CHANNELS
    value = read_text(zero, "zeros", "0") if zero else "_types.int32(0)"
    lead = [
        *_ARGUMENTS.prologue("x", "w", *(["zeros"] if zero else []), epilogue=epilogue),
        *epilogue.kernel,
        f"zero = to_int32({value})",
        "taps, outputs, last_size = kernel_rows * kernel_columns, out_rows * out_columns, out_columns",
        "size = height * width",
        f"turned = stack_bytes({_MOST_PIXELS * _CHANNELS + slack})",
        f"padded = stack_bytes({_MOST_PIXELS * _CHANNELS + slack})",
        f"sums = stack_bytes({(_MOST_OUTPUTS + _PIXELS) * _CHANNELS * 4})",
        f"results = stack_bytes({(_MOST_OUTPUTS + lanes) * _CHANNELS * 4})",
        f"firsts, offsets = stack_bytes({_CHANNELS * 4}), stack_bytes({MAX_TAPS * 8})",
        f"tap_offsets(offsets, 0, kernel_rows, kernel_columns, row_dilation * length * {_CHANNELS}, 0,"
        f" column_dilation * {_CHANNELS}, 1)",
        # A column is a row, too.
        f"lines, count, line_step, step = out_rows, out_columns, row_stride * length * {_CHANNELS},"
        f" column_stride * {_CHANNELS}",
        "if count == 1:",
        "    lines, count, step = 1, out_rows, line_step",
        "is_whole = top == 0 and left == 0 and rows == height and length == width",
    ]  # fmt: skip
    task = [
        "i0 = op_div(task, blocks)",
        f"first = (task - i0 * blocks) * {_CHANNELS}",
        f"here = min({_CHANNELS}, channels - first)",
        "plane = x + (i0 * channels + first) * size",
        "at = _types.int64(0)",
        "while at < size:",
        f"    at = max(min(at, size - {_CHANNELS}), 0)",
        f"    turn_bytes(plane + at, size, turned + at * {_CHANNELS}, {_CHANNELS}, here,"
        f" min({_CHANNELS}, size - at))",
        f"    at += {_CHANNELS}",
        "source = turned",
        "if not is_whole:",
        "    source = padded",
        "    pad_pixels(padded, turned, height, width, top, left, rows, length, zero)",
        "weights = w + first * (taps + 1) * 4",
        f"for lane in range({_CHANNELS}):",
        "    store_i32(firsts, lane, op_mul(op_neg(zero), load_i32(weights, lane)))",
        "for line in range(lines):",
        "    done = 0",
        # What goes beyond the end of a line, the next one overwrites.
        "    while done < count:",
        f"        channel_tile(source + line * line_step + done * step, step, offsets, weights +"
        f" {4 * _CHANNELS}, taps, firsts, sums + (line * count + done) * {4 * _CHANNELS})",
        f"        done += {_PIXELS}",
        f"for lane in range(0, {_CHANNELS}, {lanes}):",
        f"    turn_sums(sums + 4 * lane, {4 * _CHANNELS}, results + lane * pitch * 4, pitch * 4,"
        f" outputs, {lanes})",
        "first_column, columns = 0, outputs",
        "for channel in range(here):",
        "    i1 = first + channel",
        "    tile = results + channel * pitch * 4",
        "    start = (i0 * channels + i1) * outputs",
        *indent(epilogue.store),
    ]  # fmt: skip
    made = f"{_PIXELS}, {_CHANNELS}, {lanes}, {storage == 'int8'}"
    helpers = [
        band_text(16, 1, "turn_bytes"),
        band_text(lanes, 4, "turn_sums"),
        f"\nchannel_tile = make_channel_tile({made})\n",
        tap_offsets_text(1),
        _PAD,
    ]
    return kernel_text(library_text("vectors") + "".join(helpers), lead, task)


_PAD = f"""

@helper
def fill_pixels(target, count, zero):
    for k in range(count * {_CHANNELS}):
        store_i8(target, k, zero)


@helper
def pad_pixels(target, source, height, width, top, left, rows, length, zero):
    low = min(max(left, 0), length)
    high = max(min(width + left, length), low)
    for row in range(rows):
        y, place = row - top, target + row * length * {_CHANNELS}
        if y < 0 or y >= height:
            fill_pixels(place, length, zero)
        else:
            fill_pixels(place, low, zero)
            origin = source + (y * width + low - left) * {_CHANNELS}
            copy_bytes(place + low * {_CHANNELS}, origin, (high - low) * {_CHANNELS})
            fill_pixels(place + high * {_CHANNELS}, length - high, zero)
"""
