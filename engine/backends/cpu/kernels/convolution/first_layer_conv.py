"""Convolutions of float32 from planes of channels to channels last: the first layers of networks.

A single channel that lies last is a plane as well.

A task stages the input of a few rows of results, padding included, in its own memory. There every product
of a window lies at a fixed distance from the window's start, whatever the pixel.
"""

from __future__ import annotations

from functools import partial
from math import inf

from engine.backends.cpu.codegen.argument_block import ArgumentBlock
from engine.backends.cpu.codegen.cost import CHUNKS_PER_THREAD
from engine.backends.cpu.codegen.epilogue import Epilogue, print_epilogue
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.backends.cpu.codegen.printer import indent, kernel_text
from engine.backends.cpu.codegen.schedule import (
    Axis,
    Blocks,
    Schedule,
    TaskGrid,
    divisions,
    elapsed_ns,
    emit,
    evenly,
    halve,
)
from engine.backends.cpu.codegen.tiles import Tile, host_tile
from engine.backends.cpu.kernels.convolution.pixel_tiles import (
    FLOPS_PER_NS,
    NS_PER_RESULT,
    pack_weights,
    padded_channels,
    pixel_rows,
    tile_makers,
    walk_tiles,
)
from engine.backends.cpu.kernels.convolution.planes import SLACK, staging_text, tap_offsets_text, zero_text
from engine.backends.cpu.kernels.convolution.window_arguments import WINDOW_ARGUMENTS, window_values
from engine.backends.cpu.kernels.matmul.words import Words
from engine.backends.cpu.library import library_text
from engine.backends.windows import Windows, nhwc_windows
from engine.compiler.plan import Compute, Tuner
from engine.kernels.size import deferrable, deferred

_MAX_DEPTH = 2048
"""Products of a sum that a task has room to note the places of."""

_MAX_PIXELS = 4096
_LEAST_PIXELS = 64
_BAND_FLOATS = 16384
"""Elements of a band that leave room in the nearest caches."""

_MOST_FLOATS = 32768
"""Elements that a band has room for where a row is long, or windows reach far (128 KiB)."""

_NS_PER_COPY = 0.1
_NS_PER_TASK = 100.0

_GRID = TaskGrid(row="out_rows", column="out_columns")
_ARGUMENTS = ArgumentBlock("m_size channels in_place", WINDOW_ARGUMENTS, _GRID.arguments, "band_rows pitch")

_WORDS = Words("float32", 1)


def tune_first_layer_conv(compute: Compute, tuner: Tuner, threads: int) -> bool:
    """Rule for hints of kind "conv" with x_first or one channel: float32, known weights, one group."""
    attributes, (x, w) = compute.attributes, compute.operands
    win = nhwc_windows(compute)
    if win is None or w.known is None or not compute.is_float32:
        return False
    if not attributes.get("x_first") and x.shape[-1] > 1:
        return False
    tile = host_tile()
    m, channels = w.shape[:2]
    depth = channels * win.taps
    flops = 2.0 * padded_channels(m, tile) * depth
    pixel_ns = flops / FLOPS_PER_NS + m * NS_PER_RESULT
    schedule = deferred(schedule_bands, win, channels, compute.space[0], pixel_ns, threads)
    if int(attributes["group"]) != 1 or depth > _MAX_DEPTH or schedule is None:
        return False
    epilogue = print_epilogue(compute, _ARGUMENTS.end, len(compute.space) - 1)
    elements = w.known
    weights = tuner.constant(
        f"{w.name}|planes{tile.width}", partial(pack_weights, elements, 1, tile, False, 0)
    )
    rows, columns = schedule.blocks
    sizes = _ARGUMENTS.values(
        m_size=m, channels=channels, in_place=int(_in_place(win)), **window_values(win),
        **_GRID.values(rows, columns), band_rows=_reach(win, 0, rows.size),
        pitch=_reach(win, 1, columns.size),
    )  # fmt: skip
    kernel = NativeKernel("first_layer_conv", first_layer_conv_text(tile, epilogue, len(compute.space)))
    emit(tuner, kernel, schedule, sizes, (x.name, weights), compute.output.name, epilogue)
    return True


def _in_place(win: Windows) -> bool:
    """Whether windows never leave the input."""
    if win.pads != (0, 0):
        return False
    rows, columns = win.reach
    return rows <= win.height and columns <= win.width


def _reach(win: Windows, axis: int, count: int) -> int:
    """The input elements along an axis that a number of results depend on."""
    return (count - 1) * win.strides[axis] + (win.kernel[axis] - 1) * win.dilations[axis] + 1


