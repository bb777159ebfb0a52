"""NHWC convolutions of float32, computed in bfloat16 or int8.

A task rounds the rows of the input that it reads into memory of its own, a band of cells. There, what one tap
reads for consecutive results lies one cell apart: rows and columns are parted by their remainders of the
strides into regions, and results are computed beyond the ends of rows, as far as the padding reaches. A cell
is a pixel. Where pixels have few channels, a tap is a row of the window instead: its pixels follow each
other in memory, and a cell is as many of them as a window moves on. In bytes, a band has one range.

A tap that is a row of the window reads some elements behind it, times zero: an infinity or NaN there reaches
a few results more than it would in float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

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
    halve,
    partition_axes,
)
from engine.backends.cpu.codegen.tiles import MAX_TAPS
from engine.backends.cpu.kernels.convolution.window_arguments import WINDOW_ARGUMENTS, window_values
from engine.backends.cpu.kernels.matmul.low_precision import (
    BAND_BYTES,
    GROUP_BYTES,
    NARROWED_PER_NS,
    PANEL,
    SLACK_BYTES,
    SUMS,
    column_scales,
    columns_text,
    head_text,
    memory_text,
    near_columns,
    pack_columns,
    product_ns,
    release_text,
    row_pitch,
    scale_text,
)
from engine.backends.cpu.kernels.matmul.precision import Arithmetic
from engine.backends.windows import Windows2D, nhwc_windows
from engine.compiler.plan import Compute, Tuner, storable
from engine.kernels.size import deferrable, deferred

_LEAST_FLOPS = 1e6

_MOST_STRIDE = 256

_LEAST_CHANNELS = 16
"""A network's first layers, of few channels, take little time and have most to lose by bytes."""

_MUCH_LESS = 0.7
"""Taps that are rows read across lines of cache: they have to save so much."""

_GRID = TaskGrid(output="n_size", row="out_rows", column="out_columns")
"""Tasks that follow each other share their columns, which stay in cache."""

_ARGUMENTS = ArgumentBlock(
    WINDOW_ARGUMENTS,
    "channels last_size n_size groups tap_rows tap_columns row_phases phases row_reach row_cells region",
    "pitch x_image x_row x_column x_channel",
    _GRID.arguments,
    "columns_at_once rows_at_once",
)

_TEXT = """
@helper
def cell_offsets(offsets, tap_rows, tap_columns, row_stride, column_stride, row_dilation, column_dilation,
                 phases, row_cells, region, pitch):
    # Where each tap reads, in bytes from a result's cell.
    for a in range(tap_rows):
        row = op_div(a * row_dilation, row_stride)
        row_phase = a * row_dilation - row * row_stride
        for b in range(tap_columns):
            column = op_div(b * column_dilation, column_stride)
            phase = b * column_dilation - column * column_stride
            cell = (row_phase * phases + phase) * region + row * row_cells + column
            store_i64(offsets, a * tap_columns + b, cell * pitch)


@helper
def fill_bytes(target, count, byte):
    while count > 0:
        fill_group(target, byte)
        target += 64
        count -= 64


"""

_LAY_CELLS = """\
@helper
def lay_cells(band, x, height, width, channels, y0, x0, row_stride, column_stride, row_phases, phases, rows,
              row_cells, region, pitch, groups, x_row, x_column, x_channel, factor, zero):
    for row_phase in range(row_phases):
        start = band + row_phase * phases * region * pitch
        for r in range(rows):
            y = y0 + r * row_stride + row_phase
            target = start + r * row_cells * pitch
"""
"""The head of `lay_cells`; what follows it lays the row at `target`."""

_PIXELS = (
    """
@helper
def pack_pixels(target, source, width, channels, first, stride, count, pitch, x_column, factor, zero):
    # One row of cells. What the last group of a pixel lacks is zeros.
    for k in range(count):
        at = first + k * stride
        if at < 0 or at >= width:
            fill_bytes(target, pitch, zero)
        else:
            round_run(target, source + at * x_column * 4, channels, factor, zero)
        target += pitch


"""
    + _LAY_CELLS
    + """\
            for phase in range(phases):
                if y < 0 or y >= height:
                    fill_bytes(target, row_cells * pitch, zero)
                else:
                    pack_pixels(target, x + y * x_row * 4, width, channels, x0 + phase, column_stride,
                               row_cells, pitch, x_column, factor, zero)
                target += region * pitch
"""
)

