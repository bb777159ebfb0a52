"""NHWC convolutions of float32 over one or two axes, with constant weights, through a table of addresses.

The table has the address of the input channels for each tap of a pixel, so that strides, dilations, padding
(the address of a row of zeros) and the ends of rows cost the tiles nothing; taps that are padding for a whole
tile are skipped. A task fills a table for as many pixels as its memory holds, then computes all their output
channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import prod

from engine.backends.cpu.codegen.argument_block import ArgumentBlock
from engine.backends.cpu.codegen.epilogue import Epilogue, print_epilogue
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.backends.cpu.codegen.printer import indent, kernel_text
from engine.backends.cpu.codegen.schedule import Blocks, TaskGrid, TaskSchedule, emit
from engine.backends.cpu.codegen.task_partition import cut_tasks
from engine.backends.cpu.codegen.tiles import Tile, host_tile
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
from engine.backends.cpu.kernels.matmul.panels import SPREAD, emit_rows, rows_evict_each_other
from engine.backends.cpu.library import library_text
from engine.backends.windows import Windows2D, nhwc_windows
from engine.compiler.plan import Compute, Tuner
from engine.kernels.size import deferred

TABLE_WORDS = 8192
"""Addresses that a task has room for (64 KiB)."""

NS_PER_ADDRESS = 0.3
_NS_PER_TASK = 300.0

_NEAR_BYTES = 24 << 10
"""Input that leaves room for a panel of weights in the nearest cache."""

_FAR_BYTES = 512 << 10
"""Input that stays in the second cache beside the weights."""

_SMALL_WEIGHTS = 64 << 10
"""Weights, in bytes, that the whole of a layer's input comes before."""

_GRID = TaskGrid(m="m_size", pixel="pixels")
_ARGUMENTS = ArgumentBlock(
    "pixels m_size channels groups pixel_step",
    WINDOW_ARGUMENTS,
    _GRID.arguments,
    "room zeros_place group_weights ahead next_parts",
)

_HELPERS = """

@helper
def fill_table(table, step, x, zeros, first, count, height, width, pixel_bytes, out_height, out_width,
              kernel_rows, kernel_columns, row_stride, stride, row_dilation, dilation, top, left):
    # Where each tap of the pixels first..first+count-1 finds its channels; `zeros` outside and behind. Of
    # windows that are pooled, one pixel each.
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
                target = table + (tap * step + done * {window}) * 8
                source = column * stride + b * dilation - left
                if y < 0 or y >= height:
                    for k in range(length):
                        store_i64(target, k * {window}, zeros)
                elif source >= 0 and source + (length - 1) * stride < width:
                    source = start + source * pixel_bytes
                    for k in range(length):
                        store_i64(target, k * {window}, source + k * (stride * pixel_bytes))
                else:
                    for k in range(length):
                        j = source + k * stride
                        address = start + j * pixel_bytes
                        store_i64(target, k * {window}, address if (j >= 0 and j < width) else zeros)
                tap += 1
        done += length
        column = 0
        row += 1
        if row == out_height:
            row = 0
            image += 1
    for tap in range(kernel_rows * kernel_columns):
        for k in range(count, count + {rows} // {window}):
            store_i64(table, tap * step + k * {window}, zeros)
"""


