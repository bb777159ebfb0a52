"""Partition of results into tasks by estimated time: functions of plain numbers, called at each new size.

This module's text is compiled, too (`engine.kernels.size_function`), so it holds arithmetic, loops and calls
of its own functions only.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from engine.kernels.size_function import helper, size_function

CHUNK_NS = 5_000.0
"""Work below this is not worth handing to another thread."""

CHUNKS_PER_THREAD = 4
"""So many that a thread which starts late still finds something to do."""

LEFT_FLOATS = 1 << 17
"""Rows of a product's left side that a task goes through once for every panel: these stay in second-level
cache.
"""

BYTES_PER_NS = 10.0
"""How fast weights of convolutions arrive that are in no near cache."""

LATE = 0.1
"""What a thread that starts late costs, in tasks."""

FETCHED_UNSEEN = 0.15
"""What the arrival of weights takes of the time of others."""

NEAR_BYTES = 1 << 20
"""Weights of a model up to so many bytes, in all, are taken to stay in second-level cache."""

MOST_PIXELS = 4096
"""Of a band of a first layer's results; a task has room to note their places."""

LEAST_PIXELS = 64
BAND_FLOATS = 16384
"""Elements of a band that leave room in the nearest caches."""

MOST_FLOATS = 32768
"""Elements that a band has room for where a row is long, or windows reach far (128 KiB)."""

MOST_COLUMNS = 128
"""Output channels of a Winograd convolution that are transformed back at a time."""

ENOUGH_TILES = 28
"""Tiles at a time from which on weights in second-level cache, or the stream of them, hold nothing up."""

DIRECT_SHARE = 0.8
"""What direct convolutions reach of the speed of Winograd's products."""

WEIGHT_BYTES_PER_NS = 12.0
"""How fast transformed weights arrive from beyond second-level cache."""

CLEARLY = 0.97
"""Of partitions with equal tiles, a later one is taken where it needs this share of an earlier one's time."""

ROUNDED = 1.0 - 1e-9
"""What an estimate may be less than its lower bound, as floats are rounded."""


