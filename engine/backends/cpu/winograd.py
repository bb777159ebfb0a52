"""Convolutions of float32 by 3 x 3, channels last, with fewer products: Winograd's F(2 x 2) and F(4 x 4).

A task transforms the inputs of a block of tiles into its stack, multiplies each frequency by the weights of
that frequency, and transforms the sums back, a block of output channels at a time. Weights are transformed
once, in float64. F(4 x 4) needs 36 products for 16 results where F(2 x 2) needs 64 and the direct way 144,
but its weights take 4 times the memory instead of 16 / 9, and its rounding errors are larger.

Environment: GAMEGLUE_WINOGRAD=0 computes all such convolutions directly, 2 allows F(2 x 2) only, 4 (the
default) both. It is read when this module is imported.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

from engine.backends.cpu.cost import CHUNK_NS, CHUNKS_PER_THREAD
from engine.backends.cpu.epilogue import Epilogue, is_float32_core, print_epilogue
from engine.backends.cpu.library import library_text
from engine.backends.cpu.native_kernel import NativeKernel
from engine.backends.cpu.printer import indent, kernel_text
from engine.backends.cpu.tiles import Tile, host_tile
from engine.compiler.plan import Compute, Tuner

LARGEST = int(os.environ.get("GAMEGLUE_WINOGRAD", "4"))
"""The largest tile, in results along a side; 0 for none."""

SCRATCH_BYTES = 1 << 20
"""Transformed inputs and sums of a task, on its stack."""

_LARGEST_WEIGHTS = 40 << 20
"""Bytes of transformed weights above which a size of tiles is not considered."""

_ENOUGH_TILES = 28
"""Tiles at a time from which on weights in second-level cache, or the stream of them, hold nothing up."""

# Measured on a processor with AVX-512: products, per vector lane; what the direct way reaches of that; weights
# from third-level cache; and per tile and vector of channels, the transform of inputs and that of sums with
# the epilogue.
_FLOPS_PER_NS = 11.5
_DIRECT_SHARE = 0.8
_BYTES_PER_NS = 20.0
_VECTOR_NS = {2: (28.0, 14.0), 4: (85.0, 45.0)}

_WORTH = 0.9
"""A way is taken where it needs this share of another one's time."""

_WORDS = (
    "height width c_size out_height out_width m_size top left tile_columns image_tiles tiles share"
    " block_tiles block_columns groups group_columns"
).split()
_FIRST_WORD = 2
_ZEROS = 512

_TEXT = """
{tiles}
input_tile = make_input_tile({results}, {lanes})
listed_tile = make_listed_tile({results}, {lanes})
output_tile = make_output_tile({results}, {lanes})


@helper
def list_inputs(table, zeros, source, y, x, height, width, pixel):
    # What lies outside the picture is read from zeros.
    for i in range({size}):
        for j in range({size}):
            inside = y + i >= 0 and y + i < height and x + j >= 0 and x + j < width
            place = source + ((y + i) * width + x + j) * pixel
            store_i64(table, i * {size} + j, place if inside else zeros)


@helper
def transform_inputs(target, step, block, table, zeros, source, y, x, height, width, channels):
    pixel = channels * 4
    if y >= 0 and x >= 0 and y + {size} <= height and x + {size} <= width:
        place = source + (y * width + x) * pixel
        c = 0
        while c < channels:
            input_tile(place + c * 4, width * pixel, pixel, target, step)
            target += block
            c += {lanes}
    else:
        first = 0
        while first < channels:
            list_inputs(table, zeros, source + first * 4, y, x, height, width, pixel)
            c = 0
            while c < min(channels - first, {zeros}):
                listed_tile(table, c * 4, target, step)
                target += block
                c += {lanes}
            first += {zeros}


@helper
def multiply(a, a_block, count, b, k, c, c_row):
    while count > 0:
{choices}
"""


@dataclass(frozen=True)
class Cut:
    """Which tiles, and how many tiles and output channels at a time.

    A task takes `share` tiles and `group_columns` channels, and of those `tiles` and `columns` at a time.
    """

    results: int
    share: int
    tiles: int
    columns: int
    group_columns: int