_ROWS = (
    """
@helper
def lay_line(target, source, width, channels, first, count, x_column, x_channel, factor):
    # One row of `count` pixels without gaps.
    low = min(max(-first, 0), count)
    high = max(min(width - first, count), low)
    fill_bytes(target, low * channels * 2, 0)
    inside = target + low * channels * 2
    begin = source + (first + low) * x_column * 4
    if x_channel == 1 or channels == 1:
        round_run(inside, begin, (high - low) * channels, factor, 0)
    else:
        done = 0
        if channels == 3 and x_column == 1:
            while done + 16 <= high - low:
                interleave_three(inside + done * 6, begin + done * 4, x_channel * 4)
                done += 16
        for c in range(channels):
            for k in range(done, high - low):
                value = load_f32(begin, k * x_column + c * x_channel)
                store_u16(inside, k * channels + c, bf16_bits(value))
    fill_bytes(target + high * channels * 2, (count - high) * channels * 2, 0)


"""
    + _LAY_CELLS
    + """\
            if y < 0 or y >= height:
                fill_bytes(target, row_cells * pitch, 0)
            else:
                lay_line(target, x + y * x_row * 4, width, channels, x0, row_cells * column_stride,
                         x_column, x_channel, factor)
            # The last group of a window may reach beyond its row.
            fill_bytes(target + row_cells * pitch, groups * 64, 0)
"""
)

_MEASURE = """

@helper
def measure_rows(state, x, height, width, channels, y0, x0, rows, columns, x_row):
    # The range of what lies inside of so many rows and columns.
    low, high = max(x0, 0), min(x0 + columns, width)
    start_range(state)
    if low < high:
        for y in range(max(y0, 0), min(y0 + rows, height)):
            measure_run(state, x + (y * x_row + low * channels) * 4, (high - low) * channels)
"""


@deferrable
@dataclass(frozen=True)
class Cells:
    """The packed input of a band: `groups` of 64 bytes for each tap, `pitch` bytes apart.

    `packed_rows`: a tap is a whole row of the window, of bfloat16s.
    """

    tap_rows: int
    tap_columns: int
    groups: int
    pitch: int
    packed_rows: bool

    @property
    def column_bytes(self) -> int:
        """Packed weights of one column, zeros included."""
        return self.tap_rows * self.tap_columns * self.groups * GROUP_BYTES


@dataclass(frozen=True)
class Bands:
    """The results of a task and the layout of its band; see the kernel's argument words."""

    rows: Blocks
    columns: Blocks
    row_phases: int
    phases: int
    row_reach: int
    row_cells: int

    @property
    def region(self) -> int:
        """Cells of one region."""
        return (self.rows.size + self.row_reach) * self.row_cells

    def bytes(self, cells: Cells) -> int:
        """Bytes of a band; blocks of results may read up to 32 cells beyond its end."""
        laid = self.row_phases * self.phases * self.region
        return (laid + 32) * cells.pitch + (cells.groups + 1) * 64

    def fits(self, cells: Cells) -> bool:
        """Whether a task has enough memory."""
        return self.bytes(cells) <= BAND_BYTES + SLACK_BYTES and self.region * cells.pitch <= BAND_BYTES


