"""NCHW windows: pooling, depthwise convolution, and convolution with narrow groups of float32.

The planes of a group are staged with their padding, so that a tap of neighbouring windows is a run. Where a
word has several elements, nothing is gathered either: a vector of words that starts one element later holds
the next windows, so there are as many vectors of sums as a word has elements, and their elements are
interleaved at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from engine.backends.cpu.codegen.argument_block import ArgumentBlock
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
from engine.backends.cpu.codegen.tiles import MAX_TAPS, host_tile
from engine.backends.cpu.kernels.convolution.nchw_staging import (
    SLACK,
    Staging,
    input_shift,
    staging_of,
    staging_text,
    tap_offsets_text,
    zero_text,
)
from engine.backends.cpu.kernels.convolution.window_arguments import (
    COUNT_TAPS,
    WINDOW_ARGUMENTS,
    window_values,
)
from engine.backends.cpu.kernels.matmul.packed_elements import (
    WordFormat,
    byte_shift,
    elements_of,
    emit_rows_of_words,
    known_zeros,
    signed_bytes,
    words_of_bytes,
    zeros_of,
)
from engine.backends.cpu.library import library_text
from engine.backends.windows import Windows2D, counted_sides, windows_first
from engine.compiler.plan import Compute, Tuner, storable
from engine.kernels.size import deferrable, deferred

_VECTORS = {4: (8, 4, 1), 8: (8, 4, 1), 16: (4, 1)}
"""Vectors of float32 results at a time, by lanes: as many of wide ones as read no further than `SLACK`."""

_ROW_TILES = {4: ((2, 4), (4, 2)), 8: ((2, 4), (4, 2)), 16: ((4, 4), (4, 2))}
"""By lanes, how many rows of results share the rows that they read, and of how many vectors each."""

_TALL = 4
"""Rows of a window that are worth sharing."""

_MOST_OUTPUTS = 15
"""Outputs of a group of several inputs: more of them are worth gathering the words of a column for all."""

_SUMS = 2048
"""Results held at a time, in words."""

_NEAR_ELEMENTS = 6144
"""Staged elements that leave room for their results in the nearest cache."""

_MOST_ELEMENTS = 16384
"""Staged elements that a task has room for, where windows reach far."""

_LONG_ROW = 48
"""Results that a row needs to be stored by itself, and to be worth a gap behind it."""

_NS_PER_VECTOR = 1.0
_NS_PER_TAP = 0.05
_NS_PER_OUTPUT = 0.2
_NS_PER_STAGED = 0.1

_GRID = TaskGrid(row="out_rows")
_ARGUMENTS = ArgumentBlock(
    _GRID.arguments,
    WINDOW_ARGUMENTS,
    "channels group_inputs group_outputs input_size",
    "last_size columns_at_once in_place tap_columns tap_step tap_row_step row_step",
    "staged_stride stride phases step reach_rows advance length region",
)
_CONV_ARGUMENTS = ArgumentBlock(_ARGUMENTS, "pitch shift")
_POOL_ARGUMENTS = ArgumentBlock(_ARGUMENTS, "count_top count_bottom count_left count_right")


class PlanePartition(NamedTuple):
    """Tasks by rows of a plane, the values of `_ARGUMENTS`, and the nanoseconds of staging a group."""

    rows: Blocks
    sizes: tuple[float, ...]
    nanoseconds: float


@deferrable
def cut_planes(
    win: Windows2D, elements: int, images: int, groups: int, inputs: int, outputs: int, threads: int
) -> PlanePartition | None:
    """Bands that fit a task's memory; None if none do.

    images, groups: a task computes rows of a group's planes of an image. inputs, outputs: the planes of one.
    """
    (kh, kw), (sh, sw), (dh, dw), (oh, ow) = win.kernel, win.strides, win.dilations, win.out
    in_place = elements == 1 and win.reads_in_place
    staging = staging_of(win) if elements == 1 else Staging(1, sh, kh - 1, 1, 1, sw, kw - 1)
    if staging.stride > 1 and ow >= _LONG_ROW:
        # Aligned runs, of which most taps read vectors within a cache line.
        staging = replace(staging, grain=host_tile().lanes)
    column = TiledAxis(ow, max(1, min(ow, _SUMS)))
    at_once = _SUMS // (win.width if in_place else staging.length(column.block))

    def staged(row: TiledAxis, column: TiledAxis) -> int:
        if in_place:
            return 0 if inputs == 1 else inputs * row.block * win.width
        return inputs * staging.size(row.block, column.block)

    (row,) = halve(
        [TiledAxis(oh, max(1, min(oh, at_once)))], lambda row: staged(row, column) > _NEAR_ELEMENTS
    )
    (column,) = halve([column], lambda column: staged(row, column) > _MOST_ELEMENTS)
    if staged(row, column) > _MOST_ELEMENTS or inputs * win.taps > MAX_TAPS:
        return None
    (rows,) = partition_axes([TiledAxis(oh, row.block, 1, 8)], images * groups, 2 * threads)
    columns, line = column.block, win.width if in_place else staging.length(column.block)
    sizes = _ARGUMENTS.values(
        **_GRID.values(rows), **window_values(win), channels=groups * outputs, group_inputs=inputs,
        group_outputs=outputs,
        input_size=win.height * win.width if in_place else staging.size(rows.size, columns),
        last_size=ow, columns_at_once=columns,
        in_place=int(in_place), tap_columns=-(-kw // elements), tap_step=dw if elements == 1 else elements,
        tap_row_step=dh * line, row_step=(sh if in_place else staging.step) * line,
        staged_stride=staging.row_stride, stride=staging.stride, phases=staging.phases, step=staging.step,
        reach_rows=staging.reach_rows, advance=staging.advance, length=line,
        region=staging.region(rows.size, columns),
    )  # fmt: skip
    return PlanePartition(rows, sizes, 0.0 if in_place else inputs * win.height * win.width * _NS_PER_STAGED)


def tune_plane_conv(compute: Compute, tuner: Tuner, win: Windows2D, words: WordFormat, threads: int) -> bool:
    """Emit the steps of a depthwise convolution, or one with narrow groups; False for any other."""
    x, w = compute.operands[:2]
    x_zero, w_zero = zeros_of(compute)
    (kh, kw), sw, outputs = win.kernel, win.strides[1], win.out[0] * win.out[1]
    if words.form == "bytes" and known_zeros(w_zero, byte_shift(w.dtype, signed=True)).any():
        # Wider elements hold weights less their zero points.
        words = words_of_bytes()
    in_words, in_bytes = words.elements > 1, words.form == "bytes"
    if in_words and (words.elements % sw or win.dilations != (1, 1)):
        return False
    group, (channels, inputs) = int(compute.attributes["group"]), w.shape[:2]
    group_outputs = channels // group
    if inputs > 1 and (words.form != "float32" or group_outputs > _MOST_OUTPUTS):
        return False
    rows, columns = inputs * kh, words.count(kw)
    is_known = w.known is not None and (w_zero is None or w_zero.known is not None)
    if in_words and not is_known and (in_bytes or (w_zero is not None and w_zero.size > 1)):
        return False
    batch = x.shape[0]
    partition = deferred(cut_planes, win, words.elements, batch, group, inputs, group_outputs, threads)
    if partition is None:
        return False
    if in_words and is_known:
        name = f"{w.name}|taps of {words.form}|{'' if w_zero is None else w_zero.name}"
        pack = partial(pack_taps_of_words, elements_of(w), words, known_zeros(w_zero, 0))
        weights = tuner.constant(name, pack)
    else:
        sizes, strides = (1, channels * rows, kw), (0, kw, 1)
        weights = emit_rows_of_words(tuner, w, sizes, strides, words, w_zero).name
    total = "to_int32(read_int32(tile, column) - row_total)" if in_bytes else ""
    epilogue = print_epilogue(compute, _CONV_ARGUMENTS.end, core=compute.body.dtype, total=total)
    nanoseconds = outputs * rows * columns * _NS_PER_VECTOR / words.tile.lanes
    nanoseconds += outputs * (epilogue.nanoseconds / 2 + 0.1) + 30.0
    nanoseconds = group_outputs * nanoseconds + partition.nanoseconds
    pitch = (rows * columns + in_bytes) * words.size
    arguments = _CONV_ARGUMENTS.values(
        **_ARGUMENTS.named(partition.sizes), pitch=pitch, shift=input_shift(words, x)
    )  # fmt: skip
    zero = [x_zero] if in_words and x_zero is not None else []
    by_rows = words.form == "float32" and kh >= _TALL and win.strides[0] == win.dilations[0] == 1
    text = plane_conv_text(
        words, x.dtype.name, sw if in_words else 1, epilogue, zero[0].dtype.name if zero else "", by_rows
    )
    kernel, names = NativeKernel("plane_conv", text), (x.name, weights, *(z.name for z in zero))
    schedule = TaskSchedule.over((partition.rows,), batch * group * nanoseconds, batch * group)
    return emit(tuner, kernel, schedule, arguments, names, compute.output.name, epilogue)


@storable
def pack_taps_of_words(elements: np.ndarray, words: WordFormat, zeros: np.ndarray) -> np.ndarray:
    """(C, 1, kh, kw) weights as words along the rows of a window, of bytes followed by their sum."""
    channels, kw = elements.shape[0], elements.shape[-1]
    rows = elements.reshape(channels, -1, kw)
    if words.form == "bytes":
        numbers = signed_bytes(np.ascontiguousarray(rows)).astype(np.int32)
    else:
        numbers = rows.astype(np.int32) - zeros.astype(np.int32).reshape(-1, 1, 1)
    padded = np.zeros((*rows.shape[:2], words.count(kw) * words.elements), np.dtype(f"i{words.element_size}"))
    padded[..., :kw] = numbers
    taps = padded.reshape(channels, -1).view(np.int32)
    if words.form != "bytes":
        return taps.reshape(-1)
    return np.concatenate([taps, numbers.sum(axis=(1, 2), dtype=np.int32)[:, None]], axis=1).reshape(-1)


def plane_conv_text(
    words: WordFormat, dtype: str, stride: int, epilogue: Epilogue, x_zero: str, by_rows: bool
) -> str:
    """Source of the kernel for inputs of type `dtype`. x_zero: the zero point's type, if any.

    by_rows: whether windows are tall, and neighbouring rows of them as far apart as their own rows.
    """
    lanes, in_bytes = words.tile.lanes, words.form == "bytes"
    lead = [
        *_CONV_ARGUMENTS.prologue("x", "w", *(["zeros"] if x_zero else []), epilogue=epilogue),
        *zero_text(words, x_zero),
    ]
    plane = [
        "weights = w + i1 * pitch",
        *(["row_total = to_int32(to_int32(filling) * load_i32(weights, taps))"] if in_bytes else []),
    ]
    call = "(at, offsets, weights, taps, target)"
    made = f"{words.multiplied_as(True)!r}, {words.elements}, {words.element_size}, {stride}, {lanes}"
    vectors = _VECTORS[lanes] if words.form == "float32" else (1,)
    tiles = "".join(f"tile_{n} = make_plane_tile({made}, {n})\n" for n in vectors)
    calls = {n * words.elements // stride * lanes: f"tile_{n}{call}" for n in vectors}
    row_tiles = _ROW_TILES[lanes] if by_rows else ()
    tiles += "".join(f"rows_{n} = make_row_tile({rows}, {n}, {lanes})\n" for rows, n in row_tiles)
    return _text(words, dtype, lead, plane, tiles, calls, row_tiles, [], epilogue)


def _text(
    words: WordFormat, dtype: str, lead: Sequence[str], plane: Sequence[str], tiles: str,
    calls: dict[int, str], row_tiles: Sequence[tuple[int, int]], after: Sequence[str], epilogue: Epilogue,
) -> str:  # fmt: skip
    """The module of a kernel over planes of the type `dtype`, staged as elements of words.

    calls: by how many results it computes, what fills `target` from the windows at `at`, the widest first.
    row_tiles: the tiles of several rows that there are, as in `_ROW_TILES`.
    plane: statements for each plane. after: statements that change the results in `tile`, `rows` rows of
    `count` each, `tile_row` apart, from `row0` and `first` on.
    """
    element, size, widest, narrowest = words.element_size, words.size, max(calls), min(calls)
    step = [calls[narrowest], f"j += {narrowest}"]
    for below, count in pairwise(sorted(calls)):
        wide = [f"    {calls[count]}", f"    j += {count}"]
        step = [f"if span - j > {below}:", *wide, "else:", *indent(step)]
    # Vectors run on over the ends of short rows that lie close together.
    is_joined = words.form == "float32"
    join = [
        f"if rows > 1 and row_step - count < {narrowest} and rows * row_step <= {_SUMS}:",
        "    span, lines, tile_row = (rows - 1) * row_step + count, 1, row_step",
    ]
    pack = [
        f"if tile_row != count and count < {_LONG_ROW}:",
        "    tile, tile_row = packed, count",
        "    for i in range(rows):",
        f"        for j in range(0, count, {narrowest}):",
        "            copy_run(tile + (i * count + j) * 4, sums + (i * row_step + j) * 4)",
    ]
    sums = [
        *(join if is_joined else []),
        "for i in range(lines):",
        "    j = 0",
        # What a run writes too far, the next row overwrites.
        "    while j < span:",
        f"        at = source + (i * row_step + j * advance) * {element}",
        f"        target = sums + (i * span + j) * {size}",
        *indent(indent(step)),
        *(pack if is_joined else []),
    ]
    for at_once, vectors in reversed(row_tiles):
        columns = vectors * words.tile.lanes
        sums = [
            f"if rows >= {at_once} and count > {columns // 2}:",
            f"    for i in range(0, rows, {at_once}):",
            f"        row = min(i, rows - {at_once})",
            f"        for j in range(0, count, {columns}):",
            # A row's last tile overlaps the one before it, and so only a single one writes too far.
            f"            first_place = max(min(j, count - {columns}), 0)",
            "            at = source + (row * row_step + first_place * advance) * 4",
            "            target = sums + (row * count + first_place) * 4",
            f"            rows_{vectors}(at, row_step * 4, offsets, weights, kernel_rows, tap_columns,"
            " group_inputs, input_size * 4, target, count * 4)",
            "else:",
            *indent(sums),
        ]
    results = [
        "plane = group * group_outputs + output",
        "i0 = op_div(plane, channels)",
        "i1 = plane - i0 * channels",
        *plane,
        "tile, span, lines, tile_row = sums, count, rows, count",
        *sums,
        *after,
        "runs, columns = 1, rows * count",
        "if count != last_size or tile_row != count:",
        "    runs, columns = rows, count",
        "for run in range(runs):",
        "    first_column = (row0 + run) * last_size + first",
        "    start = plane * out_rows * last_size + first_column",
        *indent(epilogue.store),
        f"    tile += tile_row * {size}",
    ]
    lead = [
        *lead,
        f"packed = stack_bytes({(_SUMS + widest) * 4})" if is_joined else "",
        f"sums = stack_bytes({(_SUMS + widest) * size})",
        f"band = stack_bytes({(_MOST_ELEMENTS + 2 * SLACK) * element})",
        f"offsets = stack_bytes({MAX_TAPS * 8})",
        "taps = kernel_rows * tap_columns",
        "for k in range(group_inputs):",
        "    tap_offsets(offsets + k * taps * 8, k * input_size, kernel_rows, tap_columns, tap_row_step,"
        " region, tap_step, stride)",
        "taps *= group_inputs",
        *epilogue.kernel,
    ]
    task = [
        *_GRID.locate("group"),
        "rows = row1 - row0",
        f"origin = x + group * group_inputs * height * width * {np.dtype(dtype).itemsize}",
        "first = 0",
        "while first < last_size:",
        "    count = min(columns_at_once, last_size - first)",
        f"    source = origin + (row0 * row_stride * width + first) * {element}",
        "    if in_place == 0:",
        "        source = band",
        "        needed = (rows - 1) * step + reach_rows + 1",
        "        for k in range(group_inputs):",
        f"            plane = origin + k * height * width * {np.dtype(dtype).itemsize}",
        f"            stage_rows(band + k * input_size * {element}, plane, height, width,"
        " row0 * row_stride - top, left - first * column_stride, staged_stride, stride, phases,"
        " needed, length, region, filling, zero)",
        "    for output in range(group_outputs):",
        *indent(indent(results)),
        "    first += count",
    ]
    head = library_text("vectors", "matmul_tiles", "packed_elements") + tiles + staging_text(words, dtype)
    return kernel_text(head + tap_offsets_text(element), lead, task)


def tune_pool(compute: Compute, tuner: Tuner, threads: int) -> bool:
    """Rule for hints of kind "pool" with channels first: float32, one or two axes."""
    (x,), attributes, win = compute.operands, compute.attributes, windows_first(compute)
    if win is None or win.taps > MAX_TAPS or not compute.is_float32:
        return False
    kind, count = str(attributes["kind"]), x.shape[0] * x.shape[1]
    partition = deferred(cut_planes, win, 1, *x.shape[:2], 1, 1, threads)
    if partition is None:
        return False
    epilogue = print_epilogue(compute, _POOL_ARGUMENTS.end)
    nanoseconds = win.out[0] * win.out[1] * (win.taps * _NS_PER_TAP + _NS_PER_OUTPUT) + partition.nanoseconds
    arguments = _POOL_ARGUMENTS.values(
        **_ARGUMENTS.named(partition.sizes), **counted_sides(compute, win)
    )  # fmt: skip
    kernel = NativeKernel(f"plane_pool_{kind}", plane_pool_text(kind, epilogue))
    schedule = TaskSchedule.over((partition.rows,), count * nanoseconds, count)
    return emit(tuner, kernel, schedule, arguments, (x.name,), compute.output.name, epilogue)


def plane_pool_text(kind: str, epilogue: Epilogue) -> str:
    """Source of the kernel."""
    lanes, is_average = host_tile().lanes, kind == "average"
    words, padding = WordFormat("float32", 1), "-INF" if kind == "max" else "0.0"
    # How many taps of each column of windows count, and of each row of windows.
    divide = [
        "if counted != first:",
        "    counted = first",
        "    for column in range(count):",
        "        reached = (first + column) * column_stride - left",
        "        inside = taps_inside(reached, column_dilation, kernel_columns, count_left, count_right)",
        "        store_f32(counts, column, to_float32(inside))",
        "for i in range(rows):",
        "    reached = (row0 + i) * row_stride - top",
        "    inside = taps_inside(reached, row_dilation, kernel_rows, count_top, count_bottom)",
        "    rows_inside = to_float32(inside)",
        "    for k in range(count):",
        "        amount = op_mul(rows_inside, load_f32(counts, k))",
        "        position = i * tile_row + k",
        "        store_f32(tile, position, op_div(load_f32(tile, position), amount))",
    ]
    lead = [*_POOL_ARGUMENTS.prologue("x", epilogue=epilogue), *zero_text(words, "", padding)]
    lead += [f"counts = stack_bytes({_SUMS * 4})", "counted = _types.int64(-1)"] if is_average else []
    tiles = COUNT_TAPS + "".join(
        f"\ntile_{n} = make_pool_tile({n}, {lanes}, {kind == 'max'})\n" for n in _VECTORS[lanes]
    )
    calls = {n * lanes: f"tile_{n}(at, offsets, taps, target)" for n in _VECTORS[lanes]}
    return _text(words, "float32", lead, [], tiles, calls, (), divide if is_average else [], epilogue)
