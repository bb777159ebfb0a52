"""Windows over one plane at a time: a band of its rows stays in a task's own memory, and in cache.

In a band, all elements that one tap of the windows reads form a single run. Rows and columns are parted by
their remainders of the strides into regions; a region's rows follow each other without a gap, `pitch`
elements apart, and results are computed `pitch` apart too, so that vectors run on over the ends of rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.backends.cpu.argument_block import ArgumentBlock
from engine.backends.cpu.epilogue import Epilogue
from engine.backends.cpu.library import library_text
from engine.backends.cpu.printer import indent
from engine.backends.cpu.windows import MAX_TAPS, Windows

SUMS = 2048
"""Results held at a time."""

_BAND_FLOATS = 6144
"""Elements of a band that leave room for its results in the nearest cache."""

_MOST_FLOATS = 16384
"""Elements that a band has room for, where windows reach far."""

_LONGEST_ROW = 16384

_NS_PER_ELEMENT = 0.1
_NS_PER_ROW = 3.0

LONG_ROW = 48
"""Results that a row needs to be stored by itself."""

_SLACK = 64
"""Elements behind a run that vectors may read and write beyond its end."""

BAND_ARGUMENTS = ArgumentBlock(
    "out_rows last_size height width plane_size kernel_rows kernel_columns row_stride stride row_dilation "
    "dilation top left in_place rows_at_once columns_at_once row_phases phases row_reach pitch region"
)

_TEXT = """
copy_run = make_copy_run(1, {lanes})
fill_run = make_fill_run({lanes})
split_pairs = make_split_pairs({lanes})


@helper
def tap_offsets(offsets, kernel_rows, kernel_columns, row_stride, stride, row_dilation, dilation, phases,
                pitch, region):
    # Where each tap reads, in bytes from where a result's window starts.
    row, row_phase = 0, 0
    for a in range(kernel_rows):
        column, phase = 0, 0
        for b in range(kernel_columns):
            offset = (row_phase * phases + phase) * region + row * pitch + column
            store_i64(offsets, a * kernel_columns + b, offset * 4)
            phase += dilation
            while phase >= stride:
                phase -= stride
                column += 1
        row_phase += row_dilation
        while row_phase >= row_stride:
            row_phase -= row_stride
            row += 1


@helper
def fill_runs(target, count, value):
    k = 0
    while k < count:
        fill_run(target + 4 * k, value)
        k += {lanes}


@helper
def copy_runs(target, source, count):
    k = 0
    while k < count:
        copy_run(target + 4 * k, source + 4 * k)
        k += {lanes}


@helper
def copy_pairs(evens, odds, source, count):
    k = 0
    while k < count:
        split_pairs(evens + 4 * k, odds + 4 * k, source + 8 * k)
        k += {lanes}


@helper
def pack_rows(band, x, height, width, first, left, row_stride, rows, count, pitch, padding):
    # Vectors write beyond the ends of rows, so rows are laid in order, each with the padding of the next.
    low = min(max(left, 0), count)
    high = max(min(width + left, count), low)
    fill_runs(band, low, padding)
    for row in range(rows):
        y = first + row * row_stride
        target = band + row * pitch * 4
        next_low = low if row + 1 < rows else 0
        if y < 0 or y >= height:
            fill_runs(target, count + next_low, padding)
        else:
            copy_runs(target + low * 4, x + (y * width + low - left) * 4, high - low)
            fill_runs(target + high * 4, count - high + next_low, padding)


@helper
def lay_pairs(evens, odds, x, height, width, first, left, row_stride, rows, count, pitch, padding):
    # Pairs low..high-1 lie inside; a row may begin with the second of a pair and end with the first of one.
    low = min(max((left + 1) >> 1, 0), count)
    high = max(min((width + left) >> 1, count), low)
    end = width + left
    cut_low = left > 0 and left & 1 == 1 and left < 2 * count
    cut_high = end > 0 and end & 1 == 1 and end < 2 * count
    fill_runs(evens, low, padding)
    fill_runs(odds, low, padding)
    for row in range(rows):
        y = first + row * row_stride
        start = row * pitch * 4
        next_low = low if row + 1 < rows else 0
        if y < 0 or y >= height:
            fill_runs(evens + start, count + next_low, padding)
            fill_runs(odds + start, count + next_low, padding)
        else:
            source = x + y * width * 4
            if cut_low:
                store_f32(odds + start, low - 1, load_f32(source, 0))
            place = start + low * 4
            copy_pairs(evens + place, odds + place, source + (2 * low - left) * 4, high - low)
            place = start + high * 4
            fill_runs(evens + place, count - high + next_low, padding)
            fill_runs(odds + place, count - high + next_low, padding)
            if cut_high:
                store_f32(evens + start, end >> 1, load_f32(source, width - 1))


@helper
def lay_strided(band, line, x, height, width, first, left, row_stride, stride, phases, rows, count, pitch,
                region, padding):
    for row in range(rows):
        y = first + row * row_stride
        pack_rows(line, x, height, width, y, left, 1, 1, (count - 1) * stride + phases, 0, padding)
        for phase in range(phases):
            for k in range(count):
                place = phase * region + row * pitch + k
                store_f32(band, place, load_f32(line, k * stride + phase))


@helper
def pack_band(band, line, x, height, width, top, left, row_stride, stride, row_phases, phases, rows, count,
             pitch, region, padding):
    for row_phase in range(row_phases):
        target = band + row_phase * phases * region * 4
        first = row_phase - top
        if stride == 1:
            pack_rows(target, x, height, width, first, left, row_stride, rows, count, pitch, padding)
        elif stride == 2 and phases == 2:
            lay_pairs(target, target + region * 4, x, height, width, first, left, row_stride, rows, count,
                      pitch, padding)
        else:
            lay_strided(target, line, x, height, width, first, left, row_stride, stride, phases, rows,
                        count, pitch, region, padding)
