"""NCHW convolutions whose tiles read the planes where they are, without gathered windows.

In planes with their padding, the results of a whole plane are one run: a tap of neighbouring results reads
neighbouring elements, and what lies between the end of a row and the next one is computed and dropped. With
strides, a run is the results of a row, and the planes are staged so that a tap reads neighbours here, too. A
tile multiplies runs by a few output channels. Bytes are words of four neighbouring channels, interleaved
before. Windows of one element are taken where a tile has all output channels, and so reads planes once.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from engine.backends.cpu.codegen.argument_block import ArgumentBlock
from engine.backends.cpu.codegen.cost import tasks_wanted
from engine.backends.cpu.codegen.epilogue import Epilogue, print_epilogue
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.backends.cpu.codegen.printer import indent, kernel_text, read_text
from engine.backends.cpu.codegen.schedule import (
    Blocks,
    TaskGrid,
    TaskSchedule,
    TiledAxis,
    emit,
    partition_axes,
)
from engine.backends.cpu.codegen.task_partition import up
from engine.backends.cpu.codegen.tiles import AVX512, Tile, by_height
from engine.backends.cpu.kernels.convolution.nchw_staging import (
    Planes,
    input_shift,
    staged_planes,
    tap_offsets_text,
)
from engine.backends.cpu.kernels.matmul.packed_elements import (
    WordFormat,
    byte_shift,
    elements_of,
    emit_rows_of_words,
    known_zeros,
    pack_rows_of_words,
    word_type,
    zeros_of,
)
from engine.backends.cpu.library import library_text
from engine.backends.windows import Windows2D
from engine.compiler.plan import Compute, Tuner, storable
from engine.kernels.size import deferrable, deferred

_MOST_PLANES = {1: 8, 4: 64}
"""Planes, by elements of a word, whose neighbouring rows stay near; the windows of more are gathered."""

_FEW_OUTPUTS = 4
"""Output channels of windows of one element that are computed from long runs, reading planes once."""

_SUMS, _SUMS_AVX512 = 12, 24
"""Vectors of such sums that fit into registers."""

_MOST_VECTORS = 16

_MOST_DEPTH = 8192
"""Products of a sum that a task has room to note the places of."""

_RUN, _LEAST_RUN = 256, 64
"""Results of a channel that are computed before they are stored."""

_NEAR_BYTES = 20 << 10
"""Elements of planes that leave room for their results in the nearest cache."""

_RUNS_AT_ONCE = 8
"""Runs that are computed with the weights of a tile before those of the next."""

_NS_PER_ELEMENT = 0.2

_GRID = TaskGrid(m="m_size", row="out_rows", column="out_columns")
_ARGUMENTS = ArgumentBlock(
    "m_size groups planes out_rows out_columns lines_at_once at_once pitch shift plane_size length"
    " tap_row_step phase_step dilation stride kernel_rows kernel_columns last_size",
    _GRID.arguments,
)
_WORD_ARGUMENTS = ArgumentBlock("channels planes plane_size")

_DROP_GAPS = """

@helper
def drop_gaps(target, source, rows, count, step):
    for i in range(rows):
        for j in range(0, count, {lanes}):
            copy_run(target + (i * count + j) * 4, source + (i * step + j) * 4)
