"""8-bit depthwise convolution and max pooling of NCHW tensors, with the channels of one pixel in a vector.

Depthwise convolutions take it over small planes, whose rows do not fill a vector, and pools over any.
Blocks of 16 channels are transposed to channels last with their padding, and the results back for the
epilogue.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from engine.backends.cpu.codegen.argument_block import ArgumentBlock
from engine.backends.cpu.codegen.epilogue import Epilogue, print_epilogue
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.backends.cpu.codegen.printer import indent, kernel_text, read_text
from engine.backends.cpu.codegen.schedule import (
    Blocks,
    TaskGrid,
    TaskSchedule,
    TiledAxis,
    emit,
    halve,
    partition_axes,
)
from engine.backends.cpu.codegen.tiles import MAX_TAPS, host_tile
from engine.backends.cpu.kernels.convolution.nchw_staging import tap_offsets_text
from engine.backends.cpu.kernels.convolution.window_arguments import WINDOW_ARGUMENTS, window_values
from engine.backends.cpu.kernels.matmul.packed_elements import (
    WordFormat,
    elements_of,
    known_zeros,
    words_of_bytes,
    zeros_of,
)
from engine.backends.cpu.kernels.transpose import band_text
from engine.backends.cpu.library import library_text
from engine.backends.windows import Windows2D, windows_first
from engine.base.dtypes import integer_range
from engine.compiler.plan import Compute, Tuner, storable
from engine.kernels.size import deferrable, deferred

_CHANNELS = 16
"""Channels in a vector; a square block of bytes is transposed in registers."""

_PIXELS = 4
"""Pixels that are computed together; those of a sum share the weights of a tap."""

_MOST_PIXELS, _MOST_OUTPUTS = 1200, 800
"""Pixels of a task's rows with their padding and of its results, which fit the nearest caches."""

_MOST_STRIDE = 4

_BYTES = (np.dtype(np.int8), np.dtype(np.uint8))

_NS_PER_TAP = 0.5
_NS_PER_LARGEST = 0.1
_NS_PER_PIXEL = 2.0

_GRID = TaskGrid(row="out_rows")
_ARGUMENTS = ArgumentBlock(_GRID.arguments, WINDOW_ARGUMENTS, "channels blocks length pitch")


class RowPartition(NamedTuple):
    """Tasks by rows of results, and the values of `_ARGUMENTS`."""

    rows: Blocks
    sizes: tuple[float, ...]