@dataclass(frozen=True)
class NHWCConv:
    """A convolution that these kernels can compute: channels last, float32, known weights."""

    compute: Compute
    win: Windows2D
    group: int

    @property
    def pixels(self) -> int:
        """Results of one channel, the whole batch's."""
        return self.compute.space[0] * self.win.out[0] * self.win.out[1]

    @property
    def m(self) -> int:
        """Output channels of a group."""
        return self.compute.space[-1] // self.group

    @property
    def channels(self) -> int:
        """Input channels of a group."""
        return self.compute.operands[1].shape[1]

    @property
    def bytes_of_pixel(self) -> int:
        """Bytes of an input pixel."""
        return 4 * self.channels * self.group

    @property
    def depth(self) -> int:
        """Products of a sum."""
        return self.channels * self.win.taps

    def epilogue(self) -> Epilogue:
        """The epilogue over one pixel's channels."""
        return print_epilogue(self.compute, _ARGUMENTS.end, len(self.compute.space) - 1)

    def partition(
        self, rows: int, panels: int, groups: int, threads: int, tile_ns: float, panel_bytes: float
    ) -> TaskSchedule:
        """Partition into tasks by panels of weights and tiles of `rows` pixels, with these costs."""
        tiles = -(-self.pixels // rows)
        tile_bytes = float(self.bytes_of_pixel * rows)
        tasks, task_ns, across, wide, along, long = deferred(
            cut_tasks, tiles, panels, groups, threads, tile_ns, panel_bytes, tile_bytes, _NS_PER_TASK
        )
        return TaskSchedule(tasks, task_ns, (Blocks(across, wide), Blocks(along, long)))

    def padded_input(self, tuner: Tuner, tile: Tile) -> tuple[str, int]:
        """Pad the pixel stride if a tile's pixels evict each other; returns the buffer and the stride."""
        x, channels = self.compute.operands[0], self.channels * self.group
        if self.group > 1 or not rows_evict_each_other(self.compute, channels * self.win.strides[1]):
            return x.name, channels
        row = channels + SPREAD
        sizes = (1, self.compute.space[0] * prod(x.shape[1:-1]), channels)
        return emit_rows(tuner, x.name, sizes, (0, channels, 1), tile, row), row

    def sizes(
        self, schedule: TaskSchedule, rows: int, width: int, zeros_place: int, group_weights: int,
        pixel_step: int,
    ) -> tuple[float, ...]:  # fmt: skip
        """The arguments of a kernel with tiles of `rows` pixels and panels of `width` output channels.

        zeros_place: where zeros lie behind the weights, in elements; group_weights: elements of a group;
        pixel_step: elements from one pixel of the input to the next.
        """
        win, bytes_of_pixel, (panels, tiles) = self.win, self.bytes_of_pixel, schedule.blocks
        near = 4 * self.depth * width <= _NEAR_BYTES
        wanted = (_NEAR_BYTES if near else _FAR_BYTES) // bytes_of_pixel
        room = max(min(TABLE_WORDS // win.taps - rows, wanted) // rows, 1) * rows
        # Prefetched: an image's next pixels, if it is read once, and weights that are not in near caches.
        once = win.taps == 1 and win.strides == (1, 1) and bytes_of_pixel <= 2048
        return _ARGUMENTS.values(
            pixels=self.pixels, m_size=self.m, channels=self.channels, groups=self.group,
            pixel_step=pixel_step, **window_values(win),
            **_GRID.values(panels.times(width), tiles.times(rows)),
            room=room, zeros_place=zeros_place, group_weights=group_weights,
            ahead=rows * bytes_of_pixel if once else 0,
            next_parts=width * 4 // 64 if 4 * self.m * self.depth > _SMALL_WEIGHTS else 0,
        )  # fmt: skip


def nhwc_conv_of(compute: Compute, rows: int) -> NHWCConv | None:
    """The NHWC convolution of a hint, for tiles of the given pixels; None for other kinds."""
    win, attributes = nhwc_windows(compute), compute.attributes
    if win is None or attributes.get("x_first") or compute.operands[1].known is None:
        return None
    if not compute.is_float32 or win.taps * 2 * rows > TABLE_WORDS:
        return None
    return NHWCConv(compute, win, int(attributes["group"]))


def table_kernel(epilogue: Epilogue, makers: str, rows: int, sums: int, tiles: list[str]) -> str:
    """Source of a kernel: `makers` create tiles of at most `rows` pixels; `sums` are their elements.

    The statements `tiles` compute and store the pixels `first` to `first + count - 1` of the group's channels
    m0 to m1 - 1 from the group's `weights` and the table, whose taps lie `step` addresses apart.
    """
    side, shift = epilogue.pooled, 2 * (epilogue.pooled - 1)
    lead = [
        *_ARGUMENTS.prologue("x", "w", epilogue=epilogue),
        "taps = kernel_rows * kernel_columns",
        "depth = taps * channels",
        f"step = room + {rows}",
        "m_total = groups * m_size",
        "zeros = w + zeros_place * 4",
        f"table = stack_bytes({TABLE_WORDS * 8})",
        f"sums = stack_bytes({sums * 4})",
        *epilogue.kernel,
    ]
    task = [
        *_GRID.locate("group"),
        "weights = w + group * group_weights * 4",
        "source = x + group * channels * 4",
        "first = pixel0",
        "while first < pixel1:",
        "    count = min(room, pixel1 - first)",
        f"    for q in range({side * side}):",
        f"        windows, here = count >> {shift}, first >> {shift}",
        "        fill_table(table + q * 8, step, source, zeros, here, windows, height, width,"
        f" pixel_step * 4, out_rows >> {side - 1}, out_columns >> {side - 1}, kernel_rows, kernel_columns,"
        f" row_stride * {side}, column_stride * {side}, row_dilation, column_dilation,"
        f" top - (q >> 1) * row_stride, left - (q & 1) * column_stride)",
        *indent(tiles),
        "    first += room",
    ]
    helpers = _HELPERS.replace("{rows}", str(rows)).replace("{window}", str(side * side))
    return kernel_text(
        library_text("vectors", "epilogue", "conv_tiles", helpers=helpers) + makers, lead, task
    )


def tune_nhwc_conv(compute: Compute, tuner: Tuner, threads: int) -> bool:
    """Rule for hints of kind "conv" with channels_last: float32, one or two axes, known weights."""
    w, pooled = compute.operands[1], compute.attributes.get("pooled", 1)
    tile = panel_tile(host_tile(), w.shape[0] // int(compute.attributes["group"]), prod(w.shape[1:]), pooled)
    rows = pixel_rows(tile, pooled)[0]
    conv = nhwc_conv_of(compute, rows)
    if conv is None:
        return False
    elements = w.known
    assert elements is not None
    padded, panels = padded_channels(conv.m, tile), -(-conv.m // tile.width)
    # The last panel may be a slim one.
    width = padded / panels
    tile_ns = rows * (width * (2.0 * conv.depth / FLOPS_PER_NS + NS_PER_RESULT))
    tile_ns += rows * conv.win.taps * NS_PER_ADDRESS / panels
    schedule = conv.partition(rows, panels, conv.group, threads, tile_ns, 4.0 * conv.depth * width)
    epilogue = conv.epilogue()
    group, channels = conv.group, conv.channels
    weights = tuner.constant(
        f"{w.name}|pixels{tile.width}|{group}", partial(pack_weights, elements, group, tile, True, channels)
    )
    group_weights = padded * conv.depth
    read, step = conv.padded_input(tuner, tile)
    sizes = conv.sizes(schedule, rows, tile.width, conv.group * group_weights, group_weights, step)
    kernel = NativeKernel("nhwc_conv", nhwc_conv_text(tile, epilogue, len(compute.space)))
    return emit(tuner, kernel, schedule, sizes, (read, weights), compute.output.name, epilogue)


def nhwc_conv_text(tile: Tile, epilogue: Epilogue, rank: int) -> str:
    """Source of the kernel."""
    rows = pixel_rows(tile, epilogue.pooled)[0]

    def call(name: str) -> str:
        return f"{name}(places, step * 8, taps, channels, panel, sums, fetched, zeros)"

    # The first tiles of a panel prefetch the next panel.
    before = [
        "fetched = load_i64(places, 0) + ahead",
        f"if t < next_parts * {rows}:",
        f"    part = op_div(t, _types.int64({rows}))",
        f"    fetched = panel + depth * ({tile.width * 4} + part * 64)",
    ]
    makers = tile_makers(tile, "make_pixel_tile", True, epilogue)
    tiles = walk_tiles(tile, call, epilogue, rank, before)
    return table_kernel(epilogue, makers, rows, rows * tile.width, tiles)
