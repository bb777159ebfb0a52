"""Winograd NHWC convolutions of float32 with 3 x 3 kernels: F(2 x 2) and F(4 x 4).

A task transforms the inputs of a block of tiles into its stack, multiplies each frequency by the weights of
that frequency, and transforms the sums back, a block of output channels at a time. Weights are transformed
once, in float64. F(4 x 4) needs 36 products for 16 results where F(2 x 2) needs 64 and direct ones 144,
but its weights take 4 times the memory instead of 16 / 9, and its rounding errors are larger: relative to the
largest result 2e-6 where F(2 x 2) has 5e-7 and direct products 2e-7 (256 channels of random numbers).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from engine.backends.cpu.codegen.argument_block import ArgumentBlock
from engine.backends.cpu.codegen.epilogue import (
    EPILOGUE_BYTES,
    Epilogue,
    print_epilogue,
    store_epilogue,
    store_row_stride,
)
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.backends.cpu.codegen.printer import indent, kernel_text
from engine.backends.cpu.codegen.schedule import Blocks, TaskGrid, TaskSchedule, emit
from engine.backends.cpu.codegen.task_partition import MOST_COLUMNS
from engine.backends.cpu.codegen.tiles import Tile, host_tile
from engine.backends.cpu.kernels.convolution.winograd_partition import (
    TILES,
    ConvChoice,
    choose_algorithm,
    is_possible,
    row_choices,
    scratch_bytes,
)
from engine.backends.cpu.kernels.convolution.winograd_weights import pack_weights
from engine.backends.cpu.library import library_text
from engine.compiler.plan import Compute, Tuner
from engine.kernels.size import Number, Size

_GRID = TaskGrid(tile="tiles", m="m_size")
_ARGUMENTS = ArgumentBlock(
    "height width c_size out_height out_width m_size top left tile_columns image_tiles tiles",
    _GRID.arguments,
    "block_tiles next_step block_columns",
)

_TEXT = """
{tiles}
input_tile = make_input_tile({results}, {lanes})
edge_tile = make_edge_tile({results}, {lanes})
output_tile = make_output_tile({results}, {lanes}, {recipe})


@helper
def transform_inputs(target, step, block, zeros, source, y, x, height, width, channels):
    pixel = channels * 4
    place = source + (y * width + x) * pixel
    if y >= 0 and x >= 0 and y + {size} <= height and x + {size} <= width:
        for c in range(0, channels, {lanes}):
            input_tile(place + c * 4, width * pixel, pixel, target, step)
            target += block
    else:
        for c in range(0, channels, {lanes}):
            edge_tile(place + c * 4, width * pixel, pixel, -y, height - y, -x, width - x, zeros, target, step)
            target += block


@helper
def multiply(a, a_block, count, b, k, c, c_row, next_step):
    next_b = b + k * {row_bytes}
    while count > 0:
{choices}
"""


def tune_winograd(
    compute: Compute, tuner: Tuner, threads: int, direct: Callable[[Compute, Tuner, int], bool]
) -> bool:
    """Rule for hints of kind "conv": NHWC, 3 x 3 kernels with stride 1, constant weights.

    `direct` is the rule for others, and for those that are as fast directly. Where sizes are open, the plan
    has the steps of each algorithm, all but one of which compute no images.
    """
    if not _fits(compute):
        return direct(compute, tuner, threads)
    m, channels = compute.operands[1].shape[:2]
    tile = host_tile()
    choice = choose_algorithm(_conv_space(compute), channels, tile, threads)
    first, *others = choice.images
    for results, images in zip(TILES, others, strict=True):
        if is_possible(results, channels, m) and _may_have(images):
            emit_winograd(_of_images(compute, images), tuner, tile, results, choice)
    return not _may_have(first) or direct(_of_images(compute, first), tuner, threads)


def _fits(compute: Compute) -> bool:
    """Whether these kernels can compute a convolution."""
    attributes, (_, w) = compute.attributes, compute.operands
    if not attributes.get("channels_last") or attributes.get("x_first") or w.shape[2:] != (3, 3):
        return False
    if (*attributes["strides"], *attributes["dilations"], attributes["group"]) != (1, 1, 1, 1, 1):
        return False
    return w.known is not None and compute.is_float32


def _conv_space(compute: Compute) -> tuple[int, ...]:
    """The space of a convolution's results, before they are pooled."""
    batch, height, width, m = compute.space
    side = compute.attributes.get("pooled", 1)
    return batch, side * height, side * width, m


