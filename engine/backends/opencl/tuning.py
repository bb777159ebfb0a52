"""Chooses tuned kernels for a step, and packs their operands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np

from engine.backends.gpu.blends import Blend
from engine.backends.gpu.expert_products import ExpertProduct
from engine.backends.gpu.kernels import GROUP, Kernels, ThreadStep
from engine.backends.gpu.packed_products import tune_packed
from engine.backends.gpu.regions import Regions
from engine.backends.gpu.rules import SHARED_RULES
from engine.backends.gpu.scans import Blocks, MarkedRows, Marks
from engine.backends.gpu.suppressions import Suppression
from engine.backends.opencl import cpu_kernels, gpu_kernels, pool_kernels
from engine.backends.opencl.blends import emit_blend
from engine.backends.opencl.experts import TILES, emit_product, lay_out
from engine.backends.opencl.packed_rows import read_packed
from engine.backends.opencl.printer import element
from engine.backends.opencl.regions import emit_means
from engine.backends.opencl.scans import emit_blocks, emit_marks, emit_rows
from engine.backends.opencl.sort import SORT_HEAD, sort_statements
from engine.backends.opencl.suppression import emit_alone, emit_step
from engine.backends.opencl.trees import tune_leaves
from engine.backends.opencl.tuned_kernel import (
    Epilogue,
    axis_names,
    build,
    divide,
    divisor_names,
    divisor_values,
    indent,
)
from engine.backends.operands import emit, flattened, plain
from engine.backends.windows import Windows, pair, windows_first
from engine.compiler.plan import Compute, Tuner, storable
from engine.kernels.expr import arg, index, lit, load
from engine.kernels.value import Value

# Tiles read up to this many elements beyond an image; what they read there is dropped.
_SLACK = 64


class CLKernels(Kernels):
    """Kernels in OpenCL C, of a form, "cpu" or "gpu"."""

    output, shared, barrier = "y", "__local", "barrier(CLK_LOCAL_MEM_FENCE);"
    as_int, bits = "(int){}", "as_int({})"

    def __init__(self, form: str) -> None:
        self._form = form
        if form == "cpu":
            self.emit_sorted_block = self._emit_sorted_block
        self.tile = TILES[form]

    def fits(self, elements: int, dtype: np.dtype) -> bool:
        return True

    def load(self, slot: int, position: str, kind: str) -> str:
        return element(kind, _INPUTS[slot], position)

    def divide(self, number: str, by: str) -> str:
        return divide(number, by)

    def raised(self, position: str, number: str) -> str:
        return f"atomic_max(y + {position}, {number});"

    def emit(self, tuner: Tuner, step: ThreadStep) -> bool:
        thread = f"const int t = (f0 + (int)get_group_id(0)) * {GROUP} + (int)get_local_id(0);"
        body = indent([*step.shared, thread, *step.lines], 1)
        return self._emit(tuner, step, body, GROUP)

    def _emit_sorted_block(
        self, tuner: Tuner, step: ThreadStep, length: str, read: Callable[[str, str], str]
    ) -> bool:
        return self._emit(tuner, step, sort_statements(length, read), 1, SORT_HEAD)

    @staticmethod
    def _emit(tuner: Tuner, step: ThreadStep, body: str, local: int, head: str = "") -> bool:
        operands = [f"{name}:{kind}" for name, (_, kind) in zip(_INPUTS, step.inputs, strict=False)]
        names = (*step.names, *divisor_names(step.divisors))
        values = (*step.values, *divisor_values(step.divided_by))
        kernel = build(body, None, operands, names, (local, 1, 1), output="int32", area=step.area, head=head)
        tensors = tuple(tensor for tensor, _ in step.inputs)
        tuner.emit(kernel, (-(-step.threads // local), 1, 1), values, tensors, step.output)
        return True

    def emit_blocks(self, tuner: Tuner, blocks: Blocks) -> bool:
        return emit_blocks(blocks, tuner.compute, tuner)

    def emit_rows(self, tuner: Tuner, rows: MarkedRows) -> bool:
        return emit_rows(rows, tuner.compute, tuner, self._form)

    def emit_marks(self, tuner: Tuner, marks: Marks) -> bool:
        return emit_marks(marks, tuner.compute, tuner)

    def emit_means(self, tuner: Tuner, step: Regions) -> bool:
        return emit_means(step, tuner, self._form)

    def emit_blend(self, tuner: Tuner, blend: Blend) -> bool:
        return emit_blend(blend, tuner, self._form)

    def emit_suppression(self, tuner: Tuner, step: Suppression) -> bool:
        return (emit_step if self._form == "gpu" else emit_alone)(tuner, step)

    def lay_out(self, tuner: Tuner, weights: Value) -> str:
        return lay_out(weights, tuner, self._form)

    def emit_product(self, tuner: Tuner, product: ExpertProduct) -> bool:
        return emit_product(product, tuner.compute, tuner, self._form)


_INPUTS = "XL"
"""Names of the tensors that a `ThreadStep` reads."""

_KERNELS = {form: CLKernels(form) for form in TILES}


def tune(compute: Compute, tuner: Tuner, form: str) -> bool:
    """Replace a step by tuned kernels of a form, "cpu" or "gpu"; False leaves it to the generic kernel."""
    if compute.hint is None:
        return False
    kind, kernels = compute.hint.kind, _KERNELS[form]
    if kind in SHARED_RULES:
        return SHARED_RULES[kind](compute, tuner, kernels)
    if kind in RULES:
        return RULES[kind](compute, tuner, form)
    widened = plain(compute, tuner, kernels.fits)
    if widened is None or widened.hint is None:
        return False
    return PRODUCTS[widened.hint.kind, form](widened, tuner)


def _packed(compute: Compute, tuner: Tuner, form: str) -> bool:
    return tune_packed(
        compute, tuner, _KERNELS[form].fits,
        lambda rows: read_packed(rows, compute, tuner, form),
        lambda product: PRODUCTS["matmul", form](product, tuner),
    )  # fmt: skip


def _matmul_cpu(compute: Compute, tuner: Tuner) -> bool:
    (a, b), attributes = compute.operands, compute.attributes
    m, n, k, batch = attributes["m"], attributes["n"], attributes["k"], attributes["batch"]
    a_b, a_m, a_k = attributes["a_strides"]
    b_b, b_k, b_n = attributes["b_strides"]
    strips = -(-n // cpu_kernels.COLUMNS)
    source, b_strip, readable = b.root.name, cpu_kernels.COLUMNS, n
    if b.known is not None or b_n != 1:
        slices = batch if b_b else 1
        if b.known is not None:
            known = b.known
            label = f"{b.root.name}:strips:{slices}:{b_b}:{k}x{n}:{b_k}:{b_n}"
            pack = partial(cpu_kernels.pack_strips, known, slices, (b_b, b_k, b_n), k, n)
            source = tuner.constant(label, pack)
        else:
            source = tuner.temporary(slices * strips * k * cpu_kernels.COLUMNS, b.dtype)
            matrix = (n, k, b_b, b_k, b_n, strips)
            tuner.emit(
                cpu_kernels.strips(b.dtype.name),
                (-(-k // cpu_kernels.STRIP_ROWS), strips, slices),
                matrix,
                (b.root.name,),
                source,
            )
        b_strip, b_k, readable = k * cpu_kernels.COLUMNS, cpu_kernels.COLUMNS, strips * cpu_kernels.COLUMNS
        b_b = strips * b_strip if b_b else 0
    row, column = axis_names(compute, 3, {0: "batch", 1: "m"}), axis_names(compute, 3, {2: "j"})
    epilogue = Epilogue(compute, row, column)
    rows = cpu_kernels.rows_for(6)
    kernel = cpu_kernels.matmul(epilogue, rows)
    numbers = (m, n, k, a_b, a_m, a_k, b_b, b_strip, b_k, readable)
    grid = (-(-m // rows), strips, batch)
    inputs = (*epilogue.inputs, a.root.name, source)
    tuner.emit(kernel, grid, (*numbers, *epilogue.values), inputs, compute.output.name)
    return True


def _matmul_gpu(compute: Compute, tuner: Tuner) -> bool:
    (a, b), attributes = compute.operands, compute.attributes
    m, n, k, batch = attributes["m"], attributes["n"], attributes["k"], attributes["batch"]
    row, column = axis_names(compute, 3, {0: "batch", 1: "m"}), axis_names(compute, 3, {2: "j"})
    epilogue = Epilogue(compute, row, column)
    per_item = gpu_kernels.rows_for(64)
    kernel = gpu_kernels.matmul(epilogue, per_item)
    numbers = (m, n, k, *attributes["a_strides"], *attributes["b_strides"])
    grid = (-(-m // (gpu_kernels.SIDE * per_item)), -(-n // gpu_kernels.COLUMNS), batch)
    inputs = (*epilogue.inputs, a.root.name, _rows(b, tuner))
    tuner.emit(kernel, grid, (*numbers, *epilogue.values), inputs, compute.output.name)
    return True


@dataclass(frozen=True)
class _Geometry:
    """A convolution over rows and columns.

    `packed`: rows and columns of a packed image; `phases`: images per channel.
    """

    images: int
    channels: int
    outputs: int
    group: int
    win: Windows

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
        grid = (-(-rows // cpu_kernels.PACK_ROWS), geometry.phases, planes)
        tuner.emit(cpu_kernels.pack(x.dtype.name), grid, numbers, (x.root.name,), scratch)
    else:
        grid = (-(-rows * columns // gpu_kernels.GROUP), geometry.phases, planes)
        tuner.emit(gpu_kernels.pack(x.dtype.name), grid, numbers, (x.root.name,), scratch)
    return scratch


def _conv_cpu(compute: Compute, tuner: Tuner) -> bool:
    x, w = compute.operands
    geometry = _Geometry.of(compute)
    if geometry is None:
        return False
    per_group, channels = geometry.outputs // geometry.group, geometry.channels // geometry.group
    rows, group = cpu_kernels.rows_for(per_group), geometry.group
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
    span = cpu_kernels.positions_for(rows * channels * prod(geometry.win.kernel))
    readable = positions if geometry.win.is_pointwise else 1 << 30
    epilogue = Epilogue(compute, axis_names(compute, x.rank, {0: "n", 1: "m"}), {})
    numbers = (
        positions, per_group, channels, *geometry.win.kernel, group, oh, ow, wq,
        x_c * geometry.channels, x_c * channels, x_c, plane, sh, sw,
        dh // sh, dw // sw, dh % sh, dw % sw, readable, span,
    )  # fmt: skip
    grid = (-(-per_group // rows), -(-positions // span), geometry.images * group)
    inputs = (*epilogue.inputs, source, weights)
    kernel = cpu_kernels.conv(epilogue, rows)
    tuner.emit(kernel, grid, (*numbers, *epilogue.values), inputs, compute.output.name)
    return True


def _conv_gpu(compute: Compute, tuner: Tuner) -> bool:
    x, w = compute.operands
    geometry = _Geometry.of(compute)
    if geometry is None:
        return False
    per_group, channels = geometry.outputs // geometry.group, geometry.channels // geometry.group
    if per_group < 4:
        # A tile would be nearly empty: depthwise convolutions are left to the generic kernel.
        return False
    per_item = gpu_kernels.rows_for(per_group)
    source = _pack(geometry, x, tuner, "gpu")
    (hq, wq), (oh, ow) = geometry.packed, geometry.win.out
    plane, depth = hq * wq, channels * prod(geometry.win.kernel)
    x_c = plane * geometry.phases
    taps = tuner.temporary(depth, np.dtype(np.int32))
    numbers = (depth, *geometry.win.kernel, x_c, plane, wq, *geometry.win.strides, *geometry.win.dilations)
    tuner.emit(gpu_kernels.taps(), (-(-depth // gpu_kernels.GROUP), 1, 1), numbers, (), taps)
    positions = (oh - 1) * wq + ow
    epilogue = Epilogue(compute, axis_names(compute, x.rank, {0: "n", 1: "m"}), {})
    sizes = (per_group, positions, depth, geometry.group, oh, ow, wq, x_c * geometry.channels, x_c * channels)
    grid = (
        -(-per_group // (gpu_kernels.SIDE * per_item)),
        -(-positions // gpu_kernels.COLUMNS),
        geometry.images * geometry.group,
    )
    inputs = (*epilogue.inputs, source, _rows(w, tuner), taps)
    kernel = gpu_kernels.conv(epilogue, per_item)
    tuner.emit(kernel, grid, (*sizes, *epilogue.values), inputs, compute.output.name)
    return True


def _rows(w: Value, tuner: Tuner) -> str:
    """The name of weights as they are: known ones may have no buffer of their own (`operands.plain`)."""
    known = w.known
    if known is None:
        return w.root.name
    return tuner.constant(f"{w.name}:rows", partial(flattened, known))


def _pool(compute: Compute, tuner: Tuner, form: str) -> bool:
    (x,), attributes = compute.operands, compute.attributes
    win, kind = windows_first(compute), attributes["kind"]
    is_integer_max = form == "cpu" and kind == "max" and compute.body.dtype == "int32"
    if win is None or not (compute.is_float32 or is_integer_max):
        return False
    sizes, out, begins, ends = (win.height, win.width), win.out, win.pads, pair(attributes["ends"], 0)
    margins = begins if attributes["include_pad"] else (0, 0)
    limits = [n + e if attributes["include_pad"] else n for n, e in zip(sizes, ends, strict=True)]
    planes = x.shape[0] * x.shape[1]
    numbers: tuple[int, ...] = (
        *sizes, *out, x.shape[1], planes, *win.kernel, *win.strides, *win.dilations, *begins, *margins,
        *limits,
    )  # fmt: skip
    epilogue = Epilogue(compute, axis_names(compute, x.rank, {0: "n", 1: "m"}), {})
    if form == "cpu":
        if (win.kernel[1] - 1) * win.dilations[1] > pool_kernels.STAGED // 2:
            return False
        kernel = pool_kernels.cpu(epilogue, kind, x.dtype.name)
        taps = win.kernel[0] + win.kernel[1]
        span = pool_kernels.rows_for(out[1] * taps)
        numbers = (*numbers, span, taps)
        grid = (1, -(-out[0] // span), planes)
    else:
        kernel = pool_kernels.gpu(epilogue, kind)
        grid = (-(-prod(out) // pool_kernels.GROUP), 1, planes)
    inputs = (*epilogue.inputs, x.root.name)
    tuner.emit(kernel, grid, (*numbers, *epilogue.values), inputs, compute.output.name)
    return True


@storable
def pack_tiles(known: np.ndarray, group: int, rows: int) -> np.ndarray:
    """Weights (M, C, *kernel) as (group, tile, *kernel, c, row); a group's last tile is filled up with 0."""
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


RULES: dict[str, Callable[[Compute, Tuner, str], bool]] = {
    "leaves": tune_leaves,
    "pool": _pool,
    "unpacked_matmul": _packed,
}
"""By the kind of a step's hint: rules that take operands as they are, apart from those of all GPUs."""

PRODUCTS: dict[tuple[str, str], Callable[[Compute, Tuner], bool]] = {
    ("matmul", "cpu"): _matmul_cpu,
    ("matmul", "gpu"): _matmul_gpu,
    ("conv", "cpu"): _conv_cpu,
    ("conv", "gpu"): _conv_gpu,
}
"""By the kind of a step's plain hint and the form: products, of operands made float32 or int32 first."""
