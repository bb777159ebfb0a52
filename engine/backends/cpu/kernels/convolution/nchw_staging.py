"""Stages the inputs of windowed kernels so that every tap of a window reads contiguously.

A plane is copied with its padding around it, as elements of words. With a stride of s along rows, it becomes
s planes, of which the first holds elements 0, s, 2s, ... of each row and so on: neighbouring outputs then
read neighbouring elements for any stride.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from engine.backends.cpu.codegen.argument_block import ArgumentBlock
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.backends.cpu.codegen.printer import kernel_text, read_text
from engine.backends.cpu.codegen.schedule import TaskSchedule, emit
from engine.backends.cpu.codegen.task_partition import up
from engine.backends.cpu.codegen.tiles import host_tile
from engine.backends.cpu.kernels.matmul.packed_elements import WordFormat, byte_shift, store_text, word_type
from engine.backends.cpu.library import library_text
from engine.backends.windows import Windows2D
from engine.compiler.plan import Tuner
from engine.kernels.value import Value

SLACK = 64
"""Elements behind the rows of a phase, for vectors that reach beyond their end."""

_NS_PER_ELEMENT = 0.2

_ARGUMENTS = ArgumentBlock(
    "height width rows length region row_stride stride phases top left plane_size shift"
)

_TAP_OFFSETS = """

@helper
def tap_offsets(offsets, origin, kernel_rows, kernel_columns, tap_row_step, phase_step, dilation, stride):
    for a in range(kernel_rows):
        for b in range(kernel_columns):
            reach = b * dilation
            quotient = op_div(reach, stride)
            offset = origin + a * tap_row_step + (reach - quotient * stride) * phase_step + quotient
            store_i64(offsets, a * kernel_columns + b, offset * {element_size})
"""

_STAGE_ROWS = """

@helper
def stage_rows(target, x, height, width, first, left, row_stride, stride, phases, rows, length, region,
               filling, zero):
    # Rows first, first + row_stride... of a plane from column -left on, `length` elements of each phase.
    count = length if stride == 1 else (length - 1) * stride + phases
    low = min(max(left, 0), count)
    high = max(min(width + left, count), low)
    if stride == 1:
        # Each row is laid with the padding of the next.
        fill_elements(target, low, filling)
        for row in range(rows):
            y, place = first + row * row_stride, target + row * length * {own}
            next_low = low if row + 1 < rows else 0
            if y < 0 or y >= height:
                fill_elements(place, length + next_low, filling)
            else:
                copy_elements(place + low * {own}, x + (y * width + low - left) * {size}, high - low, zero)
                fill_elements(place + high * {own}, length - high + next_low, filling)
    else:
        line = target + phases * region * {own}
        for row in range(rows):
            y, place = first + row * row_stride, target + row * length * {own}
            if y < 0 or y >= height:
                for phase in range(phases):
                    fill_elements(place + phase * region * {own}, length, filling)
            elif stride == 2:
                stage_pairs(place, x + y * width * {size}, width, left, phases, length, region, filling, zero)
            else:
                fill_elements(line, low, filling)
                copy_elements(line + low * {own}, x + (y * width + low - left) * {size}, high - low, zero)
                fill_elements(line + high * {own}, count - high, filling)
                for phase in range(phases):
                    for k in range(length):
                        {store}(place, phase * region + k, {load}(line, k * stride + phase))
"""

_RUNS = """

@helper
def fill_elements(target, count, value):
    # Vectors write beyond the end, where the next row or slack follows.
    k = 0
    while k < count:
        fill_run(target + {own} * k, value)
        k += {lanes}


@helper
def copy_elements(target, source, count, zero):
    k = 0
    while k < count:
        {copy}
        k += {lanes}


