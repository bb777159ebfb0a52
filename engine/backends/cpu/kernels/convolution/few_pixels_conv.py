"""Convolution of 8 and 16-bit integers with few output pixels: a vector holds output channels of one pixel.

Vectors along such planes would be half empty. An im2col step gathers the window of each pixel as a row of
words (taps, then channels). The epilogue runs along channels, too, unless it reads other tensors by place:
then sums are transposed for it.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from engine.backends.cpu.codegen.argument_block import ArgumentBlock
from engine.backends.cpu.codegen.cost import tasks_wanted
from engine.backends.cpu.codegen.epilogue import Epilogue, print_epilogue
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.backends.cpu.codegen.printer import indent, kernel_text
from engine.backends.cpu.codegen.schedule import (
    Blocks,
    TaskGrid,
    TaskSchedule,
    TiledAxis,
    emit,
    partition_axes,
)
from engine.backends.cpu.codegen.task_partition import up
from engine.backends.cpu.codegen.tiles import by_height
from engine.backends.cpu.kernels.convolution.nchw_staging import input_shift, zero_text
from engine.backends.cpu.kernels.convolution.window_arguments import WINDOW_ARGUMENTS, window_values
from engine.backends.cpu.kernels.matmul.packed_elements import (
    WordFormat,
    byte_shift,
    column_numbers,
    corrected_text,
    element_text,
    elements_of,
    known_zeros,
    pack_panels_of_words,
    store_text,
    word_type,
    zeros_of,
)
from engine.backends.cpu.library import library_text
from engine.backends.windows import Windows2D
from engine.compiler.plan import Compute, Tuner, storable
from engine.kernels.size import deferrable, deferred
from engine.kernels.value import Value

_MOST_PIXELS = 16

_NS_PER_ELEMENT = 0.3
_BYTES_PER_NS = 20.0

_GRID = TaskGrid(channel="m_size")
_ARGUMENTS = ArgumentBlock("m_size p_size depth", _GRID.arguments, "pitch k_size shift last_size")
_ROW_ARGUMENTS = ArgumentBlock(WINDOW_ARGUMENTS, "channels depth pitch shift")


class ChannelPartition(NamedTuple):
    """Tasks by output channels, and the estimated nanoseconds of all tasks together."""

    channels: Blocks
    nanoseconds: float


@deferrable
def cut_channels(
    words: WordFormat, batch: int, m: int, pixels: int, k: int, finish_ns: float, threads: int
) -> ChannelPartition | None:
    """Blocks of whole panels; None where vectors along pixels take less than to gather windows."""
    width = words.tile.width
    whole = up(m, width)
    saved = 2.0 * (m * up(pixels, width) - whole * pixels) / words.flops_per_ns
    if pixels > _MOST_PIXELS or saved <= pixels * _NS_PER_ELEMENT:
        return None
    nanoseconds = batch * (2.0 * pixels * whole * k / words.flops_per_ns + m * pixels * finish_ns)
    nanoseconds += whole * k * words.element_size / _BYTES_PER_NS
    (channels,) = partition_axes(
        [TiledAxis.of_tiles(m, whole, width)], batch, tasks_wanted(nanoseconds, threads)
    )
    return ChannelPartition(channels, nanoseconds)


def tune_few_pixels_conv(
    compute: Compute, tuner: Tuner, win: Windows2D, words: WordFormat, threads: int
) -> bool:
    """Emit the steps of a convolution of narrow integers with few output pixels; False for any other."""
    (x, w), (x_zero, w_zero) = compute.operands[:2], zeros_of(compute)
    m, channels = w.shape[:2]
    if words.elements == 1 or int(compute.attributes["group"]) != 1 or w.known is None:
        return False
    if w_zero is not None and (w_zero.known is None or w_zero.size not in (1, m)):
        return False
    in_bytes, k = words.form == "bytes", channels * win.taps
    zeros = known_zeros(w_zero, byte_shift(w.dtype, signed=True) if in_bytes else 0)
    has_sums = in_bytes and bool(zeros.any())
    # Vectors along channels are full; what reads other tensors by place needs rows of results.
    over_channels = compute.epilogue is None or compute.epilogue.free <= {1, "acc"}
    total = (_total_text if over_channels else corrected_text)(has_sums) if in_bytes else ""
    epilogue = print_epilogue(
        compute, _ARGUMENTS.end, core=compute.body.dtype, total=total, over_channels=over_channels
    )
    batch, pixels = x.shape[0], win.out[0] * win.out[1]
    partition = deferred(cut_channels, words, batch, m, pixels, k, epilogue.nanoseconds + 1.0, threads)
    if partition is None:
        return False
    pitch = (words.count(k) + has_sums) * words.size
    rows = _emit_windows(tuner, x, x_zero, win, words, channels, pitch, has_sums)
    name = f"{w.name}|taps, channels|{words.form}{words.tile.width}|{'' if w_zero is None else w_zero.name}"
    constants = [tuner.constant(name, partial(pack_taps_first, elements_of(w), words, zeros))]
    if in_bytes:
        numbers = partial(column_numbers, elements_of(w), (1, k, m), (0, 1, k), zeros)
        constants.append(tuner.constant(f"{name}|numbers", numbers))
    sizes = _ARGUMENTS.values(
        m_size=m, p_size=pixels, depth=words.count(k), **_GRID.values(partition.channels), pitch=pitch,
        k_size=k, shift=input_shift(words, x), last_size=win.out[1],
    )  # fmt: skip
    zero = [x_zero] if in_bytes and x_zero is not None else []
    zero_type, out_size = zero[0].dtype.name if zero else "", compute.output.dtype.itemsize
    text = few_pixels_text(words, epilogue, zero_type, has_sums, over_channels, out_size)
    kernel = NativeKernel("few_pixels_conv", text)
    schedule = TaskSchedule.over((partition.channels,), partition.nanoseconds, batch)
    names = (rows, *constants, *(z.name for z in zero))
    emit(tuner, kernel, schedule, sizes, names, compute.output.name, epilogue)
    return True


@storable
def pack_taps_first(elements: np.ndarray, words: WordFormat, zeros: np.ndarray) -> np.ndarray:
    """(M, C, *kernel) weights as panels of words over M, whose rows are taps and then channels."""
    m, channels = elements.shape[:2]
    moved = np.ascontiguousarray(elements.reshape(m, channels, -1).swapaxes(1, 2))
    k = moved.size // m
    return pack_panels_of_words(moved, (1, k, m), (0, 1, k), words, zeros)


def _emit_windows(
    tuner: Tuner, x: Value, zero: Value | None, win: Windows2D, words: WordFormat, channels: int, pitch: int,
    has_sums: bool,
) -> str:  # fmt: skip
    """Emit the step that gathers windows: a row of words for each pixel; returns the result's name.

    has_sums: the sum of a row's bytes follows it.
    """
    count = x.shape[0] * win.out[0] * win.out[1]
    laid = tuner.temporary(count * pitch // words.size, word_type(words))
    zeros = () if zero is None else (zero,)
    sizes = _ROW_ARGUMENTS.values(
        **window_values(win), channels=channels, depth=words.count(channels * win.taps), pitch=pitch,
        shift=input_shift(words, x),
    )  # fmt: skip
    text = windows_text(words, x.dtype.name, zeros[0].dtype.name if zeros else "", has_sums)
    schedule = TaskSchedule(count, channels * win.taps * _NS_PER_ELEMENT)
    names = (x.name, *(z.name for z in zeros))
    emit(tuner, NativeKernel("word_windows", text), schedule, sizes, names, laid)
    return laid


def windows_text(words: WordFormat, dtype: str, zero: str, has_sums: bool) -> str:
    """Source of the kernel that gathers windows. zero: the type of the input's zero point, if any."""
    store, size = store_text(words), np.dtype(dtype).itemsize
    lead = [
        *_ROW_ARGUMENTS.prologue("out", "x", *(["zeros"] if zero else [])),
        *zero_text(words, zero),
        "pixels, plane = out_rows * out_columns, height * width",
    ]
    task = [
        "image = op_div(task, pixels)",
        "row = op_div(task - image * pixels, out_columns)",
        "y0 = row * row_stride - top",
        "x0 = (task - image * pixels - row * out_columns) * column_stride - left",
        "row_words = out + task * pitch",
        "target = row_words",
        "for a in range(kernel_rows):",
        "    line = y0 + a * row_dilation",
        "    for b in range(kernel_columns):",
        "        place = x0 + b * column_dilation",
        "        if line < 0 or line >= height or place < 0 or place >= width:",
        "            for k in range(channels):",
        f"                {store}(target, k, filling)",
        "        else:",
        f"            source = x + (image * channels * plane + line * width + place) * {size}",
        "            for k in range(channels):",
        f"                {store}(target, k, {element_text(words, dtype, 'k * plane')})",
        f"        target += channels * {words.element_size}",
        f"for k in range(channels * kernel_rows * kernel_columns, depth * {words.elements}):",
        f"    {store}(row_words, k, 0)",
    ]
    if has_sums:
        task += [
            "total = _types.int64(0)",
            f"for k in range(depth * {words.elements}):",
            "    total += load_u8(row_words, k)",
            "store_i32(row_words, depth, total)",
        ]
    return kernel_text(library_text(), lead, task)