@helper
def up(n: int, step: int) -> int:
    """The next multiple of `step`."""
    return -(-n // step) * step


@helper
def tasks_wanted(nanoseconds: float, threads: int) -> int:
    """The number of tasks that keep all threads busy."""
    if threads == 1:
        return 1
    return max(1, int(min(nanoseconds / CHUNK_NS, float(threads * CHUNKS_PER_THREAD))))


@helper
def elapsed_ns(tasks: int, task_ns: float, threads: int, late: float) -> float:
    """Estimated time of all tasks, whose chunks threads take in turn.

    late: what a thread that starts late costs, in chunks; in favour of more tasks, which even that out.
    """
    if threads == 1:
        return tasks * task_ns
    if 0 < tasks <= threads:
        return (1 + late) * task_ns
    chunk = -(-tasks // (threads * CHUNKS_PER_THREAD))
    rounds = -(-tasks // (chunk * threads))
    return (rounds + late) * chunk * task_ns


@helper
def next_division(size: int, block: int) -> tuple[int, int]:
    """Number and size of the largest blocks smaller than `block`.

    The count is the least with blocks of that size, and the size the least of so many blocks.
    """
    count = -(-size // (block - 1))
    return count, -(-size // count)


@helper
def reading_ns(size: int, whole: int = 0) -> float:
    """Nanoseconds to read `size` bytes of weights once, of a working set of `whole` bytes.

    They are read from memory if the working set exceeds the L2 cache.
    """
    return size / (100.0 if max(size, whole) <= NEAR_BYTES else 25.0)


@size_function
def ns_of_reading(size: int, whole: int) -> tuple[float]:
    """`reading_ns` of a size that may be symbolic."""
    return (reading_ns(size, whole),)


@size_function
def cut_step(step_ns: float, steps: int, units: int, groups: int, threads: int, part_ns: float) -> tuple[int]:
    """The number of parts of a recurrent step's units, for a number of groups of sequences.

    part_ns: what a part of a step has to take for threads to meet after each.
    """
    worth = min(int(step_ns / part_ns), int(steps * step_ns / CHUNK_NS))
    return (max(1, min(min(-(-threads // max(groups, 1)), units), worth)),)


@size_function
def cut_extent(extent: int, tasks: int, least: int, nanoseconds: float, threads: int) -> tuple[int]:
    """The number of parts to split a reduction's extent into.

    least: elements of a part.
    """
    wanted = tasks_wanted(nanoseconds, threads)
    return (max(1, min(-(-wanted // max(tasks, 1)), extent // least)),)


@size_function
def cut_slim(
    rows: int, columns: int, lanes: int, table: int
) -> tuple[int, int, int, int, int, int, int, int, int, int]:
    """Partition the transposition of a narrow matrix, by a table of up to `table` addresses.

    A matrix of few rows is one line of results, and one of few columns as many lines. Of a line, `block_size`
    results lie `block_step` elements of the input from the next ones; in a block, groups of `group` results
    `near` apart begin `far` apart. Returns the elements of a matrix, lines, what they begin apart,
    their size, blocks, and the last five.
    """
    matrix = rows * columns
    if matrix <= table or rows < lanes:
        at_once = max(1, min(columns, table // max(rows, 1)))
        lines, line_step, line_size = 1, 0, matrix
        block_size, block_step, group, near, far = at_once * rows, at_once, rows, columns, 1
    else:
        at_once = min(rows, table)
        lines, line_step, line_size = columns, 1, rows
        block_size, block_step, group, near, far = at_once, at_once * columns, 1, 0, columns
    blocks = -(-line_size // max(block_size, 1))
    return matrix, lines, line_step, line_size, blocks, block_size, block_step, group, near, far


@size_function
def cut_product(
    m: int, n: int, k: int, height: int, width: int, batch: int, nanoseconds: float, threads: int
) -> tuple[int, int, int, int]:
    """Cut m x n results into blocks of whole tiles, enough of them in the whole batch.

    height, width: of a tile. nanoseconds: of the whole batch. Returns the blocks of rows, their size, and the
    same of columns.
    """
    rows = min(up(m, height), max(height, LEFT_FLOATS // max(k, 1) // height * height))
    columns = up(n, width)
    wanted = tasks_wanted(nanoseconds, threads)
    while max(batch, 1) * -(-m // rows) * -(-n // columns) < wanted:
        # Shared rows save reading columns again, and vice versa.
        if columns > width and (columns * 2 >= rows or rows <= height):
            columns = up(-(-columns // 2), width)
        elif rows > height:
            rows = up(-(-rows // 2), height)
        else:
            break
    return -(-m // rows), rows, -(-n // columns), columns


@helper
def panels_ns(
    across: int, along: int, tile_ns: float, fetched: float, tile_bytes: float, start_ns: float
) -> float:
    """Estimated time of a task of panels and tiles, of which a panel arrives in `fetched`."""
    # A panel is fetched while the previous one is in use; only the first is waited for.
    work = across * (max(along * tile_ns, fetched) + FETCHED_UNSEEN * fetched)
    read = FETCHED_UNSEEN * along * tile_bytes / BYTES_PER_NS
    return work + fetched + read + start_ns


@size_function
def cut_tasks(
    tiles: int, panels: int, groups: int, threads: int, tile_ns: float, panel_bytes: float,
    tile_bytes: float, start_ns: float,
) -> tuple[int, float, int, int, int, int]:  # fmt: skip
    """Blocks of panels and of tiles, of even cost for all threads; `tile_ns` is the cost of one panel's tile.

    panel_bytes: of a panel's weights; tile_bytes: of the input under a tile; start_ns: what a task takes
    besides. Returns the tasks, the nanoseconds of one, and how many blocks of panels and of tiles there are,
    each followed by its size.
    """
    if tiles == 0:
        return 0, 0.0, 1, panels, 0, 1
    fetched = panel_bytes / BYTES_PER_NS
    best_ns = panels_ns(panels, tiles, tile_ns, fetched, tile_bytes, start_ns)
    whole = groups * best_ns
    wanted = tasks_wanted(whole, threads)
    best_across, best_wide, best_along, best_long = 1, panels, 1, tiles
    least = elapsed_ns(groups, best_ns, threads, LATE)
    across, wide = 1, panels
    while groups * across <= wanted:
        grids, before = groups * across, 0
        # Among partitions with equally many rounds of all threads, the one with the most tasks is fastest.
        for rounds in range(1, -(-wanted // threads) + 1):
            along = min(min(wanted, rounds * threads) // grids, tiles)
            if along > before:
                before = along
                long = -(-tiles // along)
                along = -(-tiles // long)
                one_ns = panels_ns(wide, long, tile_ns, fetched, tile_bytes, start_ns)
                nanoseconds = elapsed_ns(grids * along, one_ns, threads, LATE)
                if nanoseconds < least:
                    best_across, best_wide, best_along, best_long = across, wide, along, long
                    best_ns, least = one_ns, nanoseconds
        if wide <= 1:
            break
        across, wide = next_division(panels, wide)
    tasks = groups * best_across * best_along
    return tasks, max(best_ns, whole / tasks), best_across, best_wide, best_along, best_long


@size_function
def cut_bands(
    out_rows: int, out_columns: int, row_stride: int, column_stride: int, row_reach: int, column_reach: int,
    channels: int, batch: int, pixel_ns: float, copy_ns: float, start_ns: float, threads: int,
) -> tuple[int, float, int, int, int, int]:  # fmt: skip
    """Bands of rows of results, of even cost for all threads, that fit into a task's memory.

    Several rows are always whole ones. row_reach, column_reach: the input that one result depends on;
    channels: how many are copied, 0 where the input is read in place. Returns the tasks, the nanoseconds of
    one, and how many blocks of rows and of columns there are, each followed by its size: of columns 0 where
    one pixel's input does not fit.
    """
    columns = min(out_columns, MOST_PIXELS)
    if batch * out_rows < threads:
        # Signals of one row.
        shared = max(1, min(threads * CHUNKS_PER_THREAD, out_columns))
        columns = min(columns, max(-(-out_columns // shared), LEAST_PIXELS))
    row = channels * row_reach
    while row * ((columns - 1) * column_stride + column_reach) > MOST_FLOATS:
        if columns <= 1:
            return 0, 0.0, 1, 0, 1, 0
        columns = -(-columns // 2)
    across = -(-out_columns // columns)
    wide = channels * ((columns - 1) * column_stride + column_reach)
    tasks, task_ns, best_count, best_rows, least = 0, 0.0, 1, 0, inf
    rows, count = 1, out_rows
    while True:
        held = wide * ((rows - 1) * row_stride + row_reach)
        if rows > 1 and (held > BAND_FLOATS or rows * columns > MOST_PIXELS or across > 1):
            break
        one_ns = rows * columns * pixel_ns + held * copy_ns
        nanoseconds = elapsed_ns(batch * count * across, one_ns + start_ns, threads, 0.0)
        if nanoseconds < least:
            tasks, task_ns, best_count, best_rows = batch * count * across, one_ns, count, rows
            least = nanoseconds
        if count <= 1:
            break
        rows, count = next_division(out_rows, count)
    return tasks, task_ns, best_count, best_rows, across, columns


class Tiles(NamedTuple):
    """Values shared by all partitions of a Winograd convolution with one tile size.

    Attributes:
        total: How many tiles there are.
        m: Output channels.
        width: Columns of a product's tile.
        lanes: Elements of a vector.
        most, middle, least: Rows of a product's tiles, as `rows_taken` takes them.
        flops_per_ns: How fast products are.
        flops: Operations of a tile for each output channel.
        input_ns, output_ns: The transforms of a tile's inputs, and of a vector of its sums.
        column_bytes: Of an output channel's transformed weights.
        scratch: Bytes of a task's scratch memory.
        room: Elements in it for each frequency, of inputs and sums of tiles.
        deep: Elements of a tile's inputs of a frequency.
        sums: The most columns that are transformed back at a time.
    """

    total: int
    m: int
    width: int
    lanes: int
    most: int
    middle: int
    least: int
    flops_per_ns: float
    flops: float
    input_ns: float
    output_ns: float
    column_bytes: int
    scratch: int
    room: int
    deep: int
    sums: int


@helper
def rows_taken(count: int, most: int, middle: int, least: int) -> int:
    """Height of the first tile for `count` rows, chosen so that the remainder divides evenly.

    There are tiles of three heights, or of two where the least is 0.
    """
    if least == 0:
        return most if count > middle else middle
    if count > 2 * middle or middle + least < count <= most:
        return most
    return middle if count > least else least


@helper
def row_tiles(count: int, most: int, middle: int, least: int) -> int:
    """How many tiles of a product take `count` rows."""
    tiles = 0
    while count > 0:
        count -= rows_taken(count, most, middle, least)
        tiles += 1
    return tiles


@helper
def row_cost(count: int, most: int, middle: int, least: int) -> float:
    """Rows that the tiles of a product compute for `count` rows, and the loading of their columns."""
    cost = 0.0
    while count > 0:
        rows = rows_taken(count, most, middle, least)
        cost += rows + 0.5
        count -= rows
    return cost


@helper
def winograd_ns(tiles: Tiles, share: int, at_once: int, group_columns: int, threads: int) -> float:
    """Estimated nanoseconds of a partition: `share` tiles and `group_columns` channels per task."""
    tasks = -(-tiles.m // group_columns) * -(-tiles.total // share)
    whole = share // at_once
    rest = share - whole * at_once
    rows = whole * row_cost(at_once, tiles.most, tiles.middle, tiles.least)
    rows += row_cost(rest, tiles.most, tiles.middle, tiles.least)
    turns = -(-tasks // threads)
    blocks = turns * (whole + (1 if rest > 0 else 0))
    products = tiles.flops * rows * group_columns / tiles.flops_per_ns
    weights = tiles.column_bytes * group_columns
    # Weights that fit into second-level cache are fetched from memory for the first block only.
    streams = blocks if weights > tiles.scratch else 1
    waited = weights / WEIGHT_BYTES_PER_NS - products * turns / blocks
    moved = tiles.input_ns + tiles.output_ns * (group_columns // tiles.lanes)
    nanoseconds = elapsed_ns(tasks, products + moved * share, threads, 0.0)
    return nanoseconds + streams * waited if waited > 0 else nanoseconds


@helper
def tiles_of(
    results: int, batch: int, height: int, width: int, m: int, channels: int, tile_width: int, lanes: int,
    most: int, middle: int, least: int, flops_per_ns: float, input_ns: float, output_ns: float, scratch: int,
) -> Tiles:  # fmt: skip
    """The tiles of `results` along a side; `input_ns` is a vector's."""
    frequencies = (results + 2) * (results + 2)
    deep = up(channels, lanes)
    return Tiles(
        batch * -(-height // results) * -(-width // results), m, tile_width, lanes, most, middle, least,
        flops_per_ns, 2.0 * frequencies * channels, input_ns * -(-channels // lanes), output_ns,
        4 * frequencies * channels, scratch, scratch // (4 * frequencies) - deep - lanes, deep,
        64 if results == 4 else MOST_COLUMNS,
    )  # fmt: skip


@helper
def best_cut(
    tiles: Tiles, threads: int, judged: int, fewest: int, bound: float
) -> tuple[float, int, int, int, int]:
    """The best partition below a bound on `judged` threads: its time (or the bound), tiles and columns.

    Tasks are blocks of tiles, or of tiles and output channels, many or few.
    """
    found, best_share, best_at_once, best_columns, best_group = bound, 0, 1, 1, 1
    columns = up(tiles.m, tiles.width)
    # The time of the tiles alone, without waiting.
    moved = tiles.input_ns + tiles.output_ns * (columns // tiles.lanes)
    lowest = tiles.total * (tiles.flops * columns / tiles.flops_per_ns + moved)
    if lowest / judged * ROUNDED > bound:
        return found, best_share, best_at_once, best_columns, best_group
    total = winograd_ns(tiles, tiles.total, min(tiles.total, ENOUGH_TILES), columns, 1)
    most = max(tasks_wanted(total, threads), fewest)
    # A block of columns that have been transformed back, and what its sums leave room for.
    widest = up(tiles.sums, tiles.width)
    for is_few in range(2 if most > threads > 1 else 1):
        tasks = threads if is_few else (most // threads * threads if most > threads > 1 else most)
        parts = min(threads, tasks)
        for is_by_columns in range(2 if parts > 1 else 1):
            group_columns = up(-(-tiles.m // (parts if is_by_columns else 1)), tiles.width)
            share = -(-tiles.total * -(-tiles.m // group_columns) // tasks)
            columns = min(group_columns, widest)
            room = tiles.room // (tiles.deep + columns)
            while columns > tiles.width and room < min(share, ENOUGH_TILES):
                columns = up(columns // 2, tiles.width)
                room = tiles.room // (tiles.deep + columns)
            if tiles.column_bytes * group_columns < tiles.scratch:
                room = min(room, ENOUGH_TILES)
            if room > 0:
                at_once = -(-share // -(-share // room))
                nanoseconds = winograd_ns(tiles, share, at_once, group_columns, judged)
                if nanoseconds < bound:
                    # Fewer tasks, tried later, must be clearly faster: many tasks even out disturbances.
                    found = bound = nanoseconds * CLEARLY
                    best_share, best_at_once = share, at_once
                    best_columns, best_group = columns, group_columns
    return found, best_share, best_at_once, best_columns, best_group


@size_function
def cut_winograd(
    batch: int, height: int, width: int, m: int, channels: int, largest: int, tile_width: int, lanes: int,
    most: int, middle: int, least: int, flops_per_ns: float, input_2: float, output_2: float, input_4: float,
    output_4: float, worth_2: float, worth_4: float, scratch: int, inline_ns: float, threads: int,
) -> tuple[int, int, int, int, int, float, int, int, int, int]:  # fmt: skip
    """Partition a convolution with tiles of up to `largest` results along a side.

    input_2, output_2, input_4, output_4: the transforms of a vector of tiles of 2 and of 4; worth_2, worth_4:
    the share of the time of what takes less memory that they have to need. Returns the size of tiles, the
    tiles of a task, tiles and columns at a time, and columns of a task; what a task takes, and how many tiles
    of a product take the rows of a block; and the images computed directly, and with tiles of 2 and of 4.
    """
    direct = 2.0 * 9 * channels * (batch * height * width * m) / (flops_per_ns * DIRECT_SHARE)
    # Such a short layer often runs on one thread, with its whole plan; it is divided for all threads anyway.
    judged = threads if direct > inline_ns / 2 else 1
    fewest = min(tasks_wanted(direct, threads), threads)
    size, share, at_once, columns, group_columns = 0, 1, 1, 1, 1
    found = direct / min(judged, fewest)
    for results in range(2, largest + 1, 2):
        tiles = tiles_of(
            results, batch, height, width, m, channels, tile_width, lanes, most, middle, least, flops_per_ns,
            input_2 if results == 2 else input_4, output_2 if results == 2 else output_4, scratch,
        )  # fmt: skip
        bound = found * (worth_2 if results == 2 else worth_4)
        nanoseconds, its_share, its_at_once, its_columns, its_group = best_cut(
            tiles, threads, judged, fewest, bound
        )
        if its_share > 0:
            size, found = results, nanoseconds
            share, at_once, columns, group_columns = its_share, its_at_once, its_columns, its_group
    if size == 0:
        return 0, 1, 1, 1, 1, 0.0, 1, batch, 0, 0
    tiles = tiles_of(
        size, batch, height, width, m, channels, tile_width, lanes, most, middle, least, flops_per_ns,
        input_2 if size == 2 else input_4, output_2 if size == 2 else output_4, scratch,
    )  # fmt: skip
    tasks = -(-tiles.total // share) * -(-m // group_columns)
    task_ns = winograd_ns(tiles, share, at_once, group_columns, 1) / tasks
    in_rows = row_tiles(at_once, most, middle, least)
    of_2, of_4 = (batch, 0) if size == 2 else (0, batch)
    return size, share, at_once, columns, group_columns, task_ns, in_rows, 0, of_2, of_4
