"""NHWC depthwise convolution and pooling of float32.

Vectors run along channels, for several pixels of a row at a time. Where a row of windows lies inside the
input, no tap is tested; a window at an edge has its taps counted out.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from engine.backends.cpu.codegen.argument_block import ArgumentBlock
from engine.backends.cpu.codegen.cost import tasks_wanted
from engine.backends.cpu.codegen.epilogue import (
    EPILOGUE_BYTES,
    Epilogue,
    Recipe,
    print_epilogue,
    store_epilogue,
    store_row_stride,
)
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.backends.cpu.codegen.printer import indent, kernel_text
from engine.backends.cpu.codegen.schedule import TaskGrid, TaskSchedule, emit, even_blocks
from engine.backends.cpu.codegen.task_partition import up
from engine.backends.cpu.codegen.tiles import MAX_TAPS, host_tile
from engine.backends.cpu.kernels.convolution.window_arguments import (
    COUNT_TAPS,
    WINDOW_ARGUMENTS,
    window_values,
)
from engine.backends.cpu.library import library_text
from engine.backends.windows import Windows2D, counted_sides, nhwc_windows
from engine.compiler.plan import Compute, Tuner, storable
from engine.kernels.size import largest, smallest

TILES = ((8, 1), (4, 2), (2, 4), (1, 4))
"""How many pixels may go together, and with how many vectors of channels where there are so many."""

BLOCK_CHANNELS = 192
"""So many channels that what neighbouring windows share stays in first-level cache."""

# Measured between the layers of a network, where inputs come from second-level cache or further.
NS_PER_TAP = 0.4
NS_PER_VECTOR = 3.4

_EDGES = 8
"""Windows at the edges of a row whose taps are kept from row to row."""

_GRID = TaskGrid(row="out_rows")
PIXEL_ARGUMENTS = ArgumentBlock(
    _GRID.arguments, WINDOW_ARGUMENTS, "block_channels channels inner_begin inner_end weight_step"
)

_POOL_ARGUMENTS = ArgumentBlock(PIXEL_ARGUMENTS, "count_top count_bottom count_left count_right")

# Windows that go together lie inside, and so have equally many taps.
_SHARE = [
    "amount = taps_inside(y, row_dilation, kernel_rows, count_top, count_bottom)",
    "amount *= taps_inside(x0, column_dilation, kernel_columns, count_left, count_right)",
    "factor = to_float32(1.0 / amount)",
]

_HELPERS = (
    COUNT_TAPS
    + """

@helper
def list_taps(places, row0, row1, column0, column1, kernel_columns, row_step, column_step, weight_step):
    count = 0
    for row in range(row0, row1):
        for column in range(column0, column1):
            store_i64(places, 2 * count, row * row_step + column * column_step)
            store_i64(places, 2 * count + 1, (row * kernel_columns + column) * weight_step)
            count += 1
    return count