@helper
def stage_pairs(place, source, width, left, phases, length, region, filling, zero):
    # A row of every second element. If odd elements are not wanted, those written first are overwritten.
    # Pairs low..high-1 are inside; a row may begin with the second of a pair and end with the first of one.
    low = min(max((left + 1) >> 1, 0), length)
    high = max(min((width + left) >> 1, length), low)
    end, evens, odds = width + left, place, place + (phases - 1) * region * {own}
    fill_elements(odds, low, filling)
    if left > 0 and left & 1 == 1 and left < 2 * length:
        copy_elements(odds + (low - 1) * {own}, source, 1, zero)
    fill_elements(evens, low, filling)
    k = low
    while k < high:
        split_pairs(evens + {own} * k, odds + {own} * k, source + (2 * k - left) * {size}, {less})
        # The first two may overlap: stores across two cache lines take twice as long.
        k = op_div(k, {lanes}) * {lanes} + {lanes}
    fill_elements(odds + high * {own}, length - high, filling)
    if end > 0 and end & 1 == 1 and end < 2 * length:
        copy_elements(evens + high * {own}, source + (width - 1) * {size}, 1, zero)
        high += 1
    fill_elements(evens + high * {own}, length - high, filling)
"""

_CONVERT = """
convert_run = make_convert_run({lanes}, {size} * 8, {signed}, {own} * 8)
fill_run = make_fill_run({lanes}, {own} * 8)
split_pairs = make_convert_pairs({lanes}, {size} * 8, {signed}, {own} * 8)
"""

_COPY = """
copy_run = make_copy_run(1, {lanes})
fill_run = make_fill_run({lanes})
split_pairs = make_split_pairs({lanes})
"""
"""For elements of four bytes that are copied as they are."""


@dataclass(frozen=True)
class Staging:
    """Staged planes: every `row_stride`th row, each as `phases` runs of every `stride`th element.

    Of the rows, `step` lie between neighbouring windows, and `reach_rows` follow a window's first; of a run's
    elements, `advance` and `reach`. Runs begin at multiples of `grain` elements.
    """

    row_stride: int
    step: int
    reach_rows: int
    stride: int
    phases: int
    advance: int
    reach: int
    grain: int = 1

    def rows(self, windows: int) -> int:
        """Rows that neighbouring windows read."""
        return (windows - 1) * self.step + self.reach_rows + 1

    def length(self, windows: int) -> int:
        """Number of elements of a run, including the gap after it."""
        return up((windows - 1) * self.advance + self.reach + 1, self.grain)

    def region(self, rows: int, columns: int) -> int:
        """Elements of a phase for so many rows and columns of windows."""
        return self.rows(rows) * self.length(columns) + SLACK

    def size(self, rows: int, columns: int) -> int:
        """Number of elements of all phases, and of a row before it is split."""
        line = self.length(columns) * self.stride + SLACK if self.stride > 1 else 0
        return self.phases * self.region(rows, columns) + line


def staging_of(win: Windows2D) -> Staging:
    """How planes are staged so that each tap of windows in a row reads one run."""
    (kh, kw), (sh, sw), (dh, dw) = win.kernel, win.strides, win.dilations
    # A window of one row needs only the rows that it visits; the same along rows.
    row_stride, step = (sh, 1) if kh == 1 else (1, sh)
    phases = min(sw, kw) if dw == 1 else sw
    return Staging(row_stride, step, (kh - 1) * dh, sw, phases, 1, (kw - 1) * dw // sw)


@dataclass(frozen=True)
class Planes:
    """Offsets of a tap's elements from the start of a plane, in elements.

    Output (i, j) reads tap (a, b) at i * row_step + a * tap_row_step + (b * dilation % stride) * phase_step
    + b * dilation // stride + j.
    """

    name: str
    plane_size: int
    row_step: int
    tap_row_step: int
    phase_step: int
    dilation: int
    stride: int


def staged_planes(tuner: Tuner, x: Value, zero: Value | None, win: Windows2D, words: WordFormat) -> Planes:
    """The input with its padding as elements of words: itself if possible."""
    in_bytes = words.form == "bytes"
    is_same = x.dtype.itemsize == words.element_size and (
        x.dtype.name == "uint8" if in_bytes else words.elements == 1 or zero is None
    )
    if win.reads_in_place and is_same:
        return _unstaged_planes(x.name, win)
    if win.is_pointwise:
        # A row for each plane: short rows are not worth vectors.
        pixels = win.height * win.width
        win = replace(win, height=1, width=pixels, out=(1, pixels))
    return _stage_planes(tuner, x, zero, win, words)


def _unstaged_planes(x: str, win: Windows2D) -> Planes:
    """The input itself, if its windows can be read without staging."""
    row_step = win.strides[0] * win.width
    size = win.height * win.width
    return Planes(x, size, row_step, win.dilations[0] * win.width, 0, win.dilations[1], 1)


def _stage_planes(tuner: Tuner, x: Value, zero: Value | None, win: Windows2D, words: WordFormat) -> Planes:
    """A step that copies all planes with their padding, the zero point, as elements of words."""
    staging, count = staging_of(win), x.shape[0] * x.shape[1]
    if staging.stride > 1 and words.elements == 1:
        # Aligned runs, of which most taps read vectors within a cache line.
        staging = replace(staging, grain=host_tile().lanes)
    rows, length, region = staging.rows(win.out[0]), staging.length(win.out[1]), staging.region(*win.out)
    plane_size = staging.size(*win.out)
    kind = np.dtype(words.element) if words.elements > 1 else word_type(words)
    copy = tuner.temporary(count * plane_size, kind)
    arguments = _ARGUMENTS.values(
        height=win.height, width=win.width, rows=rows, length=length, region=region,
        row_stride=staging.row_stride, stride=staging.stride, phases=staging.phases, top=win.pads[0],
        left=win.pads[1], plane_size=plane_size, shift=input_shift(words, x),
    )  # fmt: skip
    schedule = TaskSchedule(count, plane_size * _NS_PER_ELEMENT)
    zeros = () if zero is None else (zero,)
    body = [
        *_ARGUMENTS.prologue("out", "x", *(["zeros"] if zeros else [])),
        *zero_text(words, zeros[0].dtype.name if zeros else ""),
        "for plane in range(begin, end):",
        f"    target = out + plane * plane_size * {words.element_size}",
        f"    source = x + plane * height * width * {x.dtype.itemsize}",
        "    stage_rows(target, source, height, width, -top, left, row_stride, stride, phases, rows, length,"
        " region, filling, zero)",
    ]
    kernel = NativeKernel(
        "planes", kernel_text(library_text("vectors") + staging_text(words, x.dtype.name), body)
    )
    emit(tuner, kernel, schedule, arguments, (x.name, *(z.name for z in zeros)), copy)
    (dh, dw), row = win.dilations, length
    return Planes(copy, plane_size, staging.step * row, dh * row, region, dw, staging.stride)


def input_shift(words: WordFormat, x: Value) -> int:
    """The offset added to an input's bytes."""
    return byte_shift(x.dtype, signed=False) if words.form == "bytes" else 0


