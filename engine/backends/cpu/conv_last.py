"""Convolutions of float32 over one or two axes whose channels lie last, with known weights.

A table of addresses tells where each tap of each pixel finds its channels, so that strides, dilations,
padding (the address of a row of zeros) and the ends of rows cost the tiles nothing.
"""

from __future__ import annotations

from engine.backends.cpu.epilogue import Epilogue, is_float32_core, print_epilogue
from engine.backends.cpu.library import library_text
from engine.backends.cpu.native_kernel import NativeKernel
from engine.backends.cpu.pixel_tiles import (
    cut_tiles,
    pack_weights,
    padded_channels,
    pixel_rows,
    tile_makers,
    walk_tiles,
)
from engine.backends.cpu.planes import Windows
from engine.backends.cpu.printer import indent, kernel_text
from engine.backends.cpu.tiles import Tile, host_tile
from engine.compiler.plan import Compute, Tuner

_TABLE_WORDS = 8192
"""Addresses that a task has room for (64 KiB)."""

_NEAR_BYTES = 24 << 10
"""Input that leaves room for a panel of weights in the nearest cache."""

_L2_BYTES = 512 << 10

_NS_PER_ADDRESS = 0.3

_WORDS = (
    "pixels m_size channels groups height width out_height out_width kernel_rows kernel_columns row_stride"
    " stride row_dilation dilation top left panel_blocks block_panels pixel_blocks block_pixels room"
    " zeros_place group_weights"
).split()
_FIRST_WORD = 2

_TABLE = """

@helper
def lay_table(table, step, x, zeros, first, count, height, width, pixel_bytes, out_height, out_width,
              kernel_rows, kernel_columns, row_stride, stride, row_dilation, dilation, top, left):
    # Where each tap of the pixels first..first+count-1 finds its channels; `zeros` outside and behind.
    image = op_div(first, out_height * out_width)
    at = first - image * out_height * out_width
    row = op_div(at, out_width)
    column = at - row * out_width
    done = 0
    while done < count:
        length = min(out_width - column, count - done)
        tap = 0
        for a in range(kernel_rows):
            y = row * row_stride + a * row_dilation - top
            start = x + (image * height + y) * width * pixel_bytes
            for b in range(kernel_columns):
                target = table + (tap * step + done) * 8
                source = column * stride + b * dilation - left
                if y < 0 or y >= height:
                    for k in range(length):
                        store_i64(target, k, zeros)
                elif source >= 0 and source + (length - 1) * stride < width:
                    source = start + source * pixel_bytes
                    for k in range(length):
                        store_i64(target, k, source + k * (stride * pixel_bytes))
                else:
                    for k in range(length):
                        j = source + k * stride
                        address = start + j * pixel_bytes
                        store_i64(target, k, address if (j >= 0 and j < width) else zeros)
                tap += 1
        done += length
        column = 0
        row += 1
        if row == out_height:
            row = 0
            image += 1
    for tap in range(kernel_rows * kernel_columns):
        for k in range(count, count + {rows}):
            store_i64(table, tap * step + k, zeros)
"""


def tune_conv_last(compute: Compute, tuner: Tuner, threads: int) -> bool:
    """Rule for hints of kind "conv" with channels_last: float32, one or two axes, known weights."""
    assert compute.hint is not None
    facts, (x, w) = compute.hint.facts, compute.hint.operands
    win = windows_last(compute)
    tile = host_tile()
    rows = pixel_rows(tile)[0]
    if win is None or facts.get("x_first") or w.known is None or not is_float32_core(compute):
        return False
    if win.taps * 2 * rows > _TABLE_WORDS:
        return False
    group = int(facts["group"])
    pixels = x.shape[0] * win.out[0] * win.out[1]
    m, channels = w.shape[0] // group, w.shape[1]
    depth = channels * win.taps
    epilogue = print_epilogue(compute, _FIRST_WORD + len(_WORDS), len(compute.space) - 1)
    elements = w.known
    weights = tuner.constant(
        f"{w.name}|pixels{tile.width}|{group}", lambda: pack_weights(elements, group, tile, True, channels)
    )
    cut = cut_tiles(pixels, m, depth, group, tile, threads, win.taps * _NS_PER_ADDRESS)
    group_weights = padded_channels(m, tile) * depth
    sizes = (
        pixels, m, channels, group, win.height, win.width, *win.out, *win.kernel, *win.strides,
        *win.dilations, *win.pads, cut.panel_blocks, cut.panels, cut.pixel_blocks, cut.pixels,
        _room(win.taps, channels * group, depth, tile), group * group_weights, group_weights,
    )  # fmt: skip
    tasks = group * cut.tasks
    values = (cut.nanoseconds / tasks, *sizes, *epilogue.values)
    kernel = NativeKernel("conv_last", conv_last_text(tile, epilogue, len(compute.space)))
    tuner.emit(kernel, (tasks,), values, (*epilogue.inputs, x.name, weights), compute.output.name)
    return True