def tune_low_precision_conv(compute: Compute, tuner: Tuner, threads: int, arithmetic: Arithmetic) -> bool:
    """Rule for hints of kind "conv" over NHWC tensors with constant weights, where it is faster."""
    attributes = compute.attributes
    x, w = compute.operands
    if not attributes.get("channels_last") or w.known is None or not compute.is_float32:
        return False
    win = _windows(compute)
    x_first = bool(attributes.get("x_first"))
    if win is None or int(attributes["group"]) != 1 or win.taps > MAX_TAPS:
        return False
    elements, channels, columns = w.known, w.shape[1], w.shape[0]
    flops = 2.0 * win.out[0] * win.out[1] * columns * channels * win.taps
    if flops < _LEAST_FLOPS or columns < 8 or channels * win.taps < 9:
        return False
    cells = cells_of(win, channels, arithmetic)
    if (x_first and not cells.packed_rows) or (arithmetic.bytewise and channels < _LEAST_CHANNELS):
        return False
    bands = deferred(cut_cells, win, cells)
    if bands is None:
        return False
    batch, pixels = x.shape[0], win.out[0] * win.out[1]
    nanoseconds = product_ns(pixels, columns, cells.column_bytes // 2, win.height * win.width * channels)
    bands, panels, held = share_cells(win, cells, bands, columns, batch, threads, nanoseconds)
    blocks = (panels, bands.rows, bands.columns)

    taps = cells.tap_rows * cells.tap_columns
    name = f"{w.name}|{arithmetic.precision} taps{cells.tap_rows}x{cells.tap_columns}"
    columns_of = partial(pack_taps, elements, win.kernel, taps, cells.groups, arithmetic)
    constants = [tuner.constant(name, columns_of)]
    if arithmetic.bytewise:
        scales = partial(scales_of_taps, elements, win.kernel, taps)
        constants.append(tuner.constant(f"{name}|scales", scales))
    plane = win.height * win.width
    steps = (win.width, 1, plane) if x_first else (win.width * channels, channels, 1)
    epilogue = print_epilogue(compute, _ARGUMENTS.end, len(compute.space) - 1)
    sizes = _ARGUMENTS.values(
        **window_values(win), channels=channels, last_size=compute.space[-2], n_size=columns,
        groups=cells.groups, tap_rows=cells.tap_rows, tap_columns=cells.tap_columns,
        row_phases=bands.row_phases, phases=bands.phases, row_reach=bands.row_reach,
        row_cells=bands.row_cells, region=bands.region, pitch=cells.pitch, x_image=plane * channels,
        x_row=steps[0], x_column=steps[1], x_channel=steps[2], **_GRID.values(*blocks), columns_at_once=held,
        rows_at_once=SUMS // held // 32 * 32,
    )  # fmt: skip
    schedule = TaskSchedule.over(blocks, batch * nanoseconds, batch)
    text = conv_text(arithmetic, len(compute.space), cells.packed_rows, epilogue)
    kernel = NativeKernel(f"conv_{arithmetic.precision}", text)
    return emit(tuner, kernel, schedule, sizes, (x.name, *constants), compute.output.name, epilogue)


@storable
def pack_taps(
    elements: np.ndarray, kernel: tuple[int, ...], taps: int, groups: int, arithmetic: Arithmetic
) -> np.ndarray:
    """Pack (M, C, *kernel) weights as columns of taps."""
    return pack_columns(_taps(elements, kernel, taps), groups, arithmetic)


@storable
def scales_of_taps(elements: np.ndarray, kernel: tuple[int, ...], taps: int) -> np.ndarray:
    """The scales of the columns that `pack_taps` packs."""
    return column_scales(_taps(elements, kernel, taps))


def _taps(elements: np.ndarray, kernel: tuple[int, ...], taps: int) -> np.ndarray:
    """(M, C, *kernel) -> (taps, C * kernel / taps, M)."""
    columns, channels = elements.shape[:2]
    return elements.reshape(columns, channels, *kernel).transpose(2, 3, 1, 0).reshape(taps, -1, columns)


def _windows(compute: Compute) -> Windows2D | None:
    """The windows over one or two axes, a single pixel flat over all of the plane; None for other ranks."""
    win = nhwc_windows(compute)
    if win is None or max(win.strides) > _MOST_STRIDE:
        return None
    if win.is_pointwise:
        pixels = win.height * win.width
        return Windows2D(1, pixels, (1, 1), (1, 1), (1, 1), (0, 0), (1, pixels))
    return win


def cells_of(win: Windows2D, channels: int, arithmetic: Arithmetic) -> Cells:
    """Pixels as cells, or rows of windows as taps if pixels would be mostly padding."""
    groups = -(-channels // arithmetic.group)
    pixels = Cells(*win.kernel, groups, row_pitch(groups), packed_rows=False)
    if arithmetic.bytewise or win.dilations[1] != 1:
        return pixels
    rows = Cells(
        win.kernel[0], 1, -(-win.kernel[1] * channels // arithmetic.group), win.strides[1] * channels * 2,
        packed_rows=True,
    )  # fmt: skip
    return rows if rows.column_bytes < pixels.column_bytes * _MUCH_LESS else pixels


@deferrable
def cut_cells(win: Windows2D, cells: Cells) -> Bands | None:
    """Bands as high as fit a task's memory; None if not even part of a row fits."""
    (kh, kw), (sh, sw), (dh, dw) = win.kernel, win.strides, win.dilations
    row_phases = min(sh, kh) if dh == 1 else sh
    phases = min(sw, kw) if dw == 1 else sw
    reach = (kw - 1) * dw // sw
    if cells.packed_rows:
        phases, reach = 1, -(-kw // sw) - 1

    def of(rows: TiledAxis, columns: TiledAxis) -> Bands:
        blocks = rows.blocks, columns.blocks
        return Bands(*blocks, row_phases, phases, (kh - 1) * dh // sh, columns.block + reach)

    axes = [TiledAxis(win.out[0], win.out[0]), TiledAxis(win.out[1], win.out[1], 1, 8)]
    bands = of(*halve(axes, lambda *axes: not of(*axes).fits(cells)))
    return bands if bands.fits(cells) else None


def share_cells(
    win: Windows2D, cells: Cells, bands: Bands, columns: int, batch: int, threads: int, nanoseconds: float
) -> tuple[Bands, Blocks, int]:
    """Reduce bands or columns until all threads have work: bands, columns per task and per pass."""
    wanted = tasks_wanted(nanoseconds * batch, threads)
    all_columns, held = near_columns(columns, cells.column_bytes)
    rows, width, reach = bands.rows, bands.columns, bands.row_reach

    def smaller(n: TiledAxis, row: TiledAxis, column: TiledAxis) -> int | None:
        # Rows at the border of two bands are rounded twice.
        if row.is_divisible:
            return 1
        if column.is_divisible:
            return 2
        if not n.is_divisible:
            return None
        laid = bands.row_phases * bands.phases * (row.block + reach) * cells.pitch * column.block / 2
        product = product_ns(row.block * column.block, n.halved().block, cells.column_bytes // 2, 0)
        is_worth_it = product >= laid / NARROWED_PER_NS
        return 0 if is_worth_it or batch * n.count * row.count * column.count < threads else None

    axes = [
        TiledAxis(columns, held if held < all_columns else all_columns, PANEL, PANEL),
        TiledAxis(win.out[0], rows.size, 1, 2 * max(1, reach) - 1),
        TiledAxis(win.out[1], width.size, 32, 64 if win.out[0] == 1 else width.size),
    ]
    n, row, column = partition_axes(axes, batch, wanted, smaller)
    row_cells = bands.row_cells - width.size + column.size
    return Bands(row, column, bands.row_phases, bands.phases, reach, row_cells), n, min(held, n.size)


def conv_text(arithmetic: Arithmetic, rank: int, packed_rows: bool, epilogue: Epilogue) -> str:
    """Source of the kernel, for `rank` dimensions and bands of pixels or packed rows."""
    bytewise = arithmetic.bytewise
    where = ["i1 = pixel"] if rank == 3 else ["i1 = op_div(pixel, last_size)", "i2 = pixel - i1 * last_size"]
    measure = [
        "measure_rows(state, image, height, width, channels, y0, x0, (rows + row_reach - 1) * row_stride"
        " + row_phases, (row_cells - 1) * column_stride + phases, x_row)",
        "end_range(state, ranges)",
        "factor, step, zero = load_f32(ranges, 0), load_f32(ranges, 1), load_i64(ranges, 1)",
    ]
    store = [
        "i = op_div(done, row_cells)",
        "j = done - i * row_cells",
        "for r in range(count):",
        "    if j < wide:",
        "        pixel = (row0 + i) * out_columns + column0 + j",
        *indent(indent(where)),
        "        tile = sums + r * columns_at_once * 4",
        "        start = (i0 * out_rows * out_columns + pixel) * n_size + first_column",
        *indent(indent(scale_text(arithmetic, "step", "zero"))),
        *indent(indent(epilogue.store)),
        "    j += 1",
        "    if j == row_cells:",
        "        i, j = i + 1, _types.int64(0)",
    ]
    right = "w + (first_column >> 5) * panel_bytes"
    lead = [
        *_ARGUMENTS.prologue("x", "w", *(["scales"] if bytewise else []), epilogue=epilogue),
        "factor, zero = _types.float32(1.0), _types.int64(0)",
        *memory_text(arithmetic),
        f"offsets = stack_bytes({MAX_TAPS * 8})",
        "cell_offsets(offsets, tap_rows, tap_columns, row_stride, column_stride, row_dilation,"
        " column_dilation, phases, row_cells, region, pitch)",
        "taps = tap_rows * tap_columns",
        "panel_bytes = taps * groups * 2048",
        "depth, g0 = groups, 0",
        *epilogue.kernel,
    ]
    task = [
        *_GRID.locate("i0"),
        "rows, wide, task_columns = row1 - row0, column1 - column0, output1 - output0",
        "image, y0 = x + i0 * x_image * 4, row0 * row_stride - top",
        "x0 = column0 * column_stride - left",
        *(measure if bytewise else []),
        "lay_cells(band, image, height, width, channels, y0, x0, row_stride, column_stride,"
        " row_phases, phases, rows + row_reach, row_cells, region, pitch, groups, x_row, x_column,"
        " x_channel, factor, zero)",
        "positions = (rows - 1) * row_cells + wide",
        *columns_text(arithmetic, "output0", right, "positions", store),
    ]
    head = head_text(arithmetic) + _TEXT + (_ROWS if packed_rows else _PIXELS)
    return kernel_text(head + (_MEASURE if bytewise else ""), lead, task, release_text(arithmetic))