def _may_have(images: Number) -> bool:
    """Whether there are any images, or there may be at other sizes."""
    return isinstance(images, Size) or images > 0


def _of_images(compute: Compute, images: int) -> Compute:
    """The part of a convolution that computes the first images."""
    return replace(compute, space=(images, *compute.space[1:]))


def emit_winograd(compute: Compute, tuner: Tuner, tile: Tile, results: int, choice: ConvChoice) -> None:
    """Emit the step of a convolution with tiles of `results` along a side, partitioned so."""
    x, w = compute.operands
    batch, out_height, out_width, m = _conv_space(compute)
    partition, share = choice.partition, choice.partition.share
    _, height, width, channels = x.shape
    tile_columns = -(-out_width // results)
    image_tiles = tile_columns * -(-out_height // results)
    tiles = batch * image_tiles
    blocks = (
        Blocks(-(-tiles // share), share),
        Blocks(-(-m // partition.group_columns), partition.group_columns),
    )  # fmt: skip
    epilogue = print_epilogue(compute, _ARGUMENTS.end, row_axes=3)
    weights = _pack(tuner, w.name, w.known, results, tile.width)
    top, left = compute.attributes["pads"]
    # All tiles of rows together prefetch the next weights once, each with two lines a channel.
    step = 2 * tile.width // choice.row_tiles
    sizes = _ARGUMENTS.values(
        height=height, width=width, c_size=channels, out_height=out_height, out_width=out_width, m_size=m,
        top=top, left=left, tile_columns=tile_columns, image_tiles=image_tiles, tiles=tiles,
        **_GRID.values(*blocks), block_tiles=partition.tiles, next_step=step, block_columns=partition.columns,
    )  # fmt: skip
    kernel = NativeKernel("winograd", winograd_text(tile, results, epilogue))
    schedule = TaskSchedule(blocks[0].count * blocks[1].count, choice.task_ns, blocks)
    emit(tuner, kernel, schedule, sizes, (x.name, weights), compute.output.name, epilogue)


def _pack(tuner: Tuner, name: str, known: np.ndarray | None, results: int, width: int) -> str:
    assert known is not None
    return tuner.constant(f"{name}|winograd{results}|{width}", partial(pack_weights, known, results, width))


def winograd_text(tile: Tile, results: int, epilogue: Epilogue) -> str:
    """Source of the kernel."""
    size, lanes, width = results + 2, tile.lanes, tile.width
    rows = row_choices(tile)
    numbers = {
        "results": results,
        "size": size,
        "lanes": lanes,
        "recipe": epilogue.recipe,
        "row_bytes": 4 * width,
        "tiles": "\n".join(f"block_tile_{r} = make_block_tile({r}, {tile.vectors}, {lanes})" for r in rows),
        "choices": "\n".join(_choices(rows, lanes)),
    }
    frequencies = size * size
    # A block's first tile is found by division, the others from the one before.
    locate = [
        "i0 = op_div(tile0, image_tiles)",
        "in_image = tile0 - i0 * image_tiles",
        "tile_row = op_div(in_image, tile_columns)",
        f"y0, x0 = tile_row * {results}, (in_image - tile_row * tile_columns) * {results}",
        "for k in range(count):",
    ]
    advance = [
        f"x0 += {results}",
        "if x0 >= out_width:",
        f"    x0, y0 = 0, y0 + {results}",
        "    if y0 >= out_height:",
        "        y0, i0 = 0, i0 + 1",
    ]
    block = [
        "count = min(block_tiles, tile1 - tile0)",
        "m = m0",
        *locate,
        "    image = x + i0 * height * width * c_size * 4",
        f"    target = scratch + k * {lanes * 4}",
        "    transform_inputs(target, input_step, depth_block, zeros, image, y0 - top, x0 - left,"
        " height, width, c_size)",
        *indent(advance),
        "while m < m1:",
        "    columns = min(block_columns, m1 - m)",
        f"    for f in range({frequencies}):",
        "        c = 0",
        "        while c < columns:",
        f"            panel = op_div(m + c, _types.int64({width})) * {frequencies} + f",
        f"            right = w + panel * c_size * {width * 4}",
        "            target = sums + f * sum_step + c * 4",
        "            multiply(scratch + f * input_step, depth_block, count, right, c_size, target,"
        " block_columns * 4, next_step)",
        f"            c += {width}",
        *indent(locate),
        *indent(indent([*_finish(results, lanes, epilogue), *advance])),
        "    m += block_columns",
    ]
    lead = [
        *_ARGUMENTS.prologue("x", "w", epilogue=epilogue),
        # The padding after the last sums takes the surplus rows of a product's tiles.
        f"scratch = stack_bytes({scratch_bytes(tile) + max(rows) * MOST_COLUMNS * 4})",
        f"finished = stack_bytes({max(results * results * MOST_COLUMNS * 4, EPILOGUE_BYTES)})",
        f"zeros = stack_bytes({lanes * 4})",
        f"set_bytes(zeros, 0, {lanes * 4})",
        # An odd number of vectors keeps the frequencies of a tile from sharing a few sets of the cache.
        f"input_step = (block_tiles | 1) * {lanes * 4}",
        f"depth_block = {frequencies} * input_step",
        f"sum_step = (block_tiles * block_columns + {lanes}) * 4",
        f"sums = scratch + op_div(c_size + {lanes - 1}, _types.int64({lanes})) * depth_block",
        *epilogue.kernel,
        *([] if epilogue.recipe is None else [store_row_stride("finished", "m_size")]),
    ]
    task = [*_GRID.locate(), "while tile0 < tile1:", *indent(block), "    tile0 += block_tiles"]
    head = library_text("vectors", "epilogue", "winograd", helpers=_TEXT.format(**numbers))
    return kernel_text(head, lead, task)


def _finish(results: int, lanes: int, epilogue: Epilogue) -> list[str]:
    """Statements that transform the sums of a tile back and store its results."""
    source = "sums + (k * block_columns + c) * 4"
    if epilogue.recipe is not None:
        shift = epilogue.pooled - 1
        return [
            f"rows = min({results}, out_height - y0) >> {shift}",
            f"pixels = min({results}, out_width - x0) >> {shift}",
            f"row_size = (out_width >> {shift}) * m_size",
            f"row = i0 * (out_height >> {shift}) + (y0 >> {shift})",
            f"first = row * row_size + (x0 >> {shift}) * m_size + m",
            f"for c in range(0, columns, {lanes}):",
            "    start = first + c",
            *indent(
                store_epilogue(
                    epilogue.recipe, "finished", columns="columns - c", pixels="pixels", first="m + c"
                )
            ),
            f"    output_tile({source}, sum_step, finished, row_size * 4, rows)",
        ]
    return [
        f"for c in range(0, columns, {lanes}):",
        f"    output_tile({source}, sum_step, finished + c * 4, block_columns * 4, 0)",
        "first_column = m",
        f"for r in range(min({results}, out_height - y0)):",
        "    i1 = y0 + r",
        f"    for s in range(min({results}, out_width - x0)):",
        "        i2 = x0 + s",
        f"        tile = finished + (r * {results} + s) * block_columns * 4",
        "        start = ((i0 * out_height + i1) * out_width + i2) * m_size + m",
        *indent(indent(epilogue.store)),
    ]


def _choices(rows: tuple[int, ...], lanes: int) -> list[str]:
    """Statements that choose the tile for the first of `count` rows, as `rows_taken` does."""
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
            f"            block_tile_{r}(a, a_block, b, k, c, c_row, next_b, next_step)",
            f"            count -= {r}",
            f"            a += {r * lanes * 4}",
            f"            c += {r} * c_row",
            "            next_b += 2 * k * next_step",
        ]
    return lines
