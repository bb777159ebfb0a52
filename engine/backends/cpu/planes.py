"""Stages the inputs of windowed kernels so that every tap of a window reads contiguously.

A plane is copied with its padding around it. With a stride of s along a row, each row becomes s rows, of
which the first holds elements 0, s, 2s, ... and so on: neighbouring outputs then read neighbouring elements
whatever the stride.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.backends.cpu.argument_block import ArgumentBlock
from engine.backends.cpu.library import library_text
from engine.backends.cpu.native_kernel import NativeKernel
from engine.backends.cpu.tiles import host_tile
from engine.backends.cpu.windows import MAX_STRIDE, Windows
from engine.compiler.plan import Tuner

_NS_PER_ELEMENT = 0.5

_ARGUMENTS = ArgumentBlock(
    "height width rows row_length phases stride row_stride top left padding", reals="padding"
)
_BUFFERS = ArgumentBlock("out x", first=_ARGUMENTS.end)

_TEXT = """

@helper
def fill_run(target, count, value):
    for k in range(count):
        write_float32(target, k, value)


@helper
def copy_strided(target, source, count, stride):
    if stride == 1:
        copy_bytes(target, source, 4 * count)
    else:
        for k in range(count):
            write_float32(target, k, read_float32(source, stride * k))


@helper
def copy_pairs(evens, odds, source, count):
    # The last vector may cover some pairs again.
    if count < {lanes}:
        copy_strided(evens, source, count, 2)
        copy_strided(odds, source + 4, count, 2)
    else:
        for k in range(0, count - {lanes} + 1, {lanes}):
            split_pairs(evens + 4 * k, odds + 4 * k, source + 8 * k)
        if count % {lanes} != 0:
            k = count - {lanes}
            split_pairs(evens + 4 * k, odds + 4 * k, source + 8 * k)


def kernel(args, begin, end):
    height, width = {height}, {width}
    rows, row_length, phases = {rows}, {row_length}, {phases}
    stride, row_stride = {stride}, {row_stride}
    top, left = {top}, {left}
    padding = _types.float32({padding})
    out, x = {out}, {x}
    # Of each phase the elements low..high-1 lie inside the input.
    limits = stack_bytes({max_stride_bytes})
    for phase in range(phases):
        shift = left - phase
        low = min(max(op_div(shift + stride - 1, stride), 0), row_length)
        high = max(min(op_div(width - 1 + shift, stride) + 1, row_length), low)
        if width + shift <= 0:
            high = low
        store_i64(limits, 2 * phase, low)
        store_i64(limits, 2 * phase + 1, high)
    # Where a row becomes two, both take the pairs that lie inside at once, and their ends apart.
    paired = stride == 2 and phases == 2
    pairs, pairs_end = row_length, row_length
    if paired:
        pairs = min((left + 1) >> 1, row_length)
        pairs_end = max(min((width + left) >> 1, row_length), pairs)
    for plane in range(begin, end):
        for row in range(rows):
            target = out + (plane * rows + row) * phases * row_length * 4
            y = row * row_stride - top
            if y < 0 or y >= height:
                fill_run(target, phases * row_length, padding)
            else:
                source = x + (plane * height + y) * width * 4
                if paired:
                    evens = target + pairs * 4
                    begin_pairs = source + (2 * pairs - left) * 4
                    copy_pairs(evens, evens + row_length * 4, begin_pairs, pairs_end - pairs)
                for phase in range(phases):
                    low, high = load_i64(limits, 2 * phase), load_i64(limits, 2 * phase + 1)
                    first = source + (phase - left) * 4
                    middle = min(max(pairs, low), high)
                    fill_run(target, low, padding)
                    copy_strided(target + low * 4, first + low * stride * 4, middle - low, stride)
                    low = max(min(pairs_end, high), middle)
                    copy_strided(target + low * 4, first + low * stride * 4, high - low, stride)
                    fill_run(target + high * 4, row_length - high, padding)
                    target += row_length * 4
"""

TAP_OFFSETS = """

@helper
def tap_offsets(offsets, kernel_rows, kernel_columns, tap_row_step, row_length, dilation, stride):
    for a in range(kernel_rows):
        for b in range(kernel_columns):
            reach = b * dilation
            quotient = op_div(reach, stride)
            offset = a * tap_row_step + (reach - quotient * stride) * row_length + quotient
            store_i64(offsets, a * kernel_columns + b, offset * 4)
"""
"""`tap_offsets(offsets, ...)`: where each tap reads, in bytes from where an output's window starts."""


@dataclass(frozen=True)
class Planes:
    """Offsets of a tap's elements from the start of a plane, in elements.

    Output (i, j) reads tap (a, b) at i * row_step + a * tap_row_step + (b * dilation % stride) * row_length
    + b * dilation // stride + j.
    """

    name: str
    plane_size: int
    row_step: int
    tap_row_step: int
    row_length: int
    dilation: int
    stride: int


@dataclass(frozen=True)
class Layout:
    """Layout of staged planes: `rows` of each, every `row_stride`th, each as `phases` runs."""

    rows: int
    length: int
    phases: int
    row_stride: int
    step: int

    def planes(self, name: str, win: Windows) -> Planes:
        """The offsets of the taps' elements in the copy."""
        row = self.phases * self.length
        (dh, dw), sw = win.dilations, win.strides[1]
        return Planes(name, self.rows * row, self.step * row, dh * row, self.length, dw, sw)


def in_place(x: str, win: Windows) -> Planes:
    """The input as it is, for windows that can read it so."""
    row_step = win.strides[0] * win.width
    size = win.height * win.width
    return Planes(x, size, row_step, win.dilations[0] * win.width, win.width, win.dilations[1], 1)


def layout_of(win: Windows) -> Layout:
    """What a copy for these windows holds."""
    (kh, kw), (sh, sw), (dh, dw), (oh, ow) = win.kernel, win.strides, win.dilations, win.out
    # A window of one row needs only the rows that it visits; the same along rows.
    row_stride, step = (sh, 1) if kh == 1 else (1, sh)
    phases = min(sw, kw) if dw == 1 else sw
    rows = (oh - 1) * step + (kh - 1) * dh + 1
    return Layout(rows, ow + (kw - 1) * dw // sw, phases, row_stride, step)


def stage_planes(tuner: Tuner, x: str, count: int, win: Windows, padding: float) -> Planes:
    """The input as `Planes`: itself if possible, otherwise a copy made by a separate step."""
    if win.reads_in_place:
        return in_place(x, win)
    copied = layout_of(win)
    total = count * copied.rows * copied.phases * copied.length
    copy = tuner.temporary(total, np.dtype(np.float32))
    arguments = _ARGUMENTS.values(
        height=win.height, width=win.width, rows=copied.rows, row_length=copied.length, phases=copied.phases,
        stride=win.strides[1], row_stride=copied.row_stride, top=win.pads[0], left=win.pads[1],
        padding=float(padding),
    )  # fmt: skip
    values = (total * _NS_PER_ELEMENT / count, *arguments)
    tuner.emit(NativeKernel("planes", _planes_text()), (count,), values, (x,), copy)
    return copied.planes(copy, win)


def _planes_text() -> str:
    lanes = host_tile().lanes
    split = f"split_pairs = make_split_pairs({lanes})\n"
    text = _ARGUMENTS.reading(_BUFFERS.reading(_TEXT))
    text = text.replace("{lanes}", str(lanes)).replace("{max_stride_bytes}", str(16 * MAX_STRIDE))
    return library_text("vectors") + split + text