@deferrable
def cut_rows(
    win: Windows2D, batch: int, channels: int, wanted: int, whole: bool = False
) -> RowPartition | None:
    """Rows that fit a task's memory, as many tasks as wanted; None if a row, or a whole plane, does not."""
    (kh, _), (sh, _), (dh, _), (oh, ow) = win.kernel, win.strides, win.dilations, win.out
    length, blocks = win.reach[1], -(-channels // _CHANNELS)

    def are_too_large(row: TiledAxis) -> bool:
        rows = (row.block - 1) * sh + (kh - 1) * dh + 1
        return rows * max(length, win.width) > _MOST_PIXELS or row.block * ow > _MOST_OUTPUTS

    (row,) = halve([TiledAxis(oh, max(1, oh))], are_too_large)
    if are_too_large(row) or (whole and row.count > 1) or win.taps > MAX_TAPS:
        return None
    (rows,) = partition_axes([row], batch * blocks, wanted)
    sizes = _ARGUMENTS.values(
        **_GRID.values(rows), **window_values(win), channels=channels, blocks=blocks, length=length,
        pitch=rows.size * ow + _CHANNELS,
    )  # fmt: skip
    return RowPartition(rows, sizes)


def _emit(
    compute: Compute, tuner: Tuner, win: Windows2D, partition: RowPartition, kernel: NativeKernel,
    names: Sequence[str], epilogue: Epilogue, tap_ns: float,
) -> None:  # fmt: skip
    """Emit the step. names: the inputs. tap_ns: what a tap of a pixel takes, for all channels of a task."""
    count, outputs = compute.space[0] * -(-compute.space[1] // _CHANNELS), win.out[0] * win.out[1]
    each = outputs * (win.taps * tap_ns + _CHANNELS * epilogue.nanoseconds / 2)
    each += win.height * win.width * _NS_PER_PIXEL
    schedule = TaskSchedule.over((partition.rows,), count * each, count)
    emit(tuner, kernel, schedule, partition.sizes, names, compute.output.name, epilogue)


def tune_byte_depthwise(compute: Compute, tuner: Tuner, win: Windows2D) -> bool:
    """Emit the step of an 8-bit depthwise convolution; False for any other."""
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
    # Rows of larger planes fill vectors.
    partition = deferred(cut_rows, win, x.shape[0], channels, 1, True)
    if partition is None:
        return False
    words = words_of_bytes()
    name = f"{w.name}|channels of {words.form}|{'' if w_zero is None else w_zero.name}"
    pack = partial(pack_channels, elements_of(w), words, known_zeros(w_zero, 0))
    weights = tuner.constant(name, pack)
    epilogue = print_epilogue(compute, _ARGUMENTS.end, core="int32")
    zero = [] if x_zero is None else [x_zero]
    kernel = NativeKernel(
        "byte_depthwise", depthwise_text(words, x.dtype.name, zero[0].dtype.name if zero else "", epilogue)
    )
    names = (x.name, weights, *(z.name for z in zero))
    _emit(compute, tuner, win, partition, kernel, names, epilogue, _NS_PER_TAP)
    return True


def tune_byte_pool(compute: Compute, tuner: Tuner, threads: int) -> bool:
    """Rule for hints of kind "pool" with channels first: the largest bytes over one or two axes."""
    (x,), win = compute.operands, windows_first(compute)
    if win is None or x.dtype not in _BYTES or compute.attributes["kind"] != "max":
        return False
    # Windows with gaps may lie in the padding as a whole, where the formula's result is none of bytes.
    if max(win.strides) > _MOST_STRIDE or (win.dilations != (1, 1) and win.pads != (0, 0)):
        return False
    partition = deferred(cut_rows, win, *x.shape[:2], 2 * threads)
    if partition is None:
        return False
    epilogue = print_epilogue(compute, _ARGUMENTS.end, core=x.dtype.name)
    kernel = NativeKernel("byte_pool", pool_text(x.dtype.name, epilogue))
    _emit(compute, tuner, win, partition, kernel, (x.name,), epilogue, _NS_PER_LARGEST)
    return True


@storable
def pack_channels(elements: np.ndarray, words: WordFormat, zeros: np.ndarray) -> np.ndarray:
    """(C, 1, kh, kw) weights: for each block of channels their sums over taps, then the taps as words.

    The last block is of the last channels, some of which are in another one, too.
    """
    channels = len(elements)
    taps = elements.reshape(channels, -1).astype(np.int32) - zeros.reshape(-1, 1)
    padded = np.zeros((channels, words.count(taps.shape[1]) * words.elements), f"i{words.element_size}")
    padded[:, : taps.shape[1]] = taps
    whole = np.concatenate([taps.sum(1, keepdims=True, dtype=np.int32), padded.view(np.int32)], 1)
    rows = np.zeros((max(channels, _CHANNELS), whole.shape[1]), np.int32)
    rows[:channels] = whole
    starts = np.minimum(np.arange(0, channels, _CHANNELS), len(rows) - _CHANNELS)
    blocks = rows[starts.reshape(-1, 1) + np.arange(_CHANNELS)]
    return np.ascontiguousarray(blocks.transpose(0, 2, 1)).reshape(-1)


def depthwise_text(words: WordFormat, storage: str, zero: str, epilogue: Epilogue) -> str:
    """The kernel's module, for an input of the type `storage`. zero: its zero point's type, if it has one."""
    lanes = host_tile().lanes
    value = read_text(zero, "zeros", "0") if zero else "_types.int32(0)"
    lead = [
        *_ARGUMENTS.prologue("x", "w", *(["zeros"] if zero else []), epilogue=epilogue),
        f"zero = to_int32({value})",
        f"firsts = stack_bytes({_CHANNELS * 4})",
    ]
    start = [
        f"words = op_div(taps + {words.elements - 1}, {words.elements})",
        # A last word that is not full has weights of 0.
        f"for k in range(taps, words * {words.elements}):",
        "    store_i64(offsets, k, load_i64(offsets, taps - 1))",
        f"weights = w + (block - i0 * blocks) * (words + 1) * {4 * _CHANNELS}",
        f"for lane in range({_CHANNELS}):",
        "    store_i32(firsts, lane, op_mul(op_neg(zero), load_i32(weights, lane)))",
        f"weights += {4 * _CHANNELS}",
    ]
    back = [
        f"for lane in range(0, {_CHANNELS}, {lanes}):",
        f"    turn_sums(sums + 4 * lane, {4 * _CHANNELS}, results + lane * pitch * 4, pitch * 4,"
        f" outputs, {lanes})",
    ]
    form = f"{words.multiplied_as(False)!r}, {words.elements}"
    made = f"channel_tile = make_channel_tile({form}, {_PIXELS}, {_CHANNELS}, {lanes}, {storage == 'int8'})\n"
    call = "channel_tile(place, step, offsets, weights, words, firsts, target)"
    return _text([band_text(lanes, 4, "turn_sums"), made], lead, start, call, back, 4, epilogue)


def pool_text(storage: str, epilogue: Epilogue) -> str:
    """The kernel's module, for bytes of the type `storage`."""
    is_signed = storage == "int8"
    lead = [
        *_ARGUMENTS.prologue("x", epilogue=epilogue),
        f"zero = _types.int32({int(integer_range(storage)[0])})",
    ]
    # The planes of few results are turned as if they had more.
    back = [f"turn_bytes(sums, {_CHANNELS}, results, pitch, max(outputs, {_CHANNELS}), {_CHANNELS})"]
    made = f"channel_pool = make_channel_pool({_PIXELS}, {_CHANNELS}, {is_signed})\n"
    call = "channel_pool(place, step, offsets, taps, target)"
    return _text([made], lead, [], call, back, 1, epilogue)


def _text(
    tiles: Sequence[str], lead: Sequence[str], start: Sequence[str], call: str, back: Sequence[str],
    size: int, epilogue: Epilogue,
) -> str:  # fmt: skip
    """The module of a kernel whose results have `size` bytes before the epilogue.

    start: statements before the windows of a task's rows. call: computes `_PIXELS` windows, the first of
    which begins at `place`, in all channels, to `target`. back: turns `outputs` pixels of `sums` over.
    """
    slack = _PIXELS * _MOST_STRIDE * _MOST_STRIDE
    lead = [
        *lead,
        *epilogue.kernel,
        "taps, last_size, plane_size = kernel_rows * kernel_columns, out_columns, out_rows * out_columns",
        f"turned = stack_bytes({(_MOST_PIXELS + slack) * _CHANNELS})",
        f"padded = stack_bytes({(_MOST_PIXELS + slack) * _CHANNELS})",
        f"sums = stack_bytes({(_MOST_OUTPUTS + _CHANNELS) * _CHANNELS * size})",
        f"results = stack_bytes({(_MOST_OUTPUTS + _CHANNELS) * _CHANNELS * size})",
        f"offsets = stack_bytes({MAX_TAPS * 8})",
        f"tap_offsets(offsets, 0, kernel_rows, kernel_columns, row_dilation * length * {_CHANNELS}, 0,"
        f" column_dilation * {_CHANNELS}, 1)",
    ]  # fmt: skip
    task = [
        *_GRID.locate("block"),
        "i0 = op_div(block, blocks)",
        f"new = (block - i0 * blocks) * {_CHANNELS}",
        # If the last channels are fewer than a square, some of the others are transposed again with them.
        f"first = max(min(new, channels - {_CHANNELS}), 0)",
        f"here = min({_CHANNELS}, channels - first)",
        # The rows that these windows read, and those of them that there are.
        "y = row0 * row_stride - top",
        "rows = (row1 - row0 - 1) * row_stride + (kernel_rows - 1) * row_dilation + 1",
        "y0 = min(max(y, 0), height)",
        "y1 = max(min(y + rows, height), y0)",
        "plane = x + ((i0 * channels + first) * height + y0) * width",
        "at, pixels = _types.int64(0), (y1 - y0) * width",
        "while at < pixels:",
        f"    at = max(min(at, pixels - {_CHANNELS}), 0)",
        f"    turn_bytes(plane + at, height * width, turned + at * {_CHANNELS}, {_CHANNELS}, here,"
        f" min({_CHANNELS}, pixels - at))",
        f"    at += {_CHANNELS}",
        "source = turned",
        "if left != 0 or length != width or y1 - y0 != rows:",
        "    source = padded",
        "    pad_pixels(padded, turned, y, y0, y1, width, left, rows, length, zero)",
        *start,
        f"step, line_step = column_stride * {_CHANNELS}, row_stride * length * {_CHANNELS}",
        "lines, count, outputs = row1 - row0, out_columns, (row1 - row0) * out_columns",
        # A column is a row, too.
        f"if count == 1 and length <= {_MOST_STRIDE}:",
        "    lines, count, step = 1, lines, line_step",
        "for line in range(lines):",
        "    done = 0",
        # What goes beyond the end of a line, the next one overwrites.
        "    while done < count:",
        "        place = source + line * line_step + done * step",
        f"        target = sums + (line * count + done) * {size * _CHANNELS}",
        f"        {call}",
        f"        done += {_PIXELS}",
        *back,
        "first_column, columns = row0 * out_columns, outputs",
        "for i1 in range(new, first + here):",
        f"    tile = results + (i1 - first) * pitch * {size}",
        "    start = (i0 * channels + i1) * plane_size + first_column",
        *indent(epilogue.store),
    ]  # fmt: skip
    helpers = [band_text(_CHANNELS, 1, "turn_bytes"), *tiles, tap_offsets_text(1), _PAD]
    return kernel_text(
        library_text("vectors", "matmul_tiles", "packed_elements") + "".join(helpers), lead, task
    )


_PAD = f"""

@helper
def fill_pixels(target, count, zero):
    for k in range(count * {_CHANNELS}):
        store_i8(target, k, zero)


@helper
def pad_pixels(target, source, y, y0, y1, width, left, rows, length, zero):
    low = min(max(left, 0), length)
    high = max(min(width + left, length), low)
    for row in range(rows):
        place = target + row * length * {_CHANNELS}
        if y + row < y0 or y + row >= y1:
            fill_pixels(place, length, zero)
        else:
            fill_pixels(place, low, zero)
            origin = source + ((y + row - y0) * width + low - left) * {_CHANNELS}
            copy_bytes(place + low * {_CHANNELS}, origin, (high - low) * {_CHANNELS})
            fill_pixels(place + high * {_CHANNELS}, length - high, zero)
"""
