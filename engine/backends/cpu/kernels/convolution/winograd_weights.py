"""Winograd transform of 3 x 3 weights, packed as panels.

A native kernel does it, in float64: some networks have tens of megabytes of such weights, and this is part of
loading them.
"""

from __future__ import annotations

from functools import cache
from math import prod

import numpy as np

from engine.backends.cpu.codegen.argument_block import ArgumentBlock
from engine.backends.cpu.codegen.tiles import host_tile
from engine.backends.cpu.library import library_text
from engine.base.memory.pool import reserve_lasting
from engine.compiler.plan import storable
from engine.device.native import NativeSource
from engine.device.native.parallel_range import call_in_parts

POINTS = {2: (0.0, 1.0, -1.0), 4: (0.0, 0.5**0.5, -(0.5**0.5), 2.0**0.5, -(2.0**0.5))}
"""Where F(2 x 2) and F(4 x 4) interpolate, apart from infinity; `library/winograd.py` has the rest."""

_CHANNELS = 8
"""Input channels that are transformed before they are laid down."""

_MOST_SIZE = max(POINTS) + 2


_ARGUMENTS = ArgumentBlock("out w g m_size c_size size", first=0)


def filter_matrix(results: int) -> np.ndarray:
    """G of (results + 2, 3): three weights in a row become G g."""
    points = POINTS[results]
    rows = [np.array([1.0, p, p * p]) / prod(p - q for q in points if q != p) for p in points]
    # The input transform at zero has the sign that makes this one positive.
    rows[0] = np.abs(rows[0])
    return np.stack([*rows, np.array([0.0, 0.0, 1.0])])


@storable
def pack_weights(w: np.ndarray, results: int, width: int) -> np.ndarray:
    """(M, C, 3, 3) -> 1-D (panel, frequency, C, width): G g G', the last panel zero-padded."""
    m, channels = w.shape[:2]
    panels = -(-m // width)
    size = results + 2
    packed = reserve_lasting(panels * size * size * channels * width * 4).view(np.float32)
    source, g = np.ascontiguousarray(w), filter_matrix(results)
    words = _ARGUMENTS.values(
        out=packed.ctypes.data, w=source.ctypes.data, g=g.ctypes.data, m_size=m, c_size=channels, size=size
    )
    call_in_parts(_transforming(width), np.array(words, np.int64), panels, packed.nbytes)
    return packed


def transforming_source() -> NativeSource:
    """The source of the kernel that transforms weights."""
    return _transforming(host_tile().width)


@cache
def _transforming(width: int) -> NativeSource:
    numbers = {
        "width": width,
        "channels": _CHANNELS,
        "taps_bytes": 9 * width * 8,
        "half_bytes": 3 * _MOST_SIZE * width * 8,
        "staged_bytes": _MOST_SIZE * _MOST_SIZE * _CHANNELS * width * 4,
    }
    text = library_text() + _ARGUMENTS.reading(_TEXT).format(**numbers)
    return NativeSource("winograd_weights", text, "kernel")


_TEXT = """
@helper
def weigh(g, x, step, lane):
    total = load_f64(g, 0) * load_f64(x, lane)
    total += load_f64(g, 1) * load_f64(x, step + lane)
    return total + load_f64(g, 2) * load_f64(x, 2 * step + lane)


def kernel(args, begin, end):
    out, w, g = {out}, {w}, {g}
    m_size, c_size, size = {m_size}, {c_size}, {size}
    taps = stack_bytes({taps_bytes})
    half = stack_bytes({half_bytes})
    staged = stack_bytes({staged_bytes})
    row = {width} * 8
    for panel in range(begin, end):
        c0 = 0
        while c0 < c_size:
            count = min({channels}, c_size - c0)
            for c in range(count):
                for lane in range({width}):
                    m = panel * {width} + lane
                    source = w + (m * c_size + c0 + c) * 36
                    for tap in range(9):
                        value = _types.float64(load_f32(source, tap)) if m < m_size else 0.0
                        store_f64(taps, tap * {width} + lane, value)
                for i in range(size):
                    for j in range(3):
                        target = half + (3 * i + j) * row
                        for lane in range({width}):
                            store_f64(target, lane, weigh(g + 24 * i, taps + j * row, 3 * {width}, lane))
                for i in range(size):
                    for j in range(size):
                        target = staged + ((i * size + j) * {channels} + c) * {width} * 4
                        for lane in range({width}):
                            value = weigh(g + 24 * j, half + 3 * i * row, {width}, lane)
                            store_f32(target, lane, value)
            # Frequencies lie so far apart that single lines of them all would share a few sets of a cache.
            for f in range(size * size):
                place = out + ((panel * size * size + f) * c_size + c0) * {width} * 4
                copy_bytes(place, staged + f * {channels} * {width} * 4, count * {width} * 4)
            c0 += {channels}
"""
