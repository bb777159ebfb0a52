"""Chooses tuned kernels for a step: rules by hint kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.backends.cpu.kernels.argmax import tune_argmax
from engine.backends.cpu.kernels.byte_tables import tune_byte_lookup
from engine.backends.cpu.kernels.compress import (
    tune_compress,
    tune_count_nonzero,
    tune_nonzero,
    tune_stream_compaction,
)
from engine.backends.cpu.kernels.concat import tune_concat
from engine.backends.cpu.kernels.convolution.any_type_conv import tune_any_type_conv
from engine.backends.cpu.kernels.convolution.byte_windows import tune_byte_pool
from engine.backends.cpu.kernels.convolution.first_layer_conv import tune_first_layer_conv
from engine.backends.cpu.kernels.convolution.low_precision_conv import tune_low_precision_conv
from engine.backends.cpu.kernels.convolution.nchw_windows import tune_pool
from engine.backends.cpu.kernels.convolution.nhwc_conv import tune_nhwc_conv
from engine.backends.cpu.kernels.convolution.nhwc_windows import tune_nhwc_depthwise, tune_nhwc_pool
from engine.backends.cpu.kernels.convolution.pooled_conv import tune_pooled_conv
from engine.backends.cpu.kernels.convolution.small_output_conv import tune_small_output_conv
from engine.backends.cpu.kernels.convolution.winograd import tune_winograd
from engine.backends.cpu.kernels.expert_matmul import tune_expert_matmul
from engine.backends.cpu.kernels.interpolation import tune_interpolation
from engine.backends.cpu.kernels.matmul.any_type_matmul import tune_any_type_matmul
from engine.backends.cpu.kernels.matmul.low_precision_matmul import tune_low_precision_matmul
from engine.backends.cpu.kernels.matmul.matmul import tune_matmul
from engine.backends.cpu.kernels.matmul.precision import Arithmetic
from engine.backends.cpu.kernels.non_max_suppression import tune_non_max_suppression
from engine.backends.cpu.kernels.normalization import tune_normalize, tune_softmax
from engine.backends.cpu.kernels.recurrence import tune_recurrence
from engine.backends.cpu.kernels.reduce import tune_reduce
from engine.backends.cpu.kernels.resample import tune_resample
from engine.backends.cpu.kernels.resize import tune_resize_nearest
from engine.backends.cpu.kernels.roi_align import tune_roi_align
from engine.backends.cpu.kernels.scan import tune_prefix_scan
from engine.backends.cpu.kernels.scatter import tune_scatter
from engine.backends.cpu.kernels.sort import tune_sort
from engine.backends.cpu.kernels.transpose import tune_transpose
from engine.backends.cpu.kernels.tree_ensembles import tune_tree_ensemble
from engine.compiler.plan import Compute, Tuner

Rule = Callable[[Compute, Tuner, int], bool]
"""Emits steps for a formula, for so many threads; False leaves it to the generic kernel."""

RULES: dict[str, Rule] = {
    "matmul": tune_matmul,
    "pool": tune_pool,
    "tree_ensemble_leaves": tune_tree_ensemble,
    "byte_lookup": tune_byte_lookup,
    "concat": tune_concat,
    "recurrence": tune_recurrence,
    "softmax": tune_softmax,
    "normalize": tune_normalize,
    "reduce": tune_reduce,
    "transpose": tune_transpose,
    "resize_nearest": tune_resize_nearest,
    "interpolate": tune_interpolation,
    "resample": tune_resample,
    "roi_align": tune_roi_align,
    "sort": tune_sort,
    "prefix_scan": tune_prefix_scan,
    "argmax": tune_argmax,
    "scatter": tune_scatter,
    "stream_compaction": tune_stream_compaction,
    "count_nonzero": tune_count_nonzero,
    "nonzero": tune_nonzero,
    "compress": tune_compress,
    "non_max_suppression": tune_non_max_suppression,
    "expert_matmul": tune_expert_matmul,
}


ANY_TYPE_RULES: dict[str, Rule] = {
    "matmul": tune_any_type_matmul,
    "matmul_integer": tune_any_type_matmul,
    "conv": tune_any_type_conv,
    "conv_integer": tune_any_type_conv,
    "pool": tune_byte_pool,
}
"""For what the rules above leave: other element types, zero points, and weights that are computed."""


def _tune_direct_conv(compute: Compute, tuner: Tuner, threads: int) -> bool:
    rules = (tune_first_layer_conv, tune_small_output_conv, tune_nhwc_conv)
    return any(rule(compute, tuner, threads) for rule in rules)


def _tune_conv(compute: Compute, tuner: Tuner, threads: int) -> bool:
    return tune_winograd(compute, tuner, threads, _tune_direct_conv)


NHWC_RULES: dict[str, tuple[Rule, ...]] = {
    "conv": (tune_nhwc_depthwise, _tune_conv),
    "pool": (tune_pooled_conv, tune_nhwc_pool),
}
"""The same for formulas over channels last; the first rule that takes one has it."""

LowPrecisionRule = Callable[[Compute, Tuner, int, Arithmetic], bool]

LOW_PRECISION_RULES: dict[str, LowPrecisionRule] = {
    "matmul": tune_low_precision_matmul,
    "conv": tune_low_precision_conv,
}
"""Tried first where a worker allows less than float32's precision."""


def tune(compute: Compute, tuner: Tuner, threads: int, arithmetics: Sequence[Arithmetic] = ()) -> bool:
    """Replace a formula by tuned kernels where a rule takes it."""
    if compute.hint is None:
        return False
    reduced = LOW_PRECISION_RULES.get(compute.hint.kind)
    if reduced is not None and any(reduced(compute, tuner, threads, a) for a in arithmetics):
        return True
    if compute.hint.attributes.get("channels_last"):
        return any(rule(compute, tuner, threads) for rule in NHWC_RULES.get(compute.hint.kind, ()))
    rules = [table.get(compute.hint.kind) for table in (RULES, ANY_TYPE_RULES)]
    return any(rule(compute, tuner, threads) for rule in rules if rule is not None)
