"""Rules of matrix products, and of convolutions as such: operands are packed, then tiles are computed.

The kernels are those of `cpu_gemm` and `gpu_gemm`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np

from engine.backends.opencl.codegen.tuned_kernel import OpenCLEpilogue, axis_names
from engine.backends.opencl.kernels import cpu_gemm, gpu_gemm
from engine.backends.operands import emit, rows_of
from engine.backends.windows import Windows2D, windows_first
from engine.compiler.plan import Compute, Tuner, storable
from engine.kernels.expr import arg, index, lit, load
from engine.kernels.value import Value

# Tiles read up to this many elements beyond an image; what they read there is dropped.
_SLACK = 64


def matmul_on_cpu(compute: Compute, tuner: Tuner) -> bool:
    """Rule for matrix products on CPUs: tiles of rows x 16 columns."""
    (a, b), attributes = compute.operands, compute.attributes
    m, n, k, batch = attributes["m"], attributes["n"], attributes["k"], attributes["batch"]
    a_b, a_m, a_k = attributes["a_strides"]
    b_b, b_k, b_n = attributes["b_strides"]
    strips = -(-n // cpu_gemm.COLUMNS)
    source, b_strip, readable = b.root.name, cpu_gemm.COLUMNS, n
    if b.known is not None or b_n != 1:
        slices = batch if b_b else 1
        if b.known is not None:
            known = b.known
            label = f"{b.root.name}:strips:{slices}:{b_b}:{k}x{n}:{b_k}:{b_n}"
            pack = partial(cpu_gemm.pack_strips, known, slices, (b_b, b_k, b_n), k, n)
            source = tuner.constant(label, pack)
        else:
            source = tuner.temporary(slices * strips * k * cpu_gemm.COLUMNS, b.dtype)
            matrix = (n, k, b_b, b_k, b_n, strips)
            tuner.emit(
                cpu_gemm.strips(b.dtype.name),
                (-(-k // cpu_gemm.STRIP_ROWS), strips, slices),
                matrix,
                (b.root.name,),
                source,
            )
        b_strip, b_k, readable = k * cpu_gemm.COLUMNS, cpu_gemm.COLUMNS, strips * cpu_gemm.COLUMNS
        b_b = strips * b_strip if b_b else 0
    row, column = axis_names(compute, 3, {0: "batch", 1: "m"}), axis_names(compute, 3, {2: "j"})
    epilogue = OpenCLEpilogue(compute, row, column)
    rows = cpu_gemm.rows_for(6)
    kernel = cpu_gemm.matmul(epilogue, rows)
    numbers = (m, n, k, a_b, a_m, a_k, b_b, b_strip, b_k, readable)
    grid = (-(-m // rows), strips, batch)
    return epilogue.emit(tuner, kernel, grid, numbers, (a.root.name, source))


def matmul_on_gpu(compute: Compute, tuner: Tuner) -> bool:
    """Rule for matrix products on GPUs: tiles in local memory."""
    (a, b), attributes = compute.operands, compute.attributes
    m, n, k, batch = attributes["m"], attributes["n"], attributes["k"], attributes["batch"]
    row, column = axis_names(compute, 3, {0: "batch", 1: "m"}), axis_names(compute, 3, {2: "j"})
    epilogue = OpenCLEpilogue(compute, row, column)
    per_item = gpu_gemm.rows_for(64)
    kernel = gpu_gemm.matmul(epilogue, per_item)
    numbers = (m, n, k, *attributes["a_strides"], *attributes["b_strides"])
    grid = (-(-m // (gpu_gemm.SIDE * per_item)), -(-n // gpu_gemm.COLUMNS), batch)
    return epilogue.emit(tuner, kernel, grid, numbers, (a.root.name, rows_of(b, tuner)))


@dataclass(frozen=True)
class _Geometry:
    """A convolution over rows and columns.

    `packed`: rows and columns of a packed image; `phases`: images per channel.
    """

    images: int
    channels: int
    outputs: int
    group: int
    win: Windows2D

    @staticmethod
    def of(compute: Compute) -> _Geometry | None:
        """The geometry of a hinted step; None for three or more spatial axes."""
        (x, w), win = compute.operands, windows_first(compute)
        if win is None:
            return None
        return _Geometry(x.shape[0], x.shape[1], w.shape[0], int(compute.attributes["group"]), win)

    @property
    def packed(self) -> tuple[int, int]:
        """Rows and columns of a packed image: what the last window reaches."""
        if self.win.is_pointwise:
            return self.win.height, self.win.width
        rows, columns = (-(-r // s) for r, s in zip(self.win.reach, self.win.strides, strict=True))
        return rows, columns

    @property
    def phases(self) -> int:
        """Packed images per channel."""
        return prod(self.win.strides)


def _pack(geometry: _Geometry, x: Value, tuner: Tuner, form: str) -> str:
    """The name of the packed input."""
    if geometry.win.is_pointwise:
        return x.root.name
    rows, columns = geometry.packed
    planes = geometry.images * geometry.channels
    scratch = tuner.temporary(planes * geometry.phases * rows * columns + _SLACK, x.dtype)
    win = geometry.win
    numbers = (win.height, win.width, rows, columns, *win.strides, *win.pads, planes)
    if form == "cpu":
        grid = (-(-rows // cpu_gemm.PACK_ROWS), geometry.phases, planes)
        tuner.emit(cpu_gemm.pack(x.dtype.name), grid, numbers, (x.root.name,), scratch)
    else:
        grid = (-(-rows * columns // gpu_gemm.GROUP), geometry.phases, planes)
        tuner.emit(gpu_gemm.pack(x.dtype.name), grid, numbers, (x.root.name,), scratch)
    return scratch


def conv_on_cpu(compute: Compute, tuner: Tuner) -> bool:
    """Rule for convolutions over one or two axes on CPUs."""
    x, w = compute.operands
    geometry = _Geometry.of(compute)
    if geometry is None:
        return False
    per_group, channels = geometry.outputs // geometry.group, geometry.channels // geometry.group
    rows, group = cpu_gemm.rows_for(per_group), geometry.group
    if w.known is not None:
        known = w.known.reshape(w.shape)
        label = f"{w.name}:tiles:{'x'.join(map(str, w.shape))}:{group}:{rows}"
        weights = tuner.constant(label, partial(pack_tiles, known, group, rows))
    else:
        weights = _emit_tiles(tuner, w, group, rows)
    source = _pack(geometry, x, tuner, "cpu")
    (hq, wq), (oh, ow) = geometry.packed, geometry.win.out
    plane, (sh, sw), (dh, dw) = hq * wq, geometry.win.strides, geometry.win.dilations
    x_c = plane * geometry.phases
    positions = (oh - 1) * wq + ow
    span = cpu_gemm.positions_for(rows * channels * prod(geometry.win.kernel))
    readable = positions if geometry.win.is_pointwise else 1 << 30
    epilogue = OpenCLEpilogue(compute, axis_names(compute, x.rank, {0: "n", 1: "m"}), {})
    numbers = (
        positions, per_group, channels, *geometry.win.kernel, group, oh, ow, wq,
        x_c * geometry.channels, x_c * channels, x_c, plane, sh, sw,
        dh // sh, dw // sw, dh % sh, dw % sw, readable, span,
    )  # fmt: skip
    grid = (-(-per_group // rows), -(-positions // span), geometry.images * group)
    return epilogue.emit(tuner, cpu_gemm.conv(epilogue, rows), grid, numbers, (source, weights))


def conv_on_gpu(compute: Compute, tuner: Tuner) -> bool:
    """Rule for convolutions over one or two axes on GPUs."""
    x, w = compute.operands
    geometry = _Geometry.of(compute)
    if geometry is None:
        return False
    per_group, channels = geometry.outputs // geometry.group, geometry.channels // geometry.group
    if per_group < 4:
        # A tile would be nearly empty: depthwise convolutions are left to the generic kernel.
        return False
    per_item = gpu_gemm.rows_for(per_group)
    source = _pack(geometry, x, tuner, "gpu")
    (hq, wq), (oh, ow) = geometry.packed, geometry.win.out
    plane, depth = hq * wq, channels * prod(geometry.win.kernel)
    x_c = plane * geometry.phases
    taps = tuner.temporary(depth, np.dtype(np.int32))
    numbers = (depth, *geometry.win.kernel, x_c, plane, wq, *geometry.win.strides, *geometry.win.dilations)
    tuner.emit(gpu_gemm.taps(), (-(-depth // gpu_gemm.GROUP), 1, 1), numbers, (), taps)
    positions = (oh - 1) * wq + ow
    epilogue = OpenCLEpilogue(compute, axis_names(compute, x.rank, {0: "n", 1: "m"}), {})
    sizes = (per_group, positions, depth, geometry.group, oh, ow, wq, x_c * geometry.channels, x_c * channels)
    grid = (
        -(-per_group // (gpu_gemm.SIDE * per_item)),
        -(-positions // gpu_gemm.COLUMNS),
        geometry.images * geometry.group,
    )
    operands = (source, rows_of(w, tuner), taps)
    return epilogue.emit(tuner, gpu_gemm.conv(epilogue, per_item), grid, sizes, operands)


@storable
def pack_tiles(known: np.ndarray, group: int, rows: int) -> np.ndarray:
    """Pack weights (M, C, *kernel) as (group, tile, *kernel, c, row), the last tile zero-padded."""
    per_group, channels, taps = known.shape[0] // group, known.shape[1], prod(known.shape[2:])
    tiles = -(-per_group // rows)
    wide = np.zeros((group, tiles * rows, channels, taps), known.dtype)
    wide[:, :per_group] = known.reshape(group, per_group, channels, taps)
    tiled = wide.reshape(group, tiles, rows, channels, taps).transpose(0, 1, 4, 3, 2)
    return np.ascontiguousarray(tiled).reshape(-1)


def _emit_tiles(tuner: Tuner, w: Value, group: int, rows: int) -> str:
    """Computed weights as `pack_tiles` lays them out; the name of the tensor."""
    per_group, channels, taps = w.shape[0] // group, w.shape[1], prod(w.shape[2:])
    g, tile, tap, c, row = map(index, range(5))
    of_group = tile * lit(rows) + row
    position = ((g * per_group + of_group) * channels + c) * taps + tap
    space = group, -(-per_group // rows), taps, channels, rows
    name = tuner.temporary(prod(space), w.dtype)
    emit(tuner, load(w, position, of_group < arg(per_group)), space, w.dtype, name)
    return name
