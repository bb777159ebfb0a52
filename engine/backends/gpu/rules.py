"""Tuning rules shared by OpenCL and GL compute, by hint kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

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


def _experts(compute: Compute, tuner: Tuner, own: Kernels) -> bool:
    pack_experts, multiply = partial(own.pack_experts, tuner), partial(own.emit_product, tuner)
    return tune_experts(compute, tuner, own.fits, own.tile, pack_experts, multiply, own.most_rounds)


SHARED_RULES: Mapping[str, Rule] = {
    "blend": lambda c, t, own: tune_blend(c, own.fits, partial(own.emit_blend, t)),
    "count": lambda c, t, own: tune_count(c, partial(own.emit_rows, t)),
    "expert_matmul": _experts,
    "nonzero": lambda c, t, own: tune_nonzero(c, partial(own.emit_marks, t)),
    "roi_align": lambda c, t, own: tune_regions(c, t, own.fits, partial(own.emit_means, t)),
    "scan": lambda c, t, own: tune_scan(c, partial(own.emit_blocks, t)),
    "scatter": tune_scatter,
    "select": lambda c, t, own: tune_select(c, t, partial(own.emit_marks, t), partial(own.emit_rows, t)),
    "sort": tune_sort,
    "suppression": lambda c, t, own: tune_suppression(c, t, own.emit_suppression),
    "unpacked_expert_matmul": _experts,
}
"""Rules that take operands as they are."""
