"""Tuning: chooses tuned kernels by hint kind.

Those of matrix products and most convolutions store one element a thread, which a type that shares 32-bit
words does not allow: there the result goes to 32-bit words in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from engine.backends.gl.compute.complex_product import tune_complex_product
from engine.backends.gl.compute.conv import tune_conv
from engine.backends.gl.compute.depthwise_conv import tune_depthwise_conv
from engine.backends.gl.compute.flat_grid import emit_threads, emit_with_epilogue
from engine.backends.gl.compute.matmul import tune_matmul
from engine.backends.gl.compute.memory import buffer_size
from engine.backends.gl.compute.packed_matmul import read_texels
from engine.backends.gl.compute.pool import tune_pool
from engine.backends.gl.compute.printer import element
from engine.backends.gl.compute.resize import tune_resample
from engine.backends.gl.compute.target import ShaderTarget
from engine.backends.gl.compute.tree_ensembles import tune_tree_ensemble
from engine.backends.gl.glsl import COMPONENTS
from engine.backends.gl.storage import lanes, type_refusal, word_type
from engine.backends.gpu.kernel_dialect import KernelDialect, Store, ThreadStep
from engine.backends.gpu.packed_matmul import PackedRows, read_by_group, tune_matmul_nbits
from engine.backends.gpu.sorts import EACH
from engine.backends.gpu.tuning import SHARED_RULES
from engine.backends.operands import PROMOTED_KINDS, promote_operands
from engine.base.dtypes import arithmetic_type
from engine.compiler.plan import Compute, Tuner
from engine.kernels.expr import FLAT, cast
from engine.kernels.kernel import kernel_call
from engine.kernels.value import Value

Rule = Callable[[Compute, Tuner, ShaderTarget], bool]
"""Emits tuned kernels for a step, or returns False."""

PROMOTED_RULES: Mapping[str, Rule] = {"conv": tune_conv, "matmul": tune_matmul}
"""By the kind of a step's hint: rules whose operands are converted to float32 or int32 first."""

NARROW_RULES: Mapping[str, Rule] = dict.fromkeys(("conv", "conv_integer"), tune_depthwise_conv)
"""By the kind of a step's hint: rules that go first, and read and store narrow integers themselves."""

RULES: dict[str, Rule] = {
    "tree_ensemble_leaves": tune_tree_ensemble,
    "pool": tune_pool,
    "resample": tune_resample,
    "complex_product": tune_complex_product,
    "squared_distances": tune_matmul,
}
"""By the kind of a step's hint: rules that take operands as they are, apart from those of all GPUs."""

TUNED_KINDS = frozenset({*RULES, *SHARED_RULES, *PROMOTED_KINDS, "matmul_nbits"})
"""The kinds of hints that have rules."""


class GLSLDialect(KernelDialect):
    """GLSL compute shaders."""

    output, shared, barrier = "o", "shared", "memoryBarrierShared(); barrier();"
    full_barrier = "memoryBarrierBuffer(); memoryBarrierShared(); barrier();"
    as_int, as_float, bits, from_bits = "int({})", "float({})", "floatBitsToInt({})", "intBitsToFloat({})"
    bit_place = "findLSB({})"

    def __init__(self, target: ShaderTarget) -> None:
        self._target = target
        self.most_rounds = target.limits.max_loop_rounds
        if target.texels:
            # Shared memory is slow in software; longer rows take less time in several dispatches.
            self.alone, self.longest_row = EACH, 1 << 13

    def fits(self, elements: int, dtype: np.dtype) -> bool:
        return buffer_size(elements, dtype) <= self._target.limits.max_storage_block_size

    def load(self, slot: int, position: str, kind: str) -> str:
        return element(f"b{slot}", position, kind, self._target.texels)

    def load_vector(self, slot: int, position: str, width: int = 4) -> str:
        return f"texelFetch(b{slot}, {position})" if self._target.texels else f"b{slot}[{position}]"

    def load_word(self, slot: int, position: str) -> str:
        return f"b{slot}[{position}]"

    def vector(self, width: int = 4) -> str:
        return "vec4"

    def construct_vector(self, numbers: str, width: int = 4) -> str:
        return f"vec4({numbers})"

    def lane(self, vector: str, number: int) -> str:
        return f"{vector}.{COMPONENTS[number]}"

    def atomic(self, operation: str, array: str, position: str, number: str) -> str:
        return f"atomic{operation.title()}({array}[{position}], {number});"

    def emit(self, tuner: Tuner, step: ThreadStep) -> bool:
        return emit_threads(tuner, step, self._target)

    def emit_with_epilogue(
        self, compute: Compute, tuner: Tuner, step: ThreadStep, lines: Callable[[Store], Sequence[str]]
    ) -> bool:
        if lanes(compute.output.dtype.name) > 1:
            return False
        finished = replace(step, lines=lines(lambda position, value: [f"finish({position}, {value});"]))
        return emit_with_epilogue(compute, tuner, finished, self._target)


def _packed(dialect: KernelDialect, compute: Compute, tuner: Tuner, target: ShaderTarget) -> bool:
    def read(rows: PackedRows) -> bool:
        if target.texels:
            return read_texels(rows, compute, tuner, dialect, target)
        return read_by_group(rows, compute, tuner, dialect)

    return tune_matmul_nbits(
        compute, tuner, dialect, read, lambda product: tune_matmul(product, tuner, target)
    )


def tune(compute: Compute, tuner: Tuner, target: ShaderTarget) -> bool:
    """Replace a step by tuned kernels; returns False if no rule applies."""
    if compute.hint is None:
        return False
    kind, dialect, output = compute.hint.kind, GLSLDialect(target), compute.output
    if kind in SHARED_RULES:
        return SHARED_RULES[kind](compute, tuner, dialect)
    if kind in RULES:
        return RULES[kind](compute, tuner, target)
    if kind in NARROW_RULES and NARROW_RULES[kind](compute, tuner, target):
        return True
    if kind == "matmul_nbits":
        rule: Rule = partial(_packed, dialect)
    else:
        promoted = promote_operands(compute, tuner, dialect.fits)
        if promoted is None:
            return False
        assert promoted.hint is not None
        rule, compute = PROMOTED_RULES[promoted.hint.kind], promoted
    if type_refusal([output.dtype]) is not None or lanes(output.dtype.name) == 1:
        return rule(compute, tuner, target)
    wide = np.dtype(np.float32 if word_type(output.dtype.name) == "float" else np.int32)
    if not dialect.fits(output.size, wide):
        return False
    between = Value(tuner.temporary(output.size, wide), output.shape, wide)
    if not rule(replace(compute, output=between), tuner, target):
        return False
    stored = cast(between.at(FLAT), arithmetic_type(output.dtype))
    kernel, values, inputs = kernel_call(stored, 1, output.dtype)
    tuner.emit(kernel, (output.size,), values, tuple(v.name for v in inputs), output.name)
    return True
