"""Chooses tuned kernels for a step, and packs their operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np

from engine.backends.gl.pixel import tuned_shaders
from engine.backends.gl.pixel.layout import capacity
from engine.backends.gl.pixel.shader import Shader
from engine.backends.windows import windows_first
from engine.compiler.plan import Compute, Tuner, storable
from engine.device.gl.limits import GLLimits
from engine.kernels.expr import acc
from engine.kernels.kernel import kernel_call
from engine.kernels.value import Value

_FLOAT32 = np.dtype(np.float32)
# A block does the work of 32 channels; a convolution of very narrow groups would throw most of it away.
_MOST_WASTE = 12


@dataclass(frozen=True)
class _Blocks:
    """A product in blocks: its operands' layouts in texels, and the arguments of its two shaders."""

    product: Shader
    numbers: tuple[int, ...]
    fragments: int
    order: str
    epilogue: tuple[int, ...]


def _multiply(compute: Compute, tuner: Tuner, image: str, weights: str, blocks: _Blocks) -> None:
    """Emit the product and its epilogue."""
    scratch = tuner.temporary(blocks.fragments * 4 * tuned_shaders.LAYERS, _FLOAT32)
    tuner.emit(blocks.product, (blocks.fragments,), blocks.numbers, (image, weights), scratch)
    formula = compute.epilogue if compute.epilogue is not None else acc("float32")
    kernel, values, inputs = kernel_call(formula, len(compute.space), compute.output.dtype)
    names = (*(v.name for v in inputs), scratch)
    shader = tuned_shaders.epilogue(kernel, blocks.order)
    tuner.emit(shader, compute.space, (*values, *blocks.epilogue), names, compute.output.name)


def _fits(limits: GLLimits, *texels: int) -> bool:
    return all(0 < n <= capacity(limits.max_texture_size) for n in texels)