def tune_winograd(compute: Compute, tuner: Tuner, threads: int) -> bool:
    """Rule for hints of kind "conv" with channels last: 3 x 3 windows next to each other, known weights."""
    assert compute.hint is not None
    facts = compute.hint.facts
    x, w = compute.hint.operands
    plain = (facts["strides"], facts["dilations"], facts["group"]) == ((1, 1), (1, 1), 1)
    if not (facts.get("channels_last") and plain and w.shape[2:] == (3, 3)) or facts.get("x_first"):
        return False
    if w.known is None or not is_float32_core(compute):
        return False
    tile = host_tile()
    cut = choose_cut(compute.space, w.shape[1], tile, threads)
    if cut is None:
        return False
    emit_winograd(compute, tuner, tile, cut)
    return True


def choose_cut(space: tuple[int, ...], channels: int, tile: Tile, threads: int) -> Cut | None:
    """How to cut an output (N, height, width, M); None where the direct way is about as fast."""
    direct = 2.0 * 9 * channels * prod(space) / (threads * _FLOPS_PER_NS * tile.lanes * _DIRECT_SHARE)
    best, least = None, direct * _WORTH
    for results in (2, 4):
        if results > LARGEST or 4 * (results + 2) ** 2 * channels * space[3] > _LARGEST_WEIGHTS:
            continue
        for cut in _cuts(space, channels, results, tile, threads):
            nanoseconds = cut_ns(space, channels, cut, tile, threads)
            # The larger tile must be worth its weights and its rounding.
            if nanoseconds * (1.0 if best is None or best.results == results else 1.0 / _WORTH) < least:
                best, least = cut, nanoseconds
    return best