def zero_text(words: WordFormat, zero: str, padding: str = "0.0") -> list[str]:
    """Statements that set `zero`, of the type `zero` at `zeros`, and `filling`, the padding."""
    filling = {"float32": padding, "int32": "0.0", "bytes": "zero + shift"}.get(words.form, "0")
    # Elements of four bytes are copied as float32s.
    filling = f"_types.float32({filling})" if words.form in ("float32", "int32") else filling
    value = read_text(zero, "zeros", "0") if zero else "_types.int32(0)"
    return [f"zero = {value}", f"filling = {filling}"]


def tap_offsets_text(element_size: int) -> str:
    """Source of `tap_offsets(offsets, origin, ...)`: byte offsets of the taps from a window's start."""
    return _TAP_OFFSETS.format(element_size=element_size)


def staging_text(words: WordFormat, dtype: str) -> str:
    """The function `stage_rows`, for an input of the type `dtype`."""
    size, own = np.dtype(dtype).itemsize, words.element_size
    is_copy = size == own == 4 and words.elements == 1
    less = {"pairs": "zero", "bytes": f"{-byte_shift(np.dtype(dtype), signed=False)}"}.get(words.form, "0")
    numbers = {
        "size": size, "own": own, "lanes": host_tile().lanes if is_copy else 16 if own < 4 else 8,
        "store": store_text(words), "load": store_text(words).replace("store", "load"),
        "signed": not dtype.startswith("u"), "less": less,
        "copy": f"copy_run(target + {own} * k, source + {size} * k)" if is_copy else
                f"convert_run(target + {own} * k, source + {size} * k, {less})",
    }  # fmt: skip
    return ((_COPY if is_copy else _CONVERT) + _RUNS + _STAGE_ROWS).format(**numbers)
