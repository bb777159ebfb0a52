"""NCHW to NHWC convolutions of float32: the first layers of networks.

NHWC inputs with a single channel are planes, too. A task stages the input of a few rows of results, padding
included, in its own memory, where each tap has a fixed offset from the start of its window.
"""

from __future__ import annotations

from functools import partial

from engine.backends.cpu.codegen.argument_block import ArgumentBlock
from engine.backends.cpu.codegen.epilogue import Epilogue, print_epilogue
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.backends.cpu.codegen.printer import kernel_text
from engine.backends.cpu.codegen.schedule import Blocks, TaskGrid, TaskSchedule, emit
from engine.backends.cpu.codegen.task_partition import MOST_FLOATS, MOST_PIXELS, cut_bands
from engine.backends.cpu.codegen.tiles import Tile, host_tile
from engine.backends.cpu.kernels.convolution.nchw_staging import (
    SLACK,
    staging_text,
    tap_offsets_text,
    zero_text,
)
from engine.backends.cpu.kernels.convolution.nhwc_tiles import (
    FLOPS_PER_NS,
    NS_PER_RESULT,
    pack_weights,
    padded_channels,
    panel_tile,
    pixel_rows,
    tile_makers,
    walk_tiles,
)
from engine.backends.cpu.kernels.convolution.window_arguments import WINDOW_ARGUMENTS, window_values
from engine.backends.cpu.kernels.matmul.packed_elements import WordFormat
from engine.backends.cpu.library import library_text
from engine.backends.windows import Windows2D, nhwc_windows
from engine.compiler.plan import Compute, Tuner
from engine.kernels.size import deferred

_MAX_DEPTH = 2048
"""Products of a sum that a task has room to note the places of."""

_NS_PER_COPY = 0.1
_NS_PER_TASK = 100.0

_GRID = TaskGrid(row="out_rows", column="out_columns")
_ARGUMENTS = ArgumentBlock("m_size channels in_place", WINDOW_ARGUMENTS, _GRID.arguments, "band_rows pitch")

_WORDS = WordFormat("float32", 1)


def tune_first_layer_conv(compute: Compute, tuner: Tuner, threads: int) -> bool:
    """Rule for hints of kind "conv" with x_first or one channel: float32, known weights, one group."""
    attributes, (x, w) = compute.attributes, compute.operands
    win = nhwc_windows(compute)
    if win is None or w.known is None or not compute.is_float32:
        return False
    if not attributes.get("x_first") and x.shape[-1] > 1:
        return False
    m, channels = w.shape[:2]
    depth = channels * win.taps
    tile = panel_tile(host_tile(), m, depth, attributes.get("pooled", 1))
    flops = 2.0 * padded_channels(m, tile) * depth
    pixel_ns = flops / FLOPS_PER_NS + m * NS_PER_RESULT
    if int(attributes["group"]) != 1 or depth > _MAX_DEPTH:
        return False
    schedule = _bands(win, channels, compute.space, compute.attributes.get("pooled", 1), pixel_ns, threads)
    rows, columns = schedule.blocks
    if columns.size == 0:
        return False
    epilogue = print_epilogue(compute, _ARGUMENTS.end, len(compute.space) - 1)
    elements = w.known
    weights = tuner.constant(
        f"{w.name}|planes{tile.width}", partial(pack_weights, elements, 1, tile, False, 0)
    )
    sizes = _ARGUMENTS.values(
        m_size=m, channels=channels, in_place=int(_in_place(win)), **window_values(win),
        **_GRID.values(rows, columns), band_rows=_reach(win, 0, rows.size),
        pitch=_reach(win, 1, columns.size),
    )  # fmt: skip
    kernel = NativeKernel("first_layer_conv", first_layer_conv_text(tile, epilogue, len(compute.space)))
    return emit(tuner, kernel, schedule, sizes, (x.name, weights), compute.output.name, epilogue)


def _in_place(win: Windows2D) -> bool:
    """Whether windows never leave the input."""
    if win.pads != (0, 0):
        return False
    rows, columns = win.reach
    return rows <= win.height and columns <= win.width


def _reach(win: Windows2D, axis: int, count: int) -> int:
    """The input elements along an axis that a number of results depend on."""
    return (count - 1) * win.strides[axis] + (win.kernel[axis] - 1) * win.dilations[axis] + 1


def _bands(
    win: Windows2D, channels: int, space: tuple[int, ...], side: int, pixel_ns: float, threads: int
) -> TaskSchedule:
    """Bands of rows, and columns, of size 0 where the input of a pixel does not fit into a task's memory.

    They are whole windows of `side` x `side` results that are pooled.
    """
    batch, out = space[0], win.out if side == 1 else space[1:3]
    strides = [side * stride for stride in win.strides]
    tasks, task_ns, bands, rows, across, columns = deferred(
        cut_bands, *out, *strides, _reach(win, 0, side), _reach(win, 1, side),
        0 if _in_place(win) else channels, batch, pixel_ns * side * side, _NS_PER_COPY, _NS_PER_TASK, threads,
    )  # fmt: skip
    return TaskSchedule(
        tasks, task_ns, (Blocks(bands, rows).times(side), Blocks(across, columns).times(side))
    )


def first_layer_conv_text(tile: Tile, epilogue: Epilogue, rank: int) -> str:
    """Source of the kernel."""
    rows, side = pixel_rows(tile, epilogue.pooled)[0], epilogue.pooled

    def call(name: str) -> str:
        return f"{name}(places, offsets, depth, panel, sums)"

    lead = [
        *_ARGUMENTS.prologue("x", "weights", epilogue=epilogue),
        "taps = kernel_rows * kernel_columns",
        "depth = channels * taps",
        "m_total = m_size",
        "group, m0, m1 = 0, 0, m_size",
        f"offsets = stack_bytes({_MAX_DEPTH * 8})",
        f"table = stack_bytes({(MOST_PIXELS * side * side + rows) * 8})",
        f"band = stack_bytes({(MOST_FLOATS + SLACK) * 4})",
        f"sums = stack_bytes({rows * tile.width * 4})",
        "row_length = width if in_place == 1 else pitch",
        "plane = height * width if in_place == 1 else band_rows * pitch",
        "for c in range(channels):",
        "    tap_offsets(offsets + c * taps * 8, c * plane, kernel_rows, kernel_columns,"
        " row_dilation * row_length, 0, column_dilation, 1)",
        *zero_text(_WORDS, ""),
        *epilogue.kernel,
    ]
    task = [
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
        f"for row in range(0, rows, {side}):",
        f"    for k in range(0, length, {side}):",
        "        address = origin + (row * row_stride * row_length + k * column_stride) * 4",
        f"        entry = row * length + k * {side}",
        *(
            f"        store_i64(table, entry + {a * side + b},"
            f" address + ({a} * row_stride * row_length + {b} * column_stride) * 4)"
            for a in range(side)
            for b in range(side)
        ),
        "count = rows * length",
        f"for k in range(count, count + {rows}):",
        "    store_i64(table, k, origin)",
        f"first = (image * out_rows + row0) * out_columns + column0 * {side}",
        *walk_tiles(tile, call, epilogue, rank),
    ]
    makers = tile_makers(tile, "make_plane_tile", False, epilogue)
    helpers = staging_text(_WORDS, "float32") + tap_offsets_text(_WORDS.element_size)
    return kernel_text(
        library_text("vectors", "epilogue", "conv_tiles", helpers=helpers) + makers, lead, task
    )
