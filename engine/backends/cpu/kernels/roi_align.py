"""RoiAlign: means over the bins of regions, first along y, then along x.

A bin's mean is a weighted sum along y of weighted sums along x, whose weights are the same in all channels.
So for each row of bins, rows of pixels are added up as vectors, and bins are sums of elements of the result.
"""

from __future__ import annotations

from engine.backends.cpu.codegen.argument_block import ArgumentBlock
from engine.backends.cpu.codegen.cost import tasks_wanted
from engine.backends.cpu.codegen.epilogue import Epilogue, print_epilogue
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.backends.cpu.codegen.printer import indent, kernel_text, read_text
from engine.backends.cpu.codegen.schedule import TaskGrid, TaskSchedule, emit, even_blocks
from engine.backends.cpu.codegen.task_partition import up
from engine.backends.cpu.codegen.tiles import host_tile
from engine.backends.cpu.library import library_text
from engine.base.dtypes import FLOAT32
from engine.compiler.plan import Compute, Tuner
from engine.kernels.size import largest

MOST_BINS = 256
"""Bins of a region that a task has room for."""

BAND = 8192
"""Sums of pixels along y that a task has room for: rows of bins by columns of pixels."""

_NS_PER_BIN = 2.0
_NS_PER_CHANNEL = 50.0
_NS_PER_TASK = 1000.0

_VECTORS = 2

_GRID = TaskGrid(channel="channels")
_ARGUMENTS = ArgumentBlock(_GRID.arguments, "channels height width images bins padded across")

_HELPERS = """

@helper
def list_pixels(places, first, step, count, bins, size, pixels, shares):
    # Of bins `step` apart along an axis the pixels that are added up, and their shares. A sample outside the
    # image has no share in the pixels of another one of its bin; where there is none, pixels are -1.
    for b in range(count):
        inside = _types.int64(-1)
        for i in range({ratio}):
            place = load_f32(places, first + i * bins + b * step)
            at = (b * {ratio} + i) * 2
            low = min(max(to_int64(place), 0), size - 1)
            share = op_sub(place, to_float32(low))
            store_i64(pixels, at, low)
            store_i64(pixels, at + 1, min(low + 1, size - 1))
            store_f32(shares, at, op_sub(_types.float32(1.0), share))
            store_f32(shares, at + 1, share)
            if place >= 0.0:
                inside = at
        for i in range({ratio}):
            at = (b * {ratio} + i) * 2
            if load_f32(places, first + i * bins + b * step) < 0.0:
                for k in range(at, at + 2):
                    other = inside + k - at
                    store_i64(pixels, k, load_i64(pixels, other) if inside >= 0 else _types.int64(-1))
                    store_f32(shares, k, _types.float32(0.0))
"""


