"""NHWC register tiles of pixels x output channels: packed weights, and the loops over tiles.

Weights lie in panels: a panel holds, for each of the products of a sum, as many output channels as a tile is
wide; the last panel of a group is one vector wide where that is enough. A few pixels' sums against one panel
make a tile, which stays in registers until it is done and then goes through the epilogue.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from engine.backends.cpu.codegen.epilogue import Epilogue, store_epilogue, store_row_stride
from engine.backends.cpu.codegen.printer import indent
from engine.backends.cpu.codegen.tiles import AVX2, AVX512, NEON, Tile
from engine.backends.cpu.kernels.matmul.packing import transpose_panels
from engine.base.memory.pool import reserve_lasting
from engine.compiler.plan import storable

FLOPS_PER_NS = 160.0

NS_PER_RESULT = 0.15

_AVX512_WIDE = replace(AVX512, vectors=4)

_MOST_PANEL_BYTES = 128 << 10
"""Of a wide panel, which tiles of few pixels read often: so many stay in second-level cache."""


def panel_tile(tile: Tile, m: int, depth: int, pooled: int = 1) -> Tile:
    """The tile for `m` output channels of a group, with sums of `depth` products.

    With 32 registers, a tile of few pixels and twice as many vectors reads less for as many products, if its
    panels have no vectors to spare.
    """
    wide = _AVX512_WIDE
    is_whole = -(-m // tile.lanes) % wide.vectors == 0
    is_near = 4 * depth * wide.width <= _MOST_PANEL_BYTES
    return wide if tile == AVX512 and pooled == 1 and is_whole and is_near else tile


def pixel_rows(tile: Tile, pooled: int = 1) -> tuple[int, int]:
    """The pixels of a tall tile and of a short one for the remainder: of whole windows that are pooled."""
    tall, short = _PIXEL_ROWS.get(tile, (4, 2))
    window = pooled * pooled
    return tall // window * window, max(short // window, 1) * window


_PIXEL_ROWS = {AVX512: (12, 8), _AVX512_WIDE: (6, 3), AVX2: (6, 4), NEON: (8, 4)}


def padded_channels(m: int, tile: Tile) -> int:
    """Output channels of all panels of a group, padding included."""
    rest = m % tile.width
    return m - rest + (0 if rest == 0 else tile.lanes if rest <= tile.lanes else tile.width)


@storable
def pack_weights(w: np.ndarray, group: int, tile: Tile, taps_first: bool, zeros: int) -> np.ndarray:
    """Pack (M, C, *kernel) as 1-D (group, panel, tap, C, panel width), followed by zeros.

    With taps_first False the order of products is (C, tap).
    """
    m, channels, taps = w.shape[0] // group, w.shape[1], w[0, 0].size
    depth, width = channels * taps, tile.width
    whole, padded = m // width * width, padded_channels(m, tile)
    count = group * padded * depth
    memory = reserve_lasting((count + zeros) * 4).view(np.float32)
    memory[count:] = 0.0
    groups = memory[:count].reshape(group, padded * depth)
    source = np.ascontiguousarray(w, np.float32).reshape(group, m, depth)

    order = taps if taps_first else 1
    for g in range(group):
        if whole:
            panels = groups[g, : whole * depth].reshape(-1, depth, width)
            transpose_panels(panels, source[g, :whole], order)
        if whole < m:
            rest = np.zeros((padded - whole, depth), np.float32)
            rest[: m - whole] = source[g, whole:]
            transpose_panels(groups[g, whole * depth :].reshape(1, depth, -1), rest, order)
    return memory


_READ_AT_PLACE = r"read_float32\((in\d+), flat\)"

_MANY_SUMS = 16
"""Vectors of sums that keep the processor busy over the counting of a loop."""


def tile_makers(tile: Tile, maker: str, unrolls: bool, epilogue: Epilogue) -> str:
    """The tiles that `walk_tiles` calls, made by a function of the library."""
    rows = dict(zip(("tall", "short"), pixel_rows(tile, epilogue.pooled), strict=True))
    recipe = epilogue.recipe
    lines = []
    for name, vectors in _shapes(tile).items():
        for height, count in rows.items():
            unroll = f", {1 if count * vectors > _MANY_SUMS else 2}" if unrolls else ""
            lines.append(f"{name}_{height} = {maker}({count}, {vectors}, {tile.lanes}{unroll}, {recipe!r})")
    lines.append(f"prefetch_read = make_prefetch({4 * tile.width})")
    return "\n".join(lines) + "\n"


def _shapes(tile: Tile) -> dict[str, int]:
    """The vectors of its tiles by name: wide ones, and slim ones if a last panel may be one vector wide."""
    return {"wide": tile.vectors} if tile == _AVX512_WIDE else {"wide": tile.vectors, "slim": 1}


def walk_tiles(
    tile: Tile, call: Callable[[str], str], epilogue: Epilogue, rank: int, before: Sequence[str] = ()
) -> list[str]:
    """Statements for the pixels `first` to `first + count - 1` against the channels m0 to m1 - 1 of a group.

    `call` gives a tile's call by the tile's name: it reads `places`, the addresses of the tile's first pixel,
    and `panel`, and fills `sums`. `before` are statements before each tile. Where the epilogue has a recipe,
    tiles finish their sums themselves, with the ends in `sums`. Where it pools, the pixels of a window follow
    each other.
    """
    tall, short = pixel_rows(tile, epilogue.pooled)
    recipe, shift = epilogue.recipe, 2 * (epilogue.pooled - 1)
    ends = [f"start = ((first + t) >> {shift}) * m_total + m_first"]
    if recipe is not None:
        pixels = f"valid >> {shift}"
        ends += store_epilogue(recipe, "sums", columns="columns", pixels=pixels, first="m_first")

    def heights(name: str) -> list[str]:
        # Two short tiles may hold more than a tall one, and be all that is left.
        return [
            f"if rest > {2 * short} or (rest > {short} and rest <= {tall}):",
            f"    valid = min(rest, {tall})",
            *indent(ends if recipe is not None else []),
            f"    {call(name + '_tall')}",
            "else:",
            f"    valid = min(rest, {short})",
            *indent(ends if recipe is not None else []),
            f"    {call(name + '_short')}",
        ]

    shapes = [f"width_bytes = {tile.width * 4}", *heights("wide")]
    if "slim" in _shapes(tile):
        shapes = [f"if columns > {tile.lanes}:", *indent(shapes)]
        shapes += ["else:", *indent([f"width_bytes = {tile.lanes * 4}", *heights("slim")])]

    return [
        *([] if recipe is None else [store_row_stride("sums", "m_total")]),
        "m = m0",
        "while m < m1:",
        f"    columns = min({tile.width}, m1 - m)",
        "    panel = weights + m * depth * 4",
        "    m_first = group * m_size + m",
        "    t = 0",
        "    while t < count:",
        "        rest = count - t",
        "        places = table + t * 8",
        *indent(indent([*before, *_prefetch(tile, epilogue)])),
        *indent(indent(shapes)),
        *indent(indent(_store_tile(tile, epilogue, rank) if recipe is None else [])),
        "        t += valid",
        f"    m += {tile.width}",
    ]


def _prefetch(tile: Tile, epilogue: Epilogue) -> list[str]:
    """Statements that prefetch what the epilogue reads per element, such as a residual."""
    text = "\n".join(epilogue.store)
    fetches = [f"prefetch_read({name} + place)" for name in sorted(set(re.findall(_READ_AT_PLACE, text)))]
    if not fetches:
        return []
    return [
        f"for r in range(min(rest, {pixel_rows(tile)[0]})):",
        "    place = ((first + t + r) * m_total + m_first) * 4",
        *indent(fetches),
    ]


def _store_tile(tile: Tile, epilogue: Epilogue, rank: int) -> list[str]:
    pixel = pixel_indices(rank)

    def run(count: int | str) -> list[str]:
        """So many columns at a time; the last of them overlap those before."""
        return [
            "for r in range(valid):",
            *indent(pixel),
            "    done = 0",
            "    while done < columns:",
            f"        shift = min(done, columns - {count})",
            "        tile = sums + r * width_bytes + shift * 4",
            "        first_column = m_first + shift",
            "        start = pixel * m_total + first_column",
            *indent(indent(epilogue.store_columns(str(count)))),
            f"        done += {count}",
        ]

    few = 4
    lines = [f"if columns >= {tile.lanes}:", *indent(run(tile.lanes))]
    if tile.lanes > few:
        lines += [f"elif columns >= {few}:", *indent(run(few))]
    return [*lines, "else:", *indent(run("columns"))]


def pixel_indices(rank: int) -> list[str]:
    """Statements that give the pixel `first + t + r` as `pixel` and as indices of a space of 3 or 4 axes."""
    pixel = ["pixel = first + t + r"]
    if rank == 4:
        pixel += [
            "i0 = op_div(pixel, out_rows * out_columns)",
            "at_pixel = pixel - i0 * out_rows * out_columns",
            "i1 = op_div(at_pixel, out_columns)",
            "i2 = at_pixel - i1 * out_columns",
        ]
    else:
        pixel += ["i0 = op_div(pixel, out_columns)", "i1 = pixel - i0 * out_columns"]
    return pixel
