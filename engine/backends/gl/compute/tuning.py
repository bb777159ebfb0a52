"""Chooses tuned kernels for a step: rules by hint kind.

Those of products store one element a thread, which a type that shares 32-bit words does not allow: there the
result goes to 32-bit words in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from engine.backends.gl.compute.conv import tune_conv
from engine.backends.gl.compute.experts import TILE, emit_product, lay_out
from engine.backends.gl.compute.matmul import tune_matmul
from engine.backends.gl.compute.memory import buffer_size
from engine.backends.gl.compute.packed_rows import read_packed
from engine.backends.gl.compute.pool import tune_pool
from engine.backends.gl.compute.regions import emit_means
from engine.backends.gl.compute.scans import emit_blocks, emit_marks, emit_rows
from engine.backends.gl.compute.scatter import mark_runs, raise_all
from engine.backends.gl.compute.sort import block_for, emit_merge
from engine.backends.gl.compute.sort import emit_blocks as emit_sorted_blocks
from engine.backends.gl.compute.suppression import emit_step as emit_suppression
from engine.backends.gl.compute.target import Target
from engine.backends.gl.storage import lanes, type_refusal, word_type
from engine.backends.gpu.expert_products import tune_experts
from engine.backends.gpu.packed_products import tune_packed
from engine.backends.gpu.regions import tune_regions
from engine.backends.gpu.scans import tune_count, tune_nonzero, tune_scan, tune_select
from engine.backends.gpu.scatters import Scatterer, tune_scatter
from engine.backends.gpu.sorts import Sorter, tune_sort
from engine.backends.gpu.suppressions import tune_suppression
from engine.backends.operands import plain
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


def _packed(compute: Compute, tuner: Tuner, target: Target) -> bool:
    return tune_packed(
        compute, tuner, partial(_fits, target),
        lambda rows: read_packed(rows, compute, tuner, target),
        lambda product: tune_matmul(product, tuner, target),
    )  # fmt: skip


def _experts(compute: Compute, tuner: Tuner, target: Target) -> bool:
    return tune_experts(
        compute, tuner, partial(_fits, target), TILE, lambda w: lay_out(w, tuner),
        lambda product: emit_product(product, compute, tuner, target), target.limits.max_loop_rounds,
    )  # fmt: skip


def _regions(compute: Compute, tuner: Tuner, target: Target) -> bool:
    return tune_regions(compute, tuner, partial(_fits, target), lambda step: emit_means(step, tuner, target))


def _scatter(compute: Compute, tuner: Tuner, target: Target) -> bool:
    steps = partial(raise_all, target), partial(mark_runs, target)
    most = target.limits.max_loop_rounds
    return tune_scatter(compute, tuner, Scatterer(_sorter(target), *steps, most))


def _scan(compute: Compute, tuner: Tuner, target: Target) -> bool:
    return tune_scan(compute, lambda blocks: emit_blocks(blocks, compute, tuner, target))


def _select(compute: Compute, tuner: Tuner, target: Target) -> bool:
    return tune_select(
        compute, tuner, lambda marks: emit_marks(marks, compute, tuner, target),
        lambda rows: emit_rows(rows, compute, tuner, target),
    )  # fmt: skip


def _count(compute: Compute, tuner: Tuner, target: Target) -> bool:
    return tune_count(compute, lambda rows: emit_rows(rows, compute, tuner, target))


def _nonzero(compute: Compute, tuner: Tuner, target: Target) -> bool:
    return tune_nonzero(compute, lambda marks: emit_marks(marks, compute, tuner, target))


def _sort(compute: Compute, tuner: Tuner, target: Target) -> bool:
    return tune_sort(compute, tuner, _sorter(target))


def _suppression(compute: Compute, tuner: Tuner, target: Target) -> bool:
    return tune_suppression(compute, tuner, partial(emit_suppression, target))


def _sorter(target: Target) -> Sorter:
    steps = partial(emit_sorted_blocks, target), partial(emit_merge, target)
    return Sorter(partial(_fits, target), *steps, block=block_for(target), is_alone=target.texels)


RULES: Mapping[str, Rule] = {
    "count": _count,
    "expert_matmul": _experts,
    "nonzero": _nonzero,
    "pool": tune_pool,
    "roi_align": _regions,
    "scan": _scan,
    "scatter": _scatter,
    "select": _select,
    "sort": _sort,
    "suppression": _suppression,
    "unpacked_expert_matmul": _experts,
}
"""By the kind of a step's hint: rules that take operands as they are."""


def tune(compute: Compute, tuner: Tuner, target: Target) -> bool:
    """Replace a step by tuned kernels; False where none fits."""
    if compute.hint is None:
        return False
    if compute.hint.kind in RULES:
        return RULES[compute.hint.kind](compute, tuner, target)
    output = compute.output
    if compute.hint.kind == "unpacked_matmul":
        rule: Rule = _packed
    else:
        wide_enough = plain(compute, tuner, partial(_fits, target))
        if wide_enough is None:
            return False
        assert wide_enough.hint is not None
        rule, compute = PRODUCTS[wide_enough.hint.kind], wide_enough
    if type_refusal([output.dtype]) is not None or lanes(output.dtype.name) == 1:
        return rule(compute, tuner, target)
    wide = np.dtype(np.float32 if word_type(output.dtype.name) == "float" else np.int32)
    if not _fits(target, output.size, wide):
        return False
    between = Value(tuner.temporary(output.size, wide), output.shape, wide)
    if not rule(replace(compute, output=between), tuner, target):
        return False
    stored = cast(between.at(FLAT), arithmetic_type(output.dtype))
    kernel, values, inputs = number(stored, 1, output.dtype)
    tuner.emit(kernel, (output.size,), values, tuple(v.name for v in inputs), output.name)
    return True


def _fits(target: Target, elements: int, dtype: np.dtype) -> bool:
    return buffer_size(elements, dtype) <= target.limits.max_storage_block_size