@deferrable
def schedule_bands(win: Windows, channels: int, batch: int, pixel_ns: float, threads: int) -> Schedule | None:
    """Bands of even cost for all threads that fit into a task's memory; None if one pixel's does not.

    Several rows are always whole ones.
    """
    in_place = _in_place(win)

    def floats(rows: int, columns: int) -> int:
        return 0 if in_place else channels * _reach(win, 0, rows) * _reach(win, 1, columns)

    most = min(win.out[1], _MAX_PIXELS)
    if batch * win.out[0] < threads:
        # Signals of one row.
        most = min(most, max(evenly(win.out[1], threads * CHUNKS_PER_THREAD).size, _LEAST_PIXELS))
    columns = Axis(win.out[1], most).blocks
    if floats(1, most) > _MOST_FLOATS:
        (column,) = halve([Axis(win.out[1], most)], lambda column: floats(1, column.block) > _MOST_FLOATS)
        columns = column.blocks
    if floats(1, columns.size) > _MOST_FLOATS:
        return None

    best, least = (0, 0.0, 1, 0), inf
    wide = floats(1, columns.size) // _reach(win, 0, 1)
    for rows, count in divisions(win.out[0]):
        held = wide * _reach(win, 0, rows)
        too_many = held > _BAND_FLOATS or rows * columns.size > _MAX_PIXELS or columns.count > 1
        if rows > 1 and too_many:
            break
        tasks, task_ns = batch * count * columns.count, rows * columns.size * pixel_ns + held * _NS_PER_COPY
        nanoseconds = elapsed_ns(tasks, task_ns + _NS_PER_TASK, threads)
        if nanoseconds < least:
            best, least = (tasks, task_ns, count, rows), nanoseconds
    tasks, task_ns, count, rows = best
    return Schedule(tasks, task_ns, (Blocks(count, rows), columns) if tasks else ())


def first_layer_conv_text(tile: Tile, epilogue: Epilogue, rank: int) -> str:
    """The kernel's module."""
    rows = pixel_rows(tile)[0]

    def call(name: str) -> str:
        return f"{name}(places, offsets, depth, panel, sums)"

    body = [
        *_ARGUMENTS.prologue("x", "weights", epilogue=epilogue),
        "taps = kernel_rows * kernel_columns",
        "depth = channels * taps",
        "m_total = m_size",
        "group, m0, m1 = 0, 0, m_size",
        f"offsets = stack_bytes({_MAX_DEPTH * 8})",
        f"table = stack_bytes({(_MAX_PIXELS + rows) * 8})",
        f"band = stack_bytes({(_MOST_FLOATS + SLACK) * 4})",
        f"sums = stack_bytes({rows * tile.width * 4})",
        "row_length = width if in_place == 1 else pitch",
        "plane = height * width if in_place == 1 else band_rows * pitch",
        "for c in range(channels):",
        "    tap_offsets(offsets + c * taps * 8, c * plane, kernel_rows, kernel_columns,"
        " row_dilation * row_length, 0, column_dilation, 1)",
        *zero_text(_WORDS, ""),
        *epilogue.kernel,
        "for task in range(begin, end):",
        *indent(
            [
                *_GRID.locate("image"),
                "rows, length = row1 - row0, column1 - column0",
                "picture = x + image * channels * height * width * 4",
                "origin = picture + (row0 * row_stride * width + column0 * column_stride) * 4",
                "if in_place == 0:",
                "    origin = band",
                "    needed = (rows - 1) * row_stride + (kernel_rows - 1) * row_dilation + 1",
                "    for c in range(channels):",
                "        source = picture + c * height * width * 4",
                "        stage_rows(band + c * plane * 4, source, height, width, row0 * row_stride - top,"
                " left - column0 * column_stride, 1, 1, 1, needed, pitch, 0, filling, zero)",
                "for row in range(rows):",
                "    for k in range(length):",
                "        address = origin + (row * row_stride * row_length + k * column_stride) * 4",
                "        store_i64(table, row * length + k, address)",
                "count = rows * length",
                f"for k in range(count, count + {rows}):",
                "    store_i64(table, k, origin)",
                "first = (image * out_rows + row0) * out_columns + column0",
                *walk_tiles(tile, call, epilogue, rank),
            ]
        ),
    ]
    makers = tile_makers(tile, "make_plane_tile", False, epilogue.recipe)
    helpers = staging_text(_WORDS, "float32") + tap_offsets_text(_WORDS.element_size)
    return kernel_text(library_text("vectors", "epilogue", "gemm", helpers=helpers) + makers, body)
