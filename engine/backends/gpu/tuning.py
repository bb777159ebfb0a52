"""Chooses tuned kernels that OpenCL and GL compute share, by hint kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engine.backends.gpu.expert_matmul import tune_expert_matmul
from engine.backends.gpu.interpolation import tune_interpolation
from engine.backends.gpu.kernel_dialect import KernelDialect
from engine.backends.gpu.non_max_suppression import tune_non_max_suppression
from engine.backends.gpu.roi_align import tune_roi_align
from engine.backends.gpu.scans import (
    tune_count_nonzero,
    tune_nonzero,
    tune_prefix_scan,
    tune_stream_compaction,
)
from engine.backends.gpu.scatters import tune_scatter
from engine.backends.gpu.sorts import tune_sort
from engine.compiler.plan import Compute, Tuner

Rule = Callable[[Compute, Tuner, KernelDialect], bool]
"""Emits tuned kernels for a step, or returns False."""

SHARED_RULES: Mapping[str, Rule] = {
    "interpolate": tune_interpolation,
    "count_nonzero": tune_count_nonzero,
    "expert_matmul": tune_expert_matmul,
    "nonzero": tune_nonzero,
    "roi_align": tune_roi_align,
    "prefix_scan": tune_prefix_scan,
    "scatter": tune_scatter,
    "stream_compaction": tune_stream_compaction,
    "sort": tune_sort,
    "non_max_suppression": tune_non_max_suppression,
    "expert_matmul_nbits": tune_expert_matmul,
}
"""Rules that take operands as they are."""
