"""Weights of 3 x 3 convolutions, transformed for Winograd's way and packed as panels.

A native kernel does it, in float64: some networks have tens of megabytes of such weights, and this is part of
loading them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from math import prod

import numpy as np

from engine import native
from engine.aligned import aligned
from engine.backends.cpu.library import library_text
from engine.backends.cpu.printer import indent, kernel_text
from engine.native import NativeSource

POINTS = {2: (0.0, 1.0, -1.0), 4: (0.0, 0.5**0.5, -(0.5**0.5), 2.0**0.5, -(2.0**0.5))}
"""Where F(2 x 2) and F(4 x 4) interpolate, beside infinity; `library/winograd.py` has the rest."""

_CHANNELS = 8
"""Input channels that are transformed before they are laid down."""

_Entry = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


def filter_matrix(results: int) -> np.ndarray:
    """G of (results + 2, 3): three weights in a row become G g."""
    points = POINTS[results]
    rows = [np.array([1.0, p, p * p]) / prod(p - q for q in points if q != p) for p in points]
    # The transform of inputs at zero has the sign that makes this one plain.
    rows[0] = np.abs(rows[0])
    return np.stack([*rows, np.array([0.0, 0.0, 1.0])])


def pack_weights(w: np.ndarray, results: int, width: int) -> np.ndarray:
    """(M, C, 3, 3) -> 1-D (panel, frequency, C, width): G g G', the last panel filled up with zeros."""
    m, channels = w.shape[:2]
    panels = -(-m // width)
    packed = aligned((panels * (results + 2) ** 2 * channels * width,), np.dtype(np.float32))
    source = np.ascontiguousarray(w)
    words = np.array([packed.ctypes.data, source.ctypes.data, m, channels], np.int64)
    _entry(results, width)(words.ctypes.data, 0, panels)
    return packed


@cache
def _entry(results: int, width: int) -> Callable[[int, int, int], None]:
    kernel = NativeSource("winograd_weights", _text(results, width), "kernel")
    return _Entry(native.load([kernel])[kernel.key])


def _text(results: int, width: int) -> str:
    g = filter_matrix(results)
    size = results + 2
    first = [f"a{i}{j} = {_sum(g[i], [f'w{k}{j}' for k in range(3)])}" for i in range(size) for j in range(3)]
    second = []
    for i in range(size):
        for j in range(size):
            total = _sum(g[j], [f"a{i}{k}" for k in range(3)])
            place = f"target + {(i * size + j) * _CHANNELS * width * 4}"
            second.append(f"write_float32({place}, lane, _types.float32({total}))")
    lane = [*(f"w{k // 3}{k % 3} = load_f64(taps, {k * width} + lane)" for k in range(9)), *first, *second]
    body = [
        *(f"{name} = arg_i64(args, {k})" for k, name in enumerate(("out", "w", "m_size", "c_size"))),
        f"taps = stack_bytes({9 * width * 8})",
        f"staged = stack_bytes({size * size * _CHANNELS * width * 4})",
        "for panel in range(begin, end):",
        "    c0 = 0",
        "    while c0 < c_size:",
        f"        count = min({_CHANNELS}, c_size - c0)",
        "        for c in range(count):",
        f"            for lane in range({width}):",
        f"                m = panel * {width} + lane",
        "                source = w + (m * c_size + c0 + c) * 36",
        "                for tap in range(9):",
        "                    value = _types.float64(load_f32(source, tap)) if m < m_size else 0.0",
        f"                    store_f64(taps, tap * {width} + lane, value)",
        f"            target = staged + c * {width * 4}",
        f"            for lane in range({width}):",
        *indent(indent(indent(indent(lane)))),
        # Frequencies lie so far apart that single lines of all of them would share a few sets of the cache.
        f"        for f in range({size * size}):",
        f"            place = out + ((panel * {size * size} + f) * c_size + c0) * {width * 4}",
        f"            copy_bytes(place, staged + f * {_CHANNELS * width * 4}, count * {width * 4})",
        f"        c0 += {_CHANNELS}",
    ]
    return kernel_text(library_text(), body)


def _sum(factors: np.ndarray, names: list[str]) -> str:
    """A sum of products, without those by 0 and 1."""
    terms = [
        name if f == 1.0 else f"{float(f)!r} * {name}" for f, name in zip(factors, names, strict=True) if f
    ]
    return " + ".join(terms)