"""


@dataclass(frozen=True)
class Bands:
    """How windows are cut into bands: the run-time arguments `BAND_ARGUMENTS`.

    `nanoseconds` is how long the bands of one plane take to lay.
    """

    sizes: tuple[float, ...]
    nanoseconds: float


def cut_bands(win: Windows) -> Bands | None:
    """Bands for these windows; None if they are too tall or too large."""
    (kh, kw), (sh, sw), (dh, dw), (oh, ow) = win.kernel, win.strides, win.dilations, win.out
    in_place = win.reads_in_place and sh == 1
    row_phases = min(sh, kh) if dh == 1 else sh
    phases = min(sw, kw) if dw == 1 else sw
    row_reach, reach = (kh - 1) * dh // sh, (kw - 1) * dw // sw

    def floats(rows: int, columns: int) -> int:
        return row_phases * phases * ((rows + row_reach) * (columns + reach) + _SLACK)

    rows, columns = oh, min(ow, SUMS // 2)
    pitch = win.width if in_place else columns + reach
    rows = max(1, min(oh, (SUMS - columns) // pitch))
    if not in_place:
        while rows > 1 and floats(rows, columns) > _BAND_FLOATS:
            rows = (rows + 1) // 2
        while columns > 1 and floats(rows, columns) > _MOST_FLOATS:
            columns = (columns + 1) // 2
        pitch = columns + reach
        too_long = (columns + reach) * sw + _SLACK > _LONGEST_ROW
        if too_long or floats(rows, columns) > _MOST_FLOATS:
            return None
    if win.taps > MAX_TAPS:
        return None
    region = (rows + row_reach) * pitch + _SLACK
    sizes = BAND_ARGUMENTS.values(
        out_rows=oh, last_size=ow, height=win.height, width=win.width, plane_size=win.height * win.width,
        kernel_rows=kh, kernel_columns=kw, row_stride=sh, stride=sw, row_dilation=dh, dilation=dw,
        top=win.pads[0], left=win.pads[1], in_place=int(in_place), rows_at_once=rows,
        columns_at_once=columns, row_phases=row_phases, phases=phases, row_reach=row_reach, pitch=pitch,
        region=region,
    )  # fmt: skip
    laying = 0.0 if in_place else win.height * (win.width * _NS_PER_ELEMENT + _NS_PER_ROW)
    return Bands(sizes, laying)


def bands_text(lanes: int) -> str:
    """The functions that `walk_bands` calls."""
    return library_text("vectors") + _TEXT.replace("{lanes}", str(lanes))


def band_memory() -> list[str]:
    """Statements before the first plane: the task's memory and the taps' offsets."""
    return [
        f"sums = stack_bytes({(SUMS + 2 * _SLACK) * 4})",
        f"packed = stack_bytes({(SUMS + 2 * _SLACK) * 4})",
        f"band = stack_bytes({(_MOST_FLOATS + 2 * _SLACK) * 4})",
        f"line = stack_bytes({(_LONGEST_ROW + 2 * _SLACK) * 4})",
        f"offsets = stack_bytes({MAX_TAPS * 8})",
        "taps = kernel_rows * kernel_columns",
        "reach = op_div((kernel_columns - 1) * dilation, stride)",
        "tap_offsets(offsets, kernel_rows, kernel_columns, row_stride, stride, row_dilation, dilation,"
        " phases, pitch, region)",
    ]


def walk_bands(
    lanes: int, vectors: int, wide_tile: str, slim_tile: str, padding: str, after: list[str],
    epilogue: Epilogue,
) -> list[str]:  # fmt: skip
    """Statements that fill `tile` with a plane's results, a band at a time, and store them row by row.

    Given `origin`, where the plane starts, and `plane`. The tile statements compute results from `done` on
    from the windows at `source`; `after` changes the results in `tile`, `rows` rows of `length`, `step`
    apart, from `row0` and `first` on.
    """
    return [
        # Steps that `range` does not know cost it a division, as much as a small plane.
        "row0 = 0",
        "while row0 < out_rows:",
        "    rows = min(rows_at_once, out_rows - row0)",
        "    first = 0",
        "    while first < last_size:",
        "        length = min(columns_at_once, last_size - first)",
        "        source = origin + (row0 * pitch + first) * 4",
        "        if in_place == 0:",
        "            source = band",
        "            pack_band(band, line, origin, height, width, top - row0 * row_stride,"
        " left - first * stride, row_stride, stride, row_phases, phases, rows + row_reach, length + reach,"
        " pitch, region, "
        f"{padding})",
        "        count = (rows - 1) * pitch + length",
        "        done = 0",
        "        while done < count:",
        f"            if count - done > {lanes}:",
        f"                {wide_tile}",
        f"                done += {vectors * lanes}",
        "            else:",
        f"                {slim_tile}",
        f"                done += {lanes}",
        # Short rows are packed, so that storing them needs few loops; long ones are stored where they are.
        "        tile, step = sums, pitch",
        f"        if rows > 1 and length != pitch and length < {LONG_ROW}:",
        "            tile, step = packed, length",
        "            for row in range(rows):",
        "                copy_runs(tile + row * length * 4, sums + row * pitch * 4, length)",
        *indent(indent(after)),
        "        runs, columns = 1, rows * length",
        "        if length != last_size or step != length:",
        "            runs, columns = rows, length",
        "        for run in range(runs):",
        "            first_column = (row0 + run) * last_size + first",
        "            start = plane * out_rows * last_size + first_column",
        *indent(indent(indent(epilogue.store))),
        "            tile += step * 4",
        "        first += length",
        "    row0 += rows",
    ]
