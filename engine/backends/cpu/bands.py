"""Windows over one plane at a time: a band of its rows lies in a task's own memory, which stays in cache.

In a band, all elements that one tap of the windows reads form a single run. Rows and columns are parted by
their remainders of the strides into regions; a region's rows follow each other without a gap, `pitch`
elements apart, and results are computed `pitch` apart too, so that vectors run on over the ends of rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.backends.cpu.epilogue import Epilogue
from engine.backends.cpu.library import library_text
from engine.backends.cpu.planes import MAX_TAPS, Windows
from engine.backends.cpu.printer import indent

SUMS = 2048
"""Results held at a time."""

_BAND_FLOATS = 6144
"""Elements of a band that leave room for its results in the nearest cache."""

_MOST_FLOATS = 16384
"""Elements that a band has room for, where windows reach far."""

_LONGEST_ROW = 16384
_SLACK = 64
"""Elements behind a run that vectors may read and write beyond its end."""

WORDS = (
    "out_rows last_size height width plane_size kernel_rows kernel_columns row_stride stride row_dilation"
    " dilation top left in_place rows_at_once columns_at_once row_phases phases row_reach pitch region"
).split()

_TEXT = """
copy_run = make_copy_run(1, {lanes})
split_pairs = make_split_pairs({lanes})


@helper
def tap_offsets(offsets, kernel_rows, kernel_columns, row_stride, stride, row_dilation, dilation, phases,
                pitch, region):
    # Where each tap reads, in bytes from where a result's window starts.
    for a in range(kernel_rows):
        row = op_div(a * row_dilation, row_stride)
        row_phase = a * row_dilation - row * row_stride
        for b in range(kernel_columns):
            column = op_div(b * dilation, stride)
            phase = b * dilation - column * stride
            offset = (row_phase * phases + phase) * region + row * pitch + column
            store_i64(offsets, a * kernel_columns + b, offset * 4)


@helper
def fill_run(target, count, value):
    for k in range(count):
        store_f32(target, k, value)


@helper
def copy_runs(target, source, count):
    for k in range(0, count, {lanes}):
        copy_run(target + 4 * k, source + 4 * k)


@helper
def lay_band(band, line, x, height, width, top, left, row_stride, stride, row_phases, phases, rows, count,
             pitch, region, padding):
    # Vectors run over the ends of rows, so rows are written in order and their padding after them.
    needed = (count - 1) * stride + phases
    low = min(max(left, 0), needed)
    high = max(min(width + left, needed), low)
    for row_phase in range(row_phases):
        for row in range(rows):
            y = row * row_stride + row_phase - top
            target = band + (row_phase * phases * region + row * pitch) * 4
            if y < 0 or y >= height:
                for phase in range(phases):
                    fill_run(target + phase * region * 4, count, padding)
            else:
                place = target if stride == 1 else line
                fill_run(place, low, padding)
                copy_runs(place + low * 4, x + (y * width + low - left) * 4, high - low)
                fill_run(place + high * 4, needed - high, padding)
                if stride == 2 and phases == 2:
                    for k in range(0, count, {lanes}):
                        split_pairs(target + 4 * k, target + (region + k) * 4, line + 8 * k)
                elif stride > 1:
                    for phase in range(phases):
                        for k in range(count):
                            store_f32(target, phase * region + k, load_f32(line, k * stride + phase))
"""


@dataclass(frozen=True)
class Bands:
    """How windows are cut into bands: the run-time arguments that `WORDS` names."""

    sizes: tuple[int, ...]


def cut_bands(win: Windows) -> Bands | None:
    """Bands for these windows; None where they reach too far, or have too many elements."""
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
    return Bands(
        (
            oh, ow, win.height, win.width, win.height * win.width, kh, kw, sh, sw, dh, dw, *win.pads,
            int(in_place), rows, columns, row_phases, phases, row_reach, pitch, region,
        )  # fmt: skip
    )


def bands_text(lanes: int) -> str:
    """The functions that `walk_bands` calls."""
    return library_text("vectors") + _TEXT.replace("{lanes}", str(lanes))


def band_memory() -> list[str]:
    """Statements before the first plane: a task's own memory, and where taps read."""
    return [
        f"sums = stack_bytes({(SUMS + 2 * _SLACK) * 4})",
        f"packed = stack_bytes({(SUMS + 2 * _SLACK) * 4})",
        f"band = stack_bytes({(_MOST_FLOATS + 2 * _SLACK) * 4})",
        f"line = stack_bytes({(_LONGEST_ROW + 2 * _SLACK) * 4})",
        f"offsets = stack_bytes({MAX_TAPS * 8})",
        "taps = kernel_rows * kernel_columns",
        "reach = op_div((kernel_columns - 1) * dilation, stride)",
        "tap_offsets(offsets, kernel_rows, kernel_columns, row_stride, stride, row_dilation, dilation, phases,"
        " pitch, region)",
    ]


def walk_bands(
    lanes: int, vectors: int, wide_tile: str, slim_tile: str, padding: str, after: list[str],
    epilogue: Epilogue,
) -> list[str]:  # fmt: skip
    """Statements that fill `tile` with a plane's results, a band at a time, and store them row by row.

    Given `origin`, where the plane starts, and `plane`. The tile statements compute results from `done` on
    from the windows at `source`; `after` changes the `rows` x `length` results in `tile`, whose first one is
    that of `row0` and `first`.
    """
    return [
        "for row0 in range(0, out_rows, max(rows_at_once, 1)):",
        "    rows = min(rows_at_once, out_rows - row0)",
        "    for first in range(0, last_size, max(columns_at_once, 1)):",
        "        length = min(columns_at_once, last_size - first)",
        "        source = origin + (row0 * pitch + first) * 4",
        "        if in_place == 0:",
        "            source = band",
        "            lay_band(band, line, origin, height, width, top - row0 * row_stride,"
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
        "        tile = sums",
        "        if rows > 1 and pitch != length:",
        "            tile = packed",
        "            for row in range(rows):",
        "                copy_runs(tile + row * length * 4, sums + row * pitch * 4, length)",
        *indent(indent(after)),
        # Where a band is narrower than the plane, its rows are apart in the output.
        "        runs, columns = 1, rows * length",
        "        if length != last_size:",
        "            runs, columns = rows, length",
        "        for run in range(runs):",
        "            first_column = (row0 + run) * last_size + first",
        "            start = plane * out_rows * last_size + first_column",
        *indent(indent(indent(epilogue.store))),
        "            tile += columns * 4",
    ]