def tune_roi_align(compute: Compute, tuner: Tuner, threads: int) -> bool:
    """Rule for hints of kind "roi_align": float32."""
    (x, places, numbers), attributes = compute.operands, compute.attributes
    ratio, across = int(attributes["ratio"]), int(attributes["across"])
    regions, channels, bins = compute.space
    if {x.dtype, places.dtype} != {FLOAT32} or compute.body.dtype != "float32" or bins > MOST_BINS:
        return False
    epilogue = print_epilogue(compute, _ARGUMENTS.end)
    each = bins * ratio * _NS_PER_BIN + _NS_PER_CHANNEL
    wanted = tasks_wanted(regions * channels * each, threads)
    blocks = even_blocks(channels, -(-wanted // largest(regions, 1)))
    arguments = _ARGUMENTS.values(
        **_GRID.values(blocks), channels=channels, height=x.shape[2], width=x.shape[3], images=x.shape[0],
        bins=bins, padded=up(bins, host_tile().lanes), across=across,
    )  # fmt: skip
    kernel = NativeKernel("roi_align", regions_text(ratio, numbers.dtype.name, epilogue))
    schedule = TaskSchedule.over((blocks,), regions * channels * each, regions, _NS_PER_TASK)
    inputs = (x.name, places.name, numbers.name)
    return emit(tuner, kernel, schedule, arguments, inputs, compute.output.name, epilogue)


def regions_text(ratio: int, number: str, epilogue: Epilogue) -> str:
    """Source of the kernel, for `ratio` samples along each axis of a bin."""
    lanes, taps = host_tile().lanes, 2 * ratio
    wide = lanes * _VECTORS
    lists = [
        f"places_at = i0 * {taps} * bins",
        "list_pixels(places, places_at, across, down, bins, height, rows, row_shares)",
        f"list_pixels(places, places_at + {ratio} * bins, 1, across, bins, width, columns, column_shares)",
        "left, right = width, _types.int64(-1)",
        f"for k in range(across * {taps}):",
        "    if load_i64(columns, k) >= 0:",
        "        left, right = min(left, load_i64(columns, k)), max(right, load_i64(columns, k))",
        "span = right - left + 1",
        f"pitch = op_div(max(span, 0) + {wide - 1}, _types.int64({wide})) * {wide}",
        f"is_near = down * pitch <= {BAND}",
        f"for k in range(down * {taps}):",
        "    store_i64(offsets, k, (load_i64(rows, k) * width + left) * 4)",
        "for p in range(padded):",
        "    b = op_div(min(p, bins - 1), across)",
        "    a = min(p, bins - 1) - b * across",
        f"    for t in range({taps}):",
        f"        column = load_i64(columns, a * {taps} + t)",
        # Where no sample is inside, a 0 is read.
        "        place = b * pitch + column - left if column >= 0 else down * pitch",
        "        store_i32(at, t * padded + p, to_int32(place))",
        f"        store_f32(weights, t * padded + p, load_f32(column_shares, a * {taps} + t))",
    ]
    near = [
        "for b in range(down):",
        f"    if load_i64(rows, b * {taps}) < 0:",
        "        for k in range(pitch):",
        "            store_f32(band, b * pitch + k, _types.float32(0.0))",
        "    else:",
        f"        for k in range(0, span, {wide}):",
        f"            add_rows(plane + k * 4, offsets + b * {taps * 8}, row_shares + b * {taps * 4}, {taps},"
        " band + (b * pitch + k) * 4)",
        "store_f32(band, down * pitch, _types.float32(0.0))",
        "for p in range(padded):",
        "    total = _types.float32(0.0)",
        f"    for t in range({taps}):",
        "        pixel = load_f32(band, to_int64(load_i32(at, t * padded + p)))",
        "        total = op_add(total, op_mul(load_f32(weights, t * padded + p), pixel))",
        f"    store_f32(tile, p, op_div(total, _types.float32({ratio**2})))",
    ]
    far = [
        "for p in range(bins):",
        "    b = op_div(p, across)",
        f"    row, column, total = b * {taps}, (p - b * across) * {taps}, _types.float32(0.0)",
        "    if load_i64(rows, row) >= 0 and load_i64(columns, column) >= 0:",
        f"        for t in range({taps}):",
        f"            for u in range({taps}):",
        "                share = op_mul(load_f32(row_shares, row + t), load_f32(column_shares, column + u))",
        "                place = load_i64(rows, row + t) * width + load_i64(columns, column + u)",
        "                total = op_add(total, op_mul(share, load_f32(plane, place)))",
        f"    store_f32(tile, p, op_div(total, _types.float32({ratio**2})))",
    ]
    sizes = {
        "rows": 8, "columns": 8, "offsets": 8, "row_shares": 4, "column_shares": 4, "at": 4, "weights": 4
    }  # fmt: skip
    lead = [
        *_ARGUMENTS.prologue("x", "places", "numbers", epilogue=epilogue),
        *(f"{name} = stack_bytes({(MOST_BINS + lanes) * taps * size})" for name, size in sizes.items()),
        f"band = stack_bytes({(BAND + wide) * 4})",
        f"tile = stack_bytes({(MOST_BINS + lanes) * 4})",
        "down = op_div(bins, across)",
        "first_column, last_size = _types.int64(0), bins",
        *epilogue.kernel,
    ]
    task = [
        *_GRID.locate("i0"),
        *lists,
        f"image = min(max(to_int64({read_text(number, 'numbers', 'i0')}), 0), images - 1)",
        "for i1 in range(channel0, channel1):",
        "    plane = x + (image * channels + i1) * height * width * 4",
        "    if is_near:",
        *indent(indent(near)),
        "    else:",
        *indent(indent(far)),
        "    start = (i0 * channels + i1) * bins",
        *indent(epilogue.store_columns("bins")),
    ]
    made = f"add_rows = make_plane_tile('float32', 1, 4, 1, {lanes}, {_VECTORS})\n"
    made += _HELPERS.replace("{ratio}", str(ratio))
    return kernel_text(library_text("vectors", "matmul_tiles", "packed_elements") + made, lead, task)