"""


def tune_direct_conv(compute: Compute, tuner: Tuner, win: Windows2D, words: WordFormat, threads: int) -> bool:
    """Emit the steps of a convolution; False for one that gains nothing by it."""
    x, w = compute.operands[:2]
    x_zero, w_zero = zeros_of(compute)
    in_bytes = words.form == "bytes"
    group, last_size = int(compute.attributes["group"]), win.out[1]
    batch, channels, m = x.shape[0], w.shape[1], w.shape[0] // group
    tile = words.tile
    reads_once = win.is_pointwise and words.elements == 1 and 0 < m <= _FEW_OUTPUTS
    if reads_once:
        tile, area = _long_tile(tile, m), win.height * win.width
        win = replace(win, height=1, width=area, out=(1, area))
    planes, size, pixels = words.count(channels), win.height * win.width, win.out[0] * win.out[1]
    depth, gap = planes * win.taps, (win.kernel[1] - 1) * win.dilations[1]
    is_dense = win.strides == (1, 1)
    if not reads_once and (win.taps == 1 or planes > _MOST_PLANES.get(words.elements, 0)):
        return False
    if depth > _MOST_DEPTH or 3 * planes * words.elements > 4 * channels:
        return False
    if in_bytes and known_zeros(w_zero, byte_shift(w.dtype, signed=True)).any():
        return False
    # Results that are dropped, and planes or rows that are shorter than a tile.
    if size < tile.width or pixels < tile.width:
        return False
    if is_dense:
        if win.out[0] > 1 and 4 * gap > win.out[1]:
            return False
    elif words.elements > 1 or win.out[1] < tile.width or 4 * up(win.out[1], tile.lanes) > 5 * win.out[1]:
        return False
    laid = staged_planes(tuner, x, x_zero, win, words)
    if in_bytes:
        laid = _interleave(tuner, laid, batch * group, channels, words)
        name = f"{w.name}|planes of {words.form}|{'' if w_zero is None else w_zero.name}"
        pack = partial(pack_rows_by_plane, elements_of(w), words)
        weights, pitch = tuner.constant(name, pack), (depth + 2) * words.size
    else:
        rows = emit_rows_of_words(tuner, w, (1, w.shape[0], depth), (0, depth, 1), words, w_zero)
        weights, pitch = rows.name, rows.row
    total = "to_int32(read_int32(tile, column) - row_total)" if in_bytes else ""
    epilogue = print_epilogue(compute, _ARGUMENTS.end, core=compute.body.dtype, total=total)
    nanoseconds = 2.0 * max(m, 2) * depth * words.elements * pixels / words.flops_per_ns
    nanoseconds += m * pixels * (epilogue.nanoseconds / 2 + 0.02)
    nanoseconds = batch * group * nanoseconds + 500.0
    is_plain = compute.epilogue is None and compute.output.dtype.name == words.form
    *blocks, lines, at_once = deferred(
        _cut, m, win.out, laid.row_step, words.size * (1 if reads_once else planes), tile, batch * group,
        is_plain, is_dense, nanoseconds, threads,
    )  # fmt: skip
    sizes = _ARGUMENTS.values(
        m_size=m, groups=group, planes=planes, out_rows=win.out[0], out_columns=win.out[1],
        lines_at_once=lines, at_once=at_once, pitch=pitch, shift=input_shift(words, x),
        plane_size=laid.plane_size, length=laid.row_step, tap_row_step=laid.tap_row_step,
        phase_step=laid.phase_step, dilation=laid.dilation, stride=laid.stride, kernel_rows=win.kernel[0],
        kernel_columns=win.kernel[1], last_size=last_size, **_GRID.values(*blocks),
    )  # fmt: skip
    zeros = [x_zero] if in_bytes and x_zero is not None else []
    heights = [m] if reads_once else [height for height in tile.heights if height <= max(m, 1)]
    text = direct_conv_text(words, tile, heights, epilogue, zeros[0].dtype.name if zeros else "", is_plain)
    schedule = TaskSchedule.over(tuple(blocks), nanoseconds, batch * group)
    inputs = (laid.name, weights, *(zero.name for zero in zeros))
    kernel = NativeKernel("direct_conv", text)
    return emit(tuner, kernel, schedule, sizes, inputs, compute.output.name, epilogue)


def _long_tile(tile: Tile, m: int) -> Tile:
    """A tile of all `m` output channels."""
    sums = _SUMS_AVX512 if tile.row_choices == AVX512.row_choices else _SUMS
    return replace(tile, vectors=min(_MOST_VECTORS, sums // m), row_choices=(m,))


@deferrable
def _cut(
    m: int, out: tuple[int, int], length: int, near: int, tile: Tile, outer: int, is_plain: bool,
    is_dense: bool, nanoseconds: float, threads: int,
) -> tuple[Blocks, Blocks, Blocks, int, int]:  # fmt: skip
    """Blocks of output channels, rows and columns, and the rows and columns that are computed together.

    near: the bytes of a position in all planes.
    """
    fitting = max(_LEAST_RUN, _NEAR_BYTES // near // tile.width * tile.width)
    run, height = min(_RUN, fitting), min(tile.heights[0], up(m, 2))
    rows = TiledAxis(out[0], max(1, out[0]), 1, min(out[0], -(-run // length)))
    columns = TiledAxis(out[1], max(1, out[1]), tile.width, run)
    channels = TiledAxis.of_tiles(m, up(m, height), height)
    wanted = tasks_wanted(nanoseconds, threads)
    # A row of results is divided last: short pieces of many channels lie in as many pages.
    row, channel, column = partition_axes([rows, channels, columns], outer, wanted)
    # Whole tiles of a row leave no gaps to be dropped.
    is_filled = 25 * up(out[1], tile.width) <= 26 * length
    lines = 1 if column.count > 1 or is_filled or not is_dense else max(1, run // length)
    # Results that are sums are stored at once.
    return channel, row, column, lines, fitting if is_plain and lines == 1 else run


@storable
def pack_rows_by_plane(elements: np.ndarray, words: WordFormat) -> np.ndarray:
    """(M, C, *kernel) bytes as rows of words over (plane, tap), whose elements are neighbouring channels."""
    m, channels = elements.shape[:2]
    planes = words.count(channels)
    # What becomes 0 as a signed byte.
    zero = -byte_shift(elements.dtype, signed=True)
    padded = np.full((m, planes * words.elements, elements[0, 0].size), zero, elements.dtype)
    padded[:, :channels] = elements.reshape(m, channels, -1)
    order = padded.reshape(m, planes, words.elements, -1).swapaxes(2, 3)
    return pack_rows_of_words(order, m, words, np.zeros(1, np.int32), 0)


def _interleave(tuner: Tuner, laid: Planes, images: int, channels: int, words: WordFormat) -> Planes:
    """A step that makes planes of words from the staged bytes of groups of channels."""
    planes, lanes = words.count(channels), words.tile.lanes
    made = tuner.temporary(images * planes * laid.plane_size, word_type(words))
    arguments = _WORD_ARGUMENTS.values(channels=channels, planes=planes, plane_size=laid.plane_size)
    body = [
        *_WORD_ARGUMENTS.prologue("out", "x"),
        "for plane in range(begin, end):",
        "    image = op_div(plane, planes)",
        f"    channel = (plane - image * planes) * {words.elements}",
        "    a = x + (image * channels + channel) * plane_size",
        # Weights of 0 meet the channels that are not there.
        *(
            f"    {name} = a + {k} * plane_size if channel + {k} < channels else a"
            for k, name in enumerate("bcd", 1)
        ),
        f"    for done in range(0, plane_size, {lanes}):",
        f"        at = min(done, plane_size - {lanes})",
        "        copy_words(out + (plane * plane_size + at) * 4, a + at, b + at, c + at, d + at, 0)",
    ]
    maker = f"copy_words = make_interleave({words.elements}, 8, {lanes})\n"
    text = kernel_text(library_text("vectors", "matmul_tiles", "packed_elements") + maker, body)
    schedule = TaskSchedule(images * planes, laid.plane_size * _NS_PER_ELEMENT)
    emit(tuner, NativeKernel("channel_words", text), schedule, arguments, (laid.name,), made)
    return replace(laid, name=made)


def direct_conv_text(
    words: WordFormat, tile: Tile, heights: list[int], epilogue: Epilogue, x_zero: str, is_plain: bool
) -> str:
    """Source of the kernel.

    x_zero: the type of the input's zero point, for bytes. is_plain: whether sums are results as they are.
    """
    size, in_bytes = words.size, words.form == "bytes"
    # Rows of sums have room for a tile that moves back from the end of a plane.
    head, row = tile.width, _RUN + 2 * tile.width

    def product(height: int) -> list[str]:
        def tile_at(name: str, width: int) -> list[str]:
            return [
                f"at = max(min(j, span - {width}), -origin)",
                f"{name}(left, pitch, source + (origin + at) * {size}, offsets, depth, target + at * {size},"
                " target_row)",
            ]

        columns = tile_at(f"tile_of_{height}", tile.width)
        if height == heights[0]:
            narrow = tile_at("narrow_tile", tile.lanes)
            columns = [f"if span - j > {tile.lanes}:", *indent(columns), "else:", *indent(narrow)]
        return [f"for j in range(0, span, {tile.width}):", *indent(columns)]

    start = "(image * m_size + m) * out_rows * out_columns + y * out_columns + first"
    at_once = [
        f"is_whole = span >= {tile.width} and (lines == 1 or length == count)",
        "if is_whole:",
        f"    target, target_row = out + ({start}) * {size}, out_rows * out_columns * {size}",
    ]
    store = [
        f"for i in range({'0 if is_whole else ' if is_plain else ''}rows):",
        "    i1 = group * m_size + m + i",
        *(["    row_total = to_int32(x_zero * load_i32(w + i1 * pitch, depth))"] if in_bytes else []),
        f"    tile = sums + (i * {row} + {head}) * {size}",
        "    if lines > 1 and length != count:",
        f"        drop_gaps(packed, tile, lines, count * {size // 4}, length * {size // 4})",
        "        tile = packed",
        "    columns, first_column = lines * count, y * out_columns + first",
        "    start = (image * m_size + m + i) * out_rows * out_columns + first_column",
        *indent(epilogue.store),
    ]
    run = [
        "lines, origin = min(lines_at_once, last_line - y), y * length + first",
        "span = (lines - 1) * length + count",
        f"target, target_row = sums + {head * size}, {row * size}",
        *(at_once if is_plain else []),
        *by_height(heights, "remaining", product),
        *store,
        "y += lines",
    ]
    block = [
        "count = min(at_once, column1 - first)",
        "m = m0",
        "while m < m1:",
        "    left, remaining = w + (group * m_size + m) * pitch, m1 - m",
        "    y, rows = line, 0",
        "    while y < last_line:",
        *indent(indent(run)),
        "    m += rows",
        "first += count",
    ]
    zero = f"{read_text(x_zero, 'x_zeros', '0')} + shift" if x_zero else "shift"
    lead = [
        *_ARGUMENTS.prologue("x", "w", *(["x_zeros"] if x_zero else []), epilogue=epilogue),
        *([f"x_zero = to_int32({zero})"] if in_bytes else []),
        "taps = kernel_rows * kernel_columns",
        "depth = planes * taps",
        f"offsets = stack_bytes({_MOST_DEPTH * 8})",
        f"sums = stack_bytes({(tile.heights[0] * row + head) * size})",
        f"packed = stack_bytes({row * size})",
        "for k in range(planes):",
        "    tap_offsets(offsets + k * taps * 8, k * plane_size, kernel_rows, kernel_columns, tap_row_step,"
        " phase_step, dilation, stride)",
        *epilogue.kernel,
    ]
    task = [
        *_GRID.locate("image"),
        "i0 = op_div(image, groups)",
        "group = image - i0 * groups",
        f"source = x + image * planes * plane_size * {size}",
        "line = row0",
        "while line < row1:",
        f"    last_line, first = min(line + {_RUNS_AT_ONCE} * lines_at_once, row1), column0",
        "    while first < column1:",
        *indent(indent(block)),
        "    line = last_line",
    ]
    library = library_text("vectors", "matmul_tiles", "packed_elements")
    arguments = f"{tile.lanes}, {words.multiplied_as(True)!r}"
    makers = [(f"tile_of_{rows}", rows, tile.vectors) for rows in heights] + [("narrow_tile", heights[0], 1)]
    tiles = "".join(f"{name} = make_offset_tile({rows}, {n}, {arguments})\n" for name, rows, n in makers)
    helpers = f"copy_run = make_copy_run(1, {tile.lanes})\n" + _DROP_GAPS.replace("{lanes}", str(tile.lanes))
    return kernel_text(library + tiles + helpers + tap_offsets_text(size), lead, task)