def _cuts(
    space: tuple[int, ...], channels: int, results: int, tile: Tile, threads: int
) -> Iterator[Cut]:
    """The cuts worth a look: by tiles, or by output channels too, into few tasks or many."""
    m, tiles = space[3], _tile_count(space, results)
    total = 2.0 * tiles * (results + 2) ** 2 * channels * m / (_FLOPS_PER_NS * tile.lanes)
    most = min(int(total / CHUNK_NS), threads * CHUNKS_PER_THREAD)
    for tasks in {most // threads * threads, threads} if most > threads > 1 else {max(1, most)}:
        for groups in {1, min(threads, tasks)}:
            group_columns = _up(-(-m // groups), tile.width)
            share = -(-tiles * groups // tasks)
            columns = min(group_columns, _up(64 if results == 4 else 128, tile.width))
            room = _room(columns, channels, results, tile)
            while columns > tile.width and room < min(share, _ENOUGH_TILES):
                columns = _up(columns // 2, tile.width)
                room = _room(columns, channels, results, tile)
            if _weight_bytes(channels, group_columns, results) < SCRATCH_BYTES:
                room = min(room, _ENOUGH_TILES)
            if room > 0:
                yield Cut(results, share, -(-share // -(-share // room)), columns, group_columns)


def _up(n: int, step: int) -> int:
    return -(-n // step) * step


def _tile_count(space: tuple[int, ...], results: int) -> int:
    return space[0] * -(-space[1] // results) * -(-space[2] // results)


def _weight_bytes(channels: int, columns: int, results: int) -> int:
    return 4 * (results + 2) ** 2 * channels * columns


def _room(columns: int, channels: int, results: int, tile: Tile) -> int:
    """How many tiles the scratch memory has room for."""
    floats = SCRATCH_BYTES // (4 * (results + 2) ** 2)
    deep = _up(channels, tile.lanes)
    return (floats - deep - tile.lanes) // (deep + columns)


def cut_ns(space: tuple[int, ...], channels: int, cut: Cut, tile: Tile, threads: int) -> float:
    """Estimated nanoseconds on all threads."""
    m, tiles = space[3], _tile_count(space, cut.results)
    groups = -(-m // cut.group_columns)
    tasks = groups * -(-tiles // cut.share)
    frequencies = (cut.results + 2) ** 2
    whole, rest = divmod(cut.share, cut.tiles)
    rows = whole * _row_cost(cut.tiles, tile) + _row_cost(rest, tile)
    products = 2.0 * rows * frequencies * channels * cut.group_columns / (_FLOPS_PER_NS * tile.lanes)
    weights = _weight_bytes(channels, cut.group_columns, cut.results)
    streamed = (whole + (rest > 0)) * weights / _BYTES_PER_NS if weights > SCRATCH_BYTES else 0.0
    inputs, outputs = _VECTOR_NS[cut.results]
    moved = inputs * -(-channels // tile.lanes) + outputs * (cut.group_columns // tile.lanes)
    return -(-tasks // threads) * (max(products, streamed) + moved * cut.share)


def _row_cost(count: int, tile: Tile) -> float:
    """Rows that the tiles of a product compute for `count` rows, and the loading of their columns."""
    rows = _row_choices(tile)
    spent = 0.0
    while count > 0:
        taken = next(r for k, r in enumerate(rows) if k == len(rows) - 1 or _takes(rows, k, count))
        count -= taken
        spent += taken + 0.5
    return spent


def emit_winograd(compute: Compute, tuner: Tuner, tile: Tile, cut: Cut) -> None:
    """The step of a convolution that is cut so."""
    assert compute.hint is not None
    x, w = compute.hint.operands
    batch, out_height, out_width, m = compute.space
    _, height, width, channels = x.shape
    tile_columns = -(-out_width // cut.results)
    image_tiles = tile_columns * -(-out_height // cut.results)
    groups = -(-m // cut.group_columns)
    tasks = groups * -(-batch * image_tiles // cut.share)
    nanoseconds = cut_ns(compute.space, channels, cut, tile, 1)
    epilogue = print_epilogue(compute, _FIRST_WORD + len(_WORDS), row_axes=3)
    weights = _pack(tuner, w.name, w.known, cut.results, tile)
    top, left = compute.hint.facts["pads"]
    sizes = (
        height, width, channels, out_height, out_width, m, top, left, tile_columns, image_tiles,
        batch * image_tiles, cut.share, cut.tiles, cut.columns, groups, cut.group_columns,
    )  # fmt: skip
    values = (nanoseconds / tasks, *sizes, *epilogue.values)
    kernel = NativeKernel("winograd", winograd_text(tile, cut.results, epilogue))
    tuner.emit(kernel, (tasks,), values, (*epilogue.inputs, x.name, weights), compute.output.name)


_POINTS = {2: (0.0, 1.0, -1.0), 4: (0.0, 0.5**0.5, -(0.5**0.5), 2.0**0.5, -(2.0**0.5))}


def transform_weights(w: np.ndarray, results: int) -> np.ndarray:
    """(M, C, 3, 3) -> (frequencies, C, M) in float64: the transforms of `library/winograd.py`."""
    points = _POINTS[results]
    rows = [np.array([1.0, p, p * p]) / prod(p - q for q in points if q != p) for p in points]
    # Of F(2 x 2), zero's transform of inputs has the other sign.
    rows[0] = np.abs(rows[0])
    g = np.stack([*rows, np.array([0.0, 0.0, 1.0])])
    size = results + 2
    transformed = np.einsum("ia,mcab,jb->ijcm", g, w.astype(np.float64), g, optimize=True)
    return transformed.reshape(size * size, w.shape[1], w.shape[0])


def _pack(tuner: Tuner, name: str, known: np.ndarray | None, results: int, tile: Tile) -> str:
    """Transformed weights as panels: (panel, frequency, C, tile width), the last panel filled up with zeros."""
    assert known is not None

    def make() -> np.ndarray:
        transformed = transform_weights(known, results)
        frequencies, channels, m = transformed.shape
        panels = -(-m // tile.width)
        padded = np.zeros((frequencies, channels, panels * tile.width), np.float32)
        padded[:, :, :m] = transformed
        parted = padded.reshape(frequencies, channels, panels, tile.width)
        return np.ascontiguousarray(parted.transpose(2, 0, 1, 3)).reshape(-1)

    return tuner.constant(f"{name}|winograd{results}|{tile.width}", make)


def _row_choices(tile: Tile) -> tuple[int, ...]:
    return {16: (14, 8, 4), 8: (6, 3)}.get(tile.lanes, (8, 4))


def winograd_text(tile: Tile, results: int, epilogue: Epilogue) -> str:
    """The kernel's module."""
    size, lanes, width = results + 2, tile.lanes, tile.width
    rows = _row_choices(tile)
    numbers = {
        "results": results,
        "size": size,
        "lanes": lanes,
        "zeros": _ZEROS,
        "tiles": "\n".join(
            f"block_tile_{r} = make_block_tile({r}, {tile.vectors}, {lanes}, 4, 4096)" for r in rows
        ),
        "choices": "\n".join(_choices(rows, lanes)),
    }
    frequencies = size * size
    position = _FIRST_WORD + len(_WORDS) + epilogue.words
    locate = [
        "i0 = op_div(t0 + k, image_tiles)",
        "in_image = t0 + k - i0 * image_tiles",
        "tile_row = op_div(in_image, tile_columns)",
        "y0 = tile_row * {results}",
        "x0 = (in_image - tile_row * tile_columns) * {results}",
    ]
    locate = [line.format(**numbers) for line in locate]
    block = [
        "count = min(block_tiles, t_end - t0)",
        "n0 = group_first",
        "for k in range(count):",
        *indent(locate),
        "    image = x + i0 * height * width * c_size * 4",
        f"    target = scratch + k * {lanes * 4}",
        "    transform_inputs(target, input_step, depth_block, table, zeros, image, y0 - top, x0 - left,"
        " height, width, c_size)",
        "while n0 < n_end:",
        "    columns = min(block_columns, n_end - n0)",
        f"    for f in range({frequencies}):",
        "        c = 0",
        "        while c < columns:",
        f"            panel = op_div(n0 + c, _types.int64({width})) * {frequencies} + f",
        f"            right = w + panel * c_size * {width * 4}",
        "            target = sums + f * sum_step + c * 4",
        "            multiply(scratch + f * input_step, depth_block, count, right, c_size, target,"
        " block_columns * 4)",
        f"            c += {width}",
        "    first_column = n0",
        "    for k in range(count):",
        *indent(indent(locate)),
        "        c = 0",
        "        while c < columns:",
        "            output_tile(sums + (k * block_columns + c) * 4, sum_step, finished + c * 4,"
        " block_columns * 4)",
        f"            c += {lanes}",
        f"        for r in range(min({results}, out_height - y0)):",
        "            i1 = y0 + r",
        f"            for s in range(min({results}, out_width - x0)):",
        "                i2 = x0 + s",
        f"                tile = finished + (r * {results} + s) * block_columns * 4",
        "                start = ((i0 * out_height + i1) * out_width + i2) * m_size + n0",
        *indent(indent(indent(indent(epilogue.store)))),
        "    n0 += block_columns",
    ]
    body = [
        *(f"{name} = arg_i64(args, {_FIRST_WORD + k})" for k, name in enumerate(_WORDS)),
        *epilogue.arguments,
        f"x = arg_i64(args, {position})",
        f"w = arg_i64(args, {position + 1})",
        f"scratch = stack_bytes({SCRATCH_BYTES + 14 * 128 * 4 + 64})",
        f"finished = stack_bytes({results * results * 128 * 4})",
        f"table = stack_bytes({frequencies * 8})",
        f"zeros = stack_bytes({(_ZEROS + lanes) * 4})",
        f"set_bytes(zeros, 0, {(_ZEROS + lanes) * 4})",
        # An odd number of vectors keeps the frequencies of a tile from sharing a few sets of the cache.
        f"input_step = (block_tiles | 1) * {lanes * 4}",
        f"depth_block = {frequencies} * input_step",
        f"sum_step = (block_tiles * block_columns + {lanes}) * 4",
        f"sums = scratch + op_div(c_size + {lanes - 1}, _types.int64({lanes})) * depth_block",
        *epilogue.kernel,
        "for task in range(begin, end):",
        *indent(
            [
                "t0 = op_div(task, groups) * share",
                "t_end = min(t0 + share, tiles)",
                "group_first = task * group_columns - op_div(task, groups) * groups * group_columns",
                "n_end = min(group_first + group_columns, m_size)",
                "while t0 < t_end:",
                *indent(block),
                "    t0 += block_tiles",
            ]
        ),
    ]
    return kernel_text(library_text("vectors", "winograd") + _TEXT.format(**numbers), body)


def _takes(rows: tuple[int, ...], k: int, count: int) -> bool:
    """Whether the k-th row count, but for the last, takes the first of `count` rows."""
    if k == 0 and len(rows) == 3:
        return count > 2 * rows[1] or rows[1] + rows[2] < count <= rows[0]
    return count > rows[k + 1]


def _choices(rows: tuple[int, ...], lanes: int) -> list[str]:
    """The same, as statements."""
    lines = []
    for k, r in enumerate(rows):
        if k == len(rows) - 1:
            head = "else:" if k else "if True:"
        elif k == 0 and len(rows) == 3:
            head = f"if count > {2 * rows[1]} or (count > {rows[1] + rows[2]} and count <= {r}):"
        else:
            head = f"{'elif' if k else 'if'} count > {rows[k + 1]}:"
        lines += [
            f"        {head}",
            f"            block_tile_{r}(a, a_block, b, k, c, c_row)",
            f"            count -= {r}",
            f"            a += {r * lanes * 4}",
            f"            c += {r} * c_row",
        ]
    return lines
