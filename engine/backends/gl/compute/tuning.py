"""Tuning: chooses tuned kernels by hint kind.

Those of products store one element a thread, which a type that shares 32-bit words does not allow: there the
result goes to 32-bit words in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from engine.backends.gl.compute.conv import tune_conv
from engine.backends.gl.compute.epilogue import grid_fits
from engine.backends.gl.compute.expert_matmul import TILE, emit_product, pack_experts
from engine.backends.gl.compute.flat_grid import divide, divisor_names, divisor_values, flat_grid, flat_kernel
from engine.backends.gl.compute.interpolation import emit_blend
from engine.backends.gl.compute.matmul import tune_matmul
from engine.backends.gl.compute.memory import buffer_size
from engine.backends.gl.compute.non_max_suppression import emit_step
from engine.backends.gl.compute.packed_matmul import read_packed
from engine.backends.gl.compute.pool import tune_pool
from engine.backends.gl.compute.printer import element
from engine.backends.gl.compute.resize import tune_resample
from engine.backends.gl.compute.roi_align import emit_means
from engine.backends.gl.compute.scans import emit_blocks, emit_marks, emit_rows
from engine.backends.gl.compute.target import Target
from engine.backends.gl.compute.trees import tune_leaves
from engine.backends.gl.storage import lanes, type_refusal, word_type
from engine.backends.gpu.expert_matmul import ExpertProduct
from engine.backends.gpu.interpolation import Interpolation
from engine.backends.gpu.kernels import Kernels, ThreadStep
from engine.backends.gpu.non_max_suppression import Suppression
from engine.backends.gpu.packed_matmul import tune_packed
from engine.backends.gpu.roi_align import Regions
from engine.backends.gpu.rules import SHARED_RULES
from engine.backends.gpu.scans import Blocks, MarkedRows, Marks
from engine.backends.gpu.sorts import EACH
from engine.backends.operands import Fits, plain
from engine.base.dtypes import arithmetic_type
from engine.compiler.plan import Compute, Tuner
from engine.kernels.expr import FLAT, cast
from engine.kernels.kernel import number
from engine.kernels.value import Value

Rule = Callable[[Compute, Tuner, Target], bool]
"""Emits tuned kernels for a step, or returns False."""

PRODUCTS: Mapping[str, Rule] = {
    "conv": tune_conv,
    "matmul": tune_matmul,
}
"""By the kind of a step's plain hint: products, whose operands are brought to float32 or int32 first."""

RULES: dict[str, Rule] = {
    "leaves": tune_leaves,
    "pool": tune_pool,
    "resample": tune_resample,
}
"""By the kind of a step's hint: rules that take operands as they are, apart from those of all GPUs."""


class ComputeKernels(Kernels):
    """GLSL versions of the shared kernels."""

    output, shared, barrier = "o", "shared", "memoryBarrierShared(); barrier();"
    as_int, bits = "int({})", "floatBitsToInt({})"
    tile = TILE

    def __init__(self, target: Target) -> None:
        self._target = target
        self.most_rounds = target.limits.max_loop_rounds
        # Shared memory is slow in software.
        self.alone = EACH if target.texels else 0

    def fits(self, elements: int, dtype: np.dtype) -> bool:
        return buffer_size(elements, dtype) <= self._target.limits.max_storage_block_size

    def load(self, slot: int, position: str, kind: str) -> str:
        return element(f"b{slot}", position, kind, self._target.texels)

    def divide(self, number: str, by: str) -> str:
        return divide(number, by)

    def raised(self, position: str, number: str) -> str:
        return f"atomicMax(o[{position}], {number});"

    def emit(self, tuner: Tuner, step: ThreadStep) -> bool:
        grid = flat_grid(step.threads, self._target)
        if not grid_fits(grid, self._target):
            return False
        names = (*step.names, *divisor_names(step.divisors))
        values = (*step.values, *divisor_values(step.divided_by), 0, 0, 0)
        tensors, kinds = zip(*step.inputs, strict=True)
        kernel = flat_kernel(step.lines, names, kinds, "int32", self._target, step.shared, step.ns)
        tuner.emit(kernel, grid, values, tensors, step.output)
        return True

    def emit_blocks(self, tuner: Tuner, blocks: Blocks) -> bool:
        return emit_blocks(blocks, tuner.compute, tuner, self._target)

    def emit_rows(self, tuner: Tuner, rows: MarkedRows) -> bool:
        return emit_rows(rows, tuner.compute, tuner, self._target)

    def emit_marks(self, tuner: Tuner, marks: Marks) -> bool:
        return emit_marks(marks, tuner.compute, tuner, self._target)

    def emit_means(self, tuner: Tuner, step: Regions) -> bool:
        return emit_means(step, tuner, self._target)

    def emit_blend(self, tuner: Tuner, blend: Interpolation) -> bool:
        return emit_blend(blend, tuner, self._target)

    def emit_suppression(self, tuner: Tuner, step: Suppression) -> bool:
        return emit_step(self._target, tuner, step)

    def pack_experts(self, tuner: Tuner, weights: Value) -> str:
        return pack_experts(weights, tuner)

    def emit_product(self, tuner: Tuner, product: ExpertProduct) -> bool:
        return emit_product(product, tuner.compute, tuner, self._target)


def _packed(fits: Fits, compute: Compute, tuner: Tuner, target: Target) -> bool:
    return tune_packed(
        compute, tuner, fits, lambda rows: read_packed(rows, compute, tuner, target),
        lambda product: tune_matmul(product, tuner, target),
    )  # fmt: skip


def tune(compute: Compute, tuner: Tuner, target: Target) -> bool:
    """Replace a step by tuned kernels; returns False if no rule applies."""
    if compute.hint is None:
        return False
    kind, kernels, output = compute.hint.kind, ComputeKernels(target), compute.output
    if kind in SHARED_RULES:
        return SHARED_RULES[kind](compute, tuner, kernels)
    if kind in RULES:
        return RULES[kind](compute, tuner, target)
    if kind == "unpacked_matmul":
        rule: Rule = partial(_packed, kernels.fits)
    else:
        wide_enough = plain(compute, tuner, kernels.fits)
        if wide_enough is None:
            return False
        assert wide_enough.hint is not None
        rule, compute = PRODUCTS[wide_enough.hint.kind], wide_enough
    if type_refusal([output.dtype]) is not None or lanes(output.dtype.name) == 1:
        return rule(compute, tuner, target)
    wide = np.dtype(np.float32 if word_type(output.dtype.name) == "float" else np.int32)
    if not kernels.fits(output.size, wide):
        return False
    between = Value(tuner.temporary(output.size, wide), output.shape, wide)
    if not rule(replace(compute, output=between), tuner, target):
        return False
    stored = cast(between.at(FLAT), arithmetic_type(output.dtype))
    kernel, values, inputs = number(stored, 1, output.dtype)
    tuner.emit(kernel, (output.size,), values, tuple(v.name for v in inputs), output.name)
    return True