def windows_last(compute: Compute) -> Windows | None:
    """The windows of a hinted convolution with channels last over one or two axes; None for other ranks."""
    assert compute.hint is not None
    facts, (x, w) = compute.hint.facts, compute.hint.operands
    spatial = x.shape[2:] if facts.get("x_first") else x.shape[1:-1]
    out, kernel = compute.space[1:-1], w.shape[2:]
    if len(spatial) not in (1, 2) or len(out) != len(spatial) or len(kernel) != len(spatial):
        return None

    def two(numbers: object, default: int) -> tuple[int, int]:
        items = [int(n) for n in numbers]  # type: ignore[attr-defined]
        first, second = items if len(items) == 2 else (default, items[0])
        return first, second

    height, width = two(spatial, 1)
    return Windows(
        height, width, two(kernel, 1), two(facts["strides"], 1), two(facts["dilations"], 1),
        two(facts["pads"], 0), two(out, 1),
    )  # fmt: skip


def _room(taps: int, channels: int, depth: int, tile: Tile) -> int:
    """How many pixels to work on at a time, whole tiles: their input should stay in cache for all panels."""
    rows = pixel_rows(tile)[0]
    near = 4 * depth * tile.width <= _NEAR_BYTES
    wanted = (_NEAR_BYTES if near else _L2_BYTES) // (4 * channels)
    return max(min(_TABLE_WORDS // taps - rows, wanted) // rows, 1) * rows


def conv_last_text(tile: Tile, epilogue: Epilogue, rank: int) -> str:
    """The kernel's module."""
    position = _FIRST_WORD + len(_WORDS) + epilogue.words
    rows = pixel_rows(tile)[0]

    def call(name: str) -> str:
        return f"{name}(places, step * 8, taps, channels, panel, sums)"

    body = [
        *(f"{name} = arg_i64(args, {_FIRST_WORD + k})" for k, name in enumerate(_WORDS)),
        *epilogue.arguments,
        f"x = arg_i64(args, {position})",
        f"w = arg_i64(args, {position + 1})",
        "taps = kernel_rows * kernel_columns",
        "depth = taps * channels",
        f"step = room + {rows}",
        "m_total = groups * m_size",
        f"table = stack_bytes({_TABLE_WORDS * 8})",
        f"sums = stack_bytes({rows * tile.width * 4})",
        *epilogue.kernel,
        "for task in range(begin, end):",
        *indent(
            [
                "panel_block = op_div(task, pixel_blocks)",
                "pixel_block = task - panel_block * pixel_blocks",
                "group = op_div(panel_block, panel_blocks)",
                f"m0 = (panel_block - group * panel_blocks) * block_panels * {tile.width}",
                f"m1 = min(m0 + block_panels * {tile.width}, m_size)",
                "weights = w + group * group_weights * 4",
                "source = x + group * channels * 4",
                "first = pixel_block * block_pixels",
                "end_pixel = min(first + block_pixels, pixels)",
                "while first < end_pixel:",
                "    count = min(room, end_pixel - first)",
                "    lay_table(table, step, source, w + zeros_place * 4, first, count, height, width,"
                " groups * channels * 4, out_height, out_width, kernel_rows, kernel_columns, row_stride,"
                " stride, row_dilation, dilation, top, left)",
                *indent(walk_tiles(tile, call, epilogue, rank)),
                "    first += room",
            ]
        ),
    ]
    makers = tile_makers(tile, "make_pixel_tile", True)
    return kernel_text(library_text("vectors", "gemm") + makers + _TABLE.replace("{rows}", str(rows)), body)