def _total_text(has_sums: bool) -> str:
    """The sum of shifted bytes for channel `first` + `column`, corrected for zero points and shifts."""
    total = "read_int32(tile, column) - x_zero * load_i32(numbers, first + column)"
    moved = " - load_i32(numbers, m_size + first + column) * pixel_total" if has_sums else ""
    return f"to_int32({total}{moved})"


def few_pixels_text(
    words: WordFormat, epilogue: Epilogue, x_zero: str, has_sums: bool, over_channels: bool, out_size: int
) -> str:
    """Source of the kernel.

    x_zero: the type of the input's zero point, for bytes. over_channels: whether the epilogue runs along
    channels. out_size: bytes of a result.
    """
    step, size, in_bytes = words.tile.width, words.size, words.form == "bytes"
    heights = [height for height in words.tile.heights if height <= _MOST_PIXELS]
    names = ["x", "w", *(["numbers"] if in_bytes else []), *(["zeros"] if x_zero else [])]
    lead = [
        *_ARGUMENTS.prologue(*names, epilogue=epilogue),
        *(zero_text(words, x_zero) if in_bytes else []),
        *(["x_zero = to_int32(zero + shift)"] if in_bytes else []),
        *(["all_zeros = to_int32(x_zero * k_size)"] if has_sums else []),
        f"sums = stack_bytes({_MOST_PIXELS * step * size})",
        f"turned = stack_bytes({_MOST_PIXELS * step * size})",
        f"column_sums = stack_bytes({_MOST_PIXELS * size})",
        f"made = stack_bytes({step * 8})",
        *epilogue.kernel,
    ]

    def product(height: int) -> list[str]:
        place = f"sums + m * {step * size}"
        return [f"tile_of_{height}(left, pitch, right, {step * size}, depth, {place}, right, 0, 0)"]

    panel = [
        f"right = w + op_div(first, _types.int64({step})) * depth * {step * size}",
        "m = 0",
        "while m < p_size:",
        "    left = lefts + m * pitch",
        "    remaining = p_size - m",
        *indent(by_height(heights, "remaining", product)),
        "    m += rows",
    ]
    if over_channels:
        copy = f"store_i{8 * out_size}(out, start + column * p_size, load_i{8 * out_size}(made, column))"

        def pixels(count: str) -> list[str]:
            row = [
                f"tile = sums + m * {step * size}",
                "start = (i0 * m_size + first) * p_size + m",
                *(["pixel_total = load_i32(column_sums, m) - all_zeros"] if has_sums else []),
                *epilogue.store_columns(count),
                f"for column in range({count}):",
                f"    {copy}",
            ]
            return ["for m in range(p_size):", *indent(row)]

        panel += [
            f"columns, first_column = min({step}, channel1 - first), first",
            f"if columns == {step}:",
            *indent(pixels(str(step))),
            "else:",
            *indent(pixels("columns")),
        ]
    else:
        panel += [
            f"for k in range({step}):",
            "    for m in range(p_size):",
            f"        store_i32(turned, k * {_MOST_PIXELS} + m, load_i32(sums, m * {step} + k))",
            "first_column, columns = 0, p_size",
            f"for i1 in range(first, min(first + {step}, channel1)):",
            f"    tile = turned + (i1 - first) * {_MOST_PIXELS * size}",
            "    start = (i0 * m_size + i1) * p_size",
            *(["    row_total = to_int32(x_zero * load_i32(numbers, i1))"] if in_bytes else []),
            *(["    row_zero = to_int32(load_i32(numbers, m_size + i1))"] if has_sums else []),
            *indent(epilogue.store),
        ]
    sums = ["for m in range(p_size):", "    store_i32(column_sums, m, load_i32(lefts + m * pitch, depth))"]
    task = [
        *_GRID.locate("i0"),
        "lefts = x + i0 * p_size * pitch",
        *(sums if has_sums else []),
        f"for first in range(channel0, channel1, {step}):",
        *indent(panel),
    ]
    return kernel_text(library_text("vectors", "matmul_tiles") + words.tiles_text(heights), lead, task)
