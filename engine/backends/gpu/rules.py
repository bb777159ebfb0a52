"""Tuning rules shared by OpenCL and GL compute, by hint kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engine.backends.gpu.expert_matmul import tune_experts
from engine.backends.gpu.interpolation import tune_blend
from engine.backends.gpu.kernels import Kernels
from engine.backends.gpu.non_max_suppression import tune_suppression
from engine.backends.gpu.roi_align import tune_regions
from engine.backends.gpu.scans import tune_count, tune_nonzero, tune_scan, tune_select
from engine.backends.gpu.scatters import tune_scatter
from engine.backends.gpu.sorts import tune_sort
from engine.compiler.plan import Compute, Tuner

Rule = Callable[[Compute, Tuner, Kernels], bool]
"""Emits tuned kernels for a step, or returns False."""

SHARED_RULES: Mapping[str, Rule] = {
    "blend": tune_blend,
    "count": tune_count,
    "expert_matmul": tune_experts,
    "nonzero": tune_nonzero,
    "roi_align": tune_regions,
    "scan": tune_scan,
    "scatter": tune_scatter,
    "select": tune_select,
    "sort": tune_sort,
    "suppression": tune_suppression,
    "unpacked_expert_matmul": tune_experts,
}
"""Rules that take operands as they are."""