"""
)


def tune_nhwc_depthwise(compute: Compute, tuner: Tuner, threads: int) -> bool:
    """Rule for hints of kind "conv" with channels last: as many groups and outputs as input channels."""
    x, w = compute.operands
    attributes = compute.attributes
    if not compute.is_float32 or w.known is None or attributes.get("x_first"):
        return False
    channels = x.shape[-1]
    if int(attributes["group"]) != channels or w.shape[:2] != (channels, 1) or channels == 1:
        return False
    win = nhwc_windows(compute)
    if win is None or win.taps > MAX_TAPS:
        return False
    lanes, rank = host_tile().lanes, len(compute.space)
    epilogue = print_epilogue(compute, PIXEL_ARGUMENTS.end, row_axes=rank - 1)
    schedule, sizes = schedule_pixels(win, x.shape[0], channels, lanes, threads)
    weights = tuner.constant(f"{w.name}|taps{lanes}", partial(pack_taps, w.known, win.taps, lanes))
    lead = PIXEL_ARGUMENTS.prologue("x", "w", epilogue=epilogue)
    text = windows_text("taps", lead, lanes, rank, "w + c * 4", [], epilogue, epilogue.recipe)
    kernel = NativeKernel("nhwc_depthwise", text)
    return emit(tuner, kernel, schedule, sizes, (x.name, weights), compute.output.name, epilogue)


@storable
def pack_taps(elements: np.ndarray, taps: int, lanes: int) -> np.ndarray:
    """(C, 1, *kernel) -> 1-D (tap, C), filled up with zeros to whole vectors."""
    channels = len(elements)
    padded = np.zeros((taps, -(-channels // lanes) * lanes), np.float32)
    padded[:, :channels] = elements.reshape(channels, taps).T
    return padded.reshape(-1)


def tune_nhwc_pool(compute: Compute, tuner: Tuner, threads: int) -> bool:
    """Rule for hints of kind "pool" with channels last, of float32 over one or two axes."""
    (x,), attributes = compute.operands, compute.attributes
    kind, win = str(attributes["kind"]), nhwc_windows(compute)
    if win is None or win.taps > MAX_TAPS or not compute.is_float32:
        return False
    if kind not in ("max", "average", "sum"):
        return False
    lanes, rank = host_tile().lanes, len(compute.space)
    epilogue = print_epilogue(compute, _POOL_ARGUMENTS.end, row_axes=rank - 1)
    schedule, sizes = schedule_pixels(win, x.shape[0], x.shape[-1], lanes, threads)
    lead, factor = _POOL_ARGUMENTS.prologue("x", epilogue=epilogue), _SHARE if kind == "average" else []
    tiles = "max" if kind == "max" else "average"
    text = windows_text(tiles, lead, lanes, rank, "0", factor, epilogue, epilogue.recipe)
    arguments = _POOL_ARGUMENTS.values(**PIXEL_ARGUMENTS.named(sizes), **counted_sides(compute, win))
    kernel = NativeKernel(f"nhwc_pool_{kind}", text)
    return emit(tuner, kernel, schedule, arguments, (x.name,), compute.output.name, epilogue)


def schedule_pixels(
    win: Windows2D, batch: int, channels: int, lanes: int, threads: int
) -> tuple[TaskSchedule, tuple[float, ...]]:
    """Tasks of some rows of results each, and the run-time arguments `PIXEL_ARGUMENTS`."""
    (oh, ow), stride, reach = win.out, win.strides[1], (win.kernel[1] - 1) * win.dilations[1]
    padded = up(channels, lanes)
    vectors = batch * oh * ow * (padded // lanes)
    nanoseconds = vectors * (win.taps * NS_PER_TAP + NS_PER_VECTOR) + 200.0
    wanted = tasks_wanted(nanoseconds, threads)
    # As many for each thread, for rows of windows take equally long.
    wanted = largest(wanted // threads * threads, smallest(wanted, threads))
    rows = even_blocks(oh, -(-wanted // batch))
    begin = smallest(-(-win.pads[1] // stride), ow)
    end = largest(smallest((win.width - 1 - reach + win.pads[1]) // stride + 1, ow), begin)
    sizes = PIXEL_ARGUMENTS.values(
        **_GRID.values(rows), block_channels=even_blocks(padded, -(-padded // BLOCK_CHANNELS), lanes).size,
        **window_values(win), channels=channels, inner_begin=begin, inner_end=end, weight_step=padded * 4,
    )  # fmt: skip
    return TaskSchedule.over((rows,), nanoseconds, batch), sizes


def windows_text(
    kind: str, prologue: list[str], lanes: int, rank: int, weights: str, factor: list[str],
    epilogue: Epilogue, recipe: Recipe | None = None,
) -> str:  # fmt: skip
    """Source of the kernel for windows of a `kind` that tiles compute.

    `factor` sets what sums are multiplied by, given `y`, `x0` and `pixels`. With a recipe, the epilogue's
    own, tiles finish their results themselves.
    """
    shapes = dict.fromkeys([*TILES, *((pixels, 1) for pixels, _ in TILES)])
    made = "".join(
        f"tile_{p}_{v} = make_pixel_tile({kind!r}, {p}, {v}, {lanes}, {recipe!r})\n" for p, v in shapes
    )
    lead = [
        *prologue,
        f"sums = stack_bytes({max(p * v for p, v in TILES) * lanes * 4})",
        f"ends = stack_bytes({EPILOGUE_BYTES})",
        f"inner_places = stack_bytes({MAX_TAPS * 16})",
        f"edge_lists = stack_bytes({_EDGES * MAX_TAPS * 16})",
        f"edge_taps = stack_bytes({_EDGES * 8})",
        "row_step, column_step = row_dilation * width * channels * 4, column_dilation * channels * 4",
        "factor = _types.float32(1.0)",
        *epilogue.kernel,
        *([] if recipe is None else [store_row_stride("ends", "channels")]),
        # Where the taps of a window lie from its start is the same in all rows of which as many are inside.
        "listed0, listed1, inner_taps = -1, -1, 0",
    ]
    row_axis, column_axis = (1, 2) if rank == 4 else (0, 1)
    target = "sums" if recipe is None else "ends"
    call = f"(source + c * 4, column_stride * channels * 4, places, taps, {weights}, factor, {target})"
    tiles = []
    for k, (n, wide) in enumerate(TILES):
        head = "else:" if k == len(TILES) - 1 else f"{'elif' if k else 'if'} pixels == {n}:"
        if wide == 1:
            tiles += [head, "    vectors = 1", f"    tile_{n}_1{call}"]
            continue
        tiles += [head, f"    if c1 - c >= {wide * lanes}:", f"        vectors = {wide}"]
        tiles += [f"        tile_{n}_{wide}{call}", "    else:", "        vectors = 1"]
        tiles += [f"        tile_{n}_1{call}"]
    store = [
        "for p in range(pixels):",
        f"i{column_axis}, tile = pixel + p, sums + (p * vectors + v) * {lanes * 4}",
        "start = (out_row * out_columns + pixel + p) * channels + c",
    ]
    finish = [
        "for v in range(vectors):",
        f"    first_column, columns = c, min({lanes}, c1 - c)",
        *indent(epilogue.store_tile(lanes, store)),
        f"    c += {lanes}",
    ]
    ends = ["start = (out_row * out_columns + pixel) * channels + c"]
    if recipe is not None:
        ends += store_epilogue(recipe, "ends", columns="c1 - c", pixels="pixels", first="c")
    channel_loop = [
        "c = c0",
        "while c < c1:",
        *indent([] if recipe is None else ends),
        *indent(tiles),
        *indent(finish if recipe is None else [f"c += vectors * {lanes}"]),
    ]
    pixel_loop = [
        "pixel = 0",
        "while pixel < out_columns:",
        "    x0 = pixel * column_stride - left",
        "    source = line + x0 * channels * 4",
        "    if pixel >= inner_begin and pixel < inner_end:",
        "        room = inner_end - pixel",
        "        pixels = 8 if room >= 8 else 4 if room >= 4 else 2 if room >= 2 else 1",
        "        places, taps = inner_places, inner_taps",
        "    else:",
        "        pixels = 1",
        "        edge = pixel if pixel < inner_begin else inner_begin + pixel - inner_end",
        f"        edge = min(edge, {_EDGES - 1})",
        f"        places = edge_lists + edge * {MAX_TAPS * 16}",
        "        taps = load_i64(edge_taps, edge)",
        f"        if taps < 0 or edge == {_EDGES - 1}:",
        "            b0 = first_tap(x0, column_dilation, kernel_columns, 0)",
        "            b1 = max(b0, first_tap(x0, column_dilation, kernel_columns, width))",
        "            taps = list_taps(places, a0, a1, b0, b1, kernel_columns, row_step, column_step,"
        " weight_step)",
        "            store_i64(edge_taps, edge, taps)",
        *indent(factor),
        *indent(channel_loop),
        "    pixel += pixels",
    ]
    task = [
        *_GRID.locate("image"),
        *(["i0 = image"] if rank == 4 else []),
        "c0 = 0",
        "while c0 < channels:",
        "    c1 = min(c0 + block_channels, channels)",
        "    for row in range(row0, row1):",
        f"        i{row_axis} = row" if rank == 4 else "        i0 = image",
        "        out_row = image * out_rows + row",
        "        y = row * row_stride - top",
        "        a0 = first_tap(y, row_dilation, kernel_rows, 0)",
        "        a1 = max(a0, first_tap(y, row_dilation, kernel_rows, height))",
        "        line = x + (image * height + y) * width * channels * 4",
        "        if a0 != listed0 or a1 != listed1:",
        "            listed0, listed1 = a0, a1",
        "            inner_taps = list_taps(inner_places, a0, a1, 0, kernel_columns, kernel_columns,"
        " row_step, column_step, weight_step)",
        f"            for edge in range({_EDGES}):",
        "                store_i64(edge_taps, edge, -1)",
        *indent(indent(pixel_loop)),
        "    c0 = c1",
    ]
    head = library_text("vectors", "epilogue", "nhwc_windows", helpers=_HELPERS)
    return kernel_text(head + made, lead, task)