def _conv(compute: Compute, tuner: Tuner, limits: GLLimits) -> bool:
    x, w = compute.operands
    win = windows_first(compute)
    if win is None or not compute.is_float32 or w.known is None:
        return False
    group = int(compute.attributes["group"])
    images, channels, outputs = x.shape[0], x.shape[1], w.shape[0]
    kernel, out, strides, dilations = win.kernel, win.out, win.strides, win.dilations
    rows, columns = win.reach
    pixels, taps = prod(out), prod(kernel)
    is_depthwise = group == channels == outputs and group > 1
    sets = images if is_depthwise else images * group
    per_set = channels if is_depthwise else channels // group
    quarters = -(-per_set // 4)
    blocks = -(-(outputs // group) // tuned_shaders.ROWS)
    waste = blocks * tuned_shaders.ROWS * quarters * 4 / ((outputs // group) * per_set)
    if not is_depthwise and waste > _MOST_WASTE:
        return False
    packed = sets * quarters * rows * columns
    geometry = (
        rows * columns, dilations[0] * columns, dilations[1], strides[0] * columns, strides[1],
        out[1], pixels - 1,
    )  # fmt: skip
    known = w.known.reshape(w.shape)
    if is_depthwise:
        groups = -(-pixels // tuned_shaders.DEPTHWISE_COLUMNS)
        plan = _Blocks(
            tuned_shaders.depthwise(), (groups, quarters, *kernel, *geometry), images * quarters * groups,
            "depthwise",
            (pixels, channels, 1, quarters, groups),
        )  # fmt: skip
        label, pack, weight_texels = f"{w.root.name}:depthwise", pack_depthwise, quarters * taps
    else:
        quads = -(-pixels // tuned_shaders.COLUMNS)
        plane, down, right, *rest = geometry
        block = quarters * taps * tuned_shaders.ROWS
        next_row = down - (kernel[1] - 1) * right
        next_plane = plane - (kernel[0] - 1) * down - (kernel[1] - 1) * right
        numbers = (
            quads, blocks, sets, group, quarters, *kernel, quarters * plane, block, next_plane, next_row,
            right, *rest,
        )  # fmt: skip
        own = (pixels, outputs, outputs // group, blocks, quads)
        plan = _Blocks(tuned_shaders.product(), numbers, sets * blocks * quads, "rows", own)
        label, pack, weight_texels = f"{w.root.name}:blocks:{group}", pack_blocks, group * blocks * block
    rounds = kernel[0] * (kernel[1] + 2) if is_depthwise else quarters * taps
    if rounds >= limits.max_loop_rounds or not _fits(limits, packed, plan.fragments, weight_texels):
        return False
    weights = tuner.constant(f"{label}:{'x'.join(map(str, w.shape))}", partial(pack, known, group))
    image = tuner.temporary(packed * 4, _FLOAT32)
    shape = (quarters, per_set, win.height, win.width, rows, columns, *win.pads)
    tuner.emit(tuned_shaders.pack_image(), (packed,), shape, (x.root.name,), image)
    _multiply(compute, tuner, image, weights, plan)
    return True


@dataclass(frozen=True)
class _Vectors:
    """One operand of a product: `count` vectors of the summed axis in each set, with steps in elements."""

    value: Value
    count: int
    sets: int
    steps: tuple[int, int, int]
    """From set to set, vector to vector, and along the vector."""

    def packed(self, tuner: Tuner, depth: int, side: int) -> str:
        """The name of the texels of `pack_matrix`."""
        whole = -(-self.count // side) * side
        quarters = -(-depth // 4)
        if self.value.known is not None:
            known, sizes = self.value.known, (self.sets, self.count, depth)
            label = f"{self.value.root.name}:vectors:{side}:{sizes}:{self.steps}"
            return tuner.constant(label, partial(pack_vectors, known, sizes, self.steps, side))
        texels = self.sets * whole * quarters
        name = tuner.temporary(texels * 4, _FLOAT32)
        set_step, step, along = self.steps
        numbers = (quarters, depth, self.count, whole, side, set_step, step, along)
        tuner.emit(tuned_shaders.pack_matrix(), (texels,), numbers, (self.value.root.name,), name)
        return name


def _matmul(compute: Compute, tuner: Tuner, limits: GLLimits) -> bool:
    (a, b), attributes = compute.operands, compute.attributes
    m, n, depth, batch = attributes["m"], attributes["n"], attributes["k"], attributes["batch"]
    if not compute.is_float32 or 0 in (m, n, depth, batch):
        return False
    a_set, a_m, a_k = attributes["a_strides"]
    b_set, b_k, b_n = attributes["b_strides"]
    left = _Vectors(a, m, batch if a_set else 1, (a_set, a_m, a_k))
    right = _Vectors(b, n, batch if b_set else 1, (b_set, b_n, b_k))
    # Rows come in blocks of 8 and columns in blocks of 4: what may be few goes to the columns.
    is_tall = all(a.is_static(axis) for axis in range(a.rank)) and m > tuned_shaders.COLUMNS
    rows, columns = (left, right) if is_tall else (right, left)
    quarters = -(-depth // 4)
    blocks, quads = -(-rows.count // tuned_shaders.ROWS), -(-columns.count // tuned_shaders.COLUMNS)
    plane, block = columns.count, quarters * tuned_shaders.ROWS
    fragments = batch * blocks * quads
    if quarters >= limits.max_loop_rounds:
        return False
    if not _fits(limits, fragments, rows.sets * blocks * block, columns.sets * quarters * plane):
        return False
    numbers = (
        quads, blocks, columns.sets, rows.sets, quarters, 1, 1, quarters * plane, block, plane, 0, 0, 0, 1,
        columns.count, columns.count - 1,
    )  # fmt: skip
    weights = rows.packed(tuner, depth, tuned_shaders.ROWS)
    image = columns.packed(tuner, depth, columns.count)
    own = (n, m, m, blocks, quads)
    order = "rows" if is_tall else "columns"
    _multiply(
        compute, tuner, image, weights, _Blocks(tuned_shaders.product(), numbers, fragments, order, own)
    )
    return True


@storable
def pack_blocks(w: np.ndarray, group: int) -> np.ndarray:
    """Weights (M, C, *kernel) as texels (group, blocks of 8, quarters of C, taps, 8) of four channels."""
    rows, channels, taps = w.shape[0] // group, w.shape[1], prod(w.shape[2:])
    blocks, quarters = -(-rows // tuned_shaders.ROWS), -(-channels // 4)
    padded = np.zeros((group, blocks * tuned_shaders.ROWS, quarters * 4, taps), np.float32)
    padded[:, :rows, :channels] = w.reshape(group, rows, channels, taps)
    split = padded.reshape(group, blocks, tuned_shaders.ROWS, quarters, 4, taps)
    return np.ascontiguousarray(split.transpose(0, 1, 3, 5, 2, 4)).reshape(-1)


@storable
def pack_depthwise(w: np.ndarray, group: int) -> np.ndarray:
    """Weights (C, 1, *kernel) as texels (quarters of C, taps) of four channels."""
    taps, quarters = prod(w.shape[2:]), -(-group // 4)
    padded = np.zeros((quarters * 4, taps), np.float32)
    padded[:group] = w.reshape(group, taps)
    return np.ascontiguousarray(padded.reshape(quarters, 4, taps).transpose(0, 2, 1)).reshape(-1)


@storable
def pack_vectors(x: np.ndarray, sizes: tuple[int, ...], steps: tuple[int, ...], side: int) -> np.ndarray:
    """Pack operands as `tuned_shaders.pack_matrix` does, with sizes (sets, vectors, elements)."""
    sets, count, depth = sizes
    quarters, blocks = -(-depth // 4), -(-count // side)
    flat = np.ascontiguousarray(x).reshape(-1)
    view = np.lib.stride_tricks.as_strided(flat, sizes, [s * flat.itemsize for s in steps], writeable=False)
    padded = np.zeros((sets, blocks * side, quarters * 4), np.float32)
    padded[:, :count, :depth] = view
    split = padded.reshape(sets, blocks, side, quarters, 4)
    return np.ascontiguousarray(split.transpose(0, 1, 3, 2, 4)).reshape(-1)


RULES: Mapping[str, Callable[[Compute, Tuner, GLLimits], bool]] = {"matmul": _matmul, "conv": _conv}
"""By the kind of a step's hint: the rule that emits tuned kernels, or returns False."""
