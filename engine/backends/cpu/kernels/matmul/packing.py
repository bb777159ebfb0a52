"""Packs constant matrices for tuned kernels: panels of a tile's columns."""

from __future__ import annotations

from functools import cache

import numpy as np

from engine.backends.cpu.codegen.argument_block import ArgumentBlock
from engine.backends.cpu.codegen.tiles import host_tile
from engine.backends.cpu.library import library_text
from engine.base.memory.parallel import in_parts
from engine.base.memory.pool import reserve_lasting
from engine.compiler.plan import storable
from engine.device.native import NativeSource
from engine.device.native.parallel_range import call_in_parts

_ARGUMENTS = ArgumentBlock("out rows width depth taps channels", first=0)

LEAST_TRANSPOSED = 1 << 14
"""Bytes of a matrix below which NumPy has packed it before native code is called."""


@storable
def given(elements: np.ndarray) -> np.ndarray:
    """Return the elements unchanged."""
    return elements


def matrices_of(elements: np.ndarray, sizes: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """View (count, k, n) matrices with these `strides`. Raises `ValueError` if impossible."""
    flat = np.ascontiguousarray(elements, np.float32).reshape(-1)
    return np.ndarray(sizes, np.float32, flat, strides=[4 * step for step in strides])


def pack_panels(matrices: np.ndarray, width: int) -> np.ndarray:
    """(count, k, n) of any strides -> 1-D (count, ceil(n / width), k, width), the last panel zero-filled.

    Kernels can read the result without a copy.
    """
    count, k, n = matrices.shape
    whole, left = divmod(n, width)
    panels = whole + (left > 0)
    packed = reserve_lasting(count * panels * k * width * 4).view(np.float32).reshape(count, panels, k, width)
    batch_step, row_step, column_step = matrices.strides
    if whole and row_step == 4 and column_step == 4 * k and _is_worth_transposing(matrices[0]):
        for batch, matrix in enumerate(matrices):
            transpose_panels(packed[batch, :whole], matrix[:, : whole * width].T)
    elif whole:
        steps = (batch_step, width * column_step, row_step, column_step)
        source = np.lib.stride_tricks.as_strided(matrices, (count, whole, k, width), steps)

        def pack(begin: int, end: int) -> None:
            packed[:, begin:end] = source[:, begin:end]

        in_parts(pack, whole, packed.nbytes)
    if left:
        packed[:, whole, :, :left] = matrices[:, :, whole * width :]
        packed[:, whole, :, left:] = 0.0
    return packed.reshape(-1)


def _is_worth_transposing(matrix: np.ndarray) -> bool:
    return matrix.dtype == np.float32 and matrix.nbytes >= LEAST_TRANSPOSED


def transpose_panels(target: np.ndarray, rows: np.ndarray, taps: int = 1) -> None:
    """(panels * width, depth) -> (panels, depth, width): the rows of a panel become its columns.

    With `taps`, what comes as (C, tap) in a row is packed as (tap, C). Both sides are float32 in one piece.
    """
    depth = rows.shape[1]
    width = target.size // len(target) // depth
    words = _ARGUMENTS.values(
        out=target.ctypes.data, rows=rows.ctypes.data, width=width, depth=depth, taps=taps,
        channels=depth // taps,
    )  # fmt: skip
    call_in_parts(packing_source(), np.array(words, np.int64), len(target), target.nbytes)


def packing_source() -> NativeSource:
    """The source of the kernel that packs large matrices."""
    return _turning(host_tile().lanes)


@cache
def _turning(lanes: int) -> NativeSource:
    head = library_text("vectors")
    return NativeSource(
        "transpose_panels", head + _ARGUMENTS.reading(_TURN).replace("{lanes}", str(lanes)), "kernel"
    )


_TURN = """
copy_run = make_copy_run(1, {lanes})
transpose_tile = make_transpose_tile({lanes}, 4)


def kernel(args, begin, end):
    out, rows = {out}, {rows}
    width, depth, taps, channels = {width}, {depth}, {taps}, {channels}
    block = stack_bytes({lanes} * {lanes} * 4)
    even_width = width - op_rem(width, _types.int64({lanes}))
    even_depth = depth - op_rem(depth, _types.int64({lanes}))
    for panel in range(begin, end):
        source = rows + panel * width * depth * 4
        target = out + panel * width * depth * 4
        for d in range(0, even_depth, {lanes}):
            for m in range(0, even_width, {lanes}):
                origin = source + (m * depth + d) * 4
                if taps == 1:
                    transpose_tile(origin, depth * 4, target + (d * width + m) * 4, width * 4)
                else:
                    transpose_tile(origin, depth * 4, block, {lanes} * 4)
                    for i in range({lanes}):
                        c = op_div(d + i, taps)
                        place = (d + i - c * taps) * channels + c
                        copy_run(target + (place * width + m) * 4, block + i * {lanes} * 4)
        for d in range(depth):
            c = op_div(d, taps)
            place = target + ((d - c * taps) * channels + c) * width * 4
            for m in range(even_width if d < even_depth else 0, width):
                store_f32(place, m, load_f32(source, m * depth + d))
"""
