"""Chooses tuned kernels for a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engine.backends.gpu.packed_matmul import read_by_group, tune_matmul_nbits
from engine.backends.gpu.tuning import SHARED_RULES, Rule
from engine.backends.opencl.kernels.depthwise_conv import tune_depthwise_conv
from engine.backends.opencl.kernels.dialect import OpenCLDialect
from engine.backends.opencl.kernels.expert_matmul import tune_expert_matmul
from engine.backends.opencl.kernels.gemm import conv_on_cpu, conv_on_gpu, matmul_on_cpu, matmul_on_gpu
from engine.backends.opencl.kernels.interpolation import tune_interpolation
from engine.backends.opencl.kernels.non_max_suppression import tune_non_max_suppression
from engine.backends.opencl.kernels.packed_matmul import read_alone
from engine.backends.opencl.kernels.pools import tune_pool
from engine.backends.opencl.kernels.tree_ensembles import tune_tree_ensemble
from engine.backends.operands import PROMOTED_KINDS, promote_operands
from engine.compiler.plan import Compute, Tuner

_DIALECTS = {form: OpenCLDialect(form) for form in ("cpu", "gpu")}

_CPU_RULES: Mapping[str, Rule] = {
    "interpolate": tune_interpolation,
    "expert_matmul": tune_expert_matmul,
    "non_max_suppression": tune_non_max_suppression,
    "expert_matmul_nbits": tune_expert_matmul,
}
_THREAD_RULES: Mapping[str, Mapping[str, Rule]] = {"cpu": {**SHARED_RULES, **_CPU_RULES}, "gpu": SHARED_RULES}
"""By form and the kind of a step's hint: rules of all GPUs, of which a processor has some of its own."""


def tune(compute: Compute, tuner: Tuner, form: str) -> bool:
    """Replace the step by tuned kernels of a form, "cpu" or "gpu"; False leaves it to the generic kernel."""
    if compute.hint is None:
        return False
    kind, dialect = compute.hint.kind, _DIALECTS[form]
    if kind in SHARED_RULES:
        return _THREAD_RULES[form][kind](compute, tuner, dialect)
    if kind in RULES:
        return RULES[kind](compute, tuner, form)
    if form == "cpu" and "conv" in kind and tune_depthwise_conv(compute, tuner, dialect.fits):
        return True
    promoted = promote_operands(compute, tuner, dialect.fits)
    if promoted is None or promoted.hint is None:
        return False
    return PROMOTED_RULES[promoted.hint.kind, form](promoted, tuner)


def _packed(compute: Compute, tuner: Tuner, form: str) -> bool:
    dialect, read = _DIALECTS[form], read_alone if form == "cpu" else read_by_group
    return tune_matmul_nbits(
        compute, tuner, dialect, lambda rows: read(rows, compute, tuner, dialect),
        lambda product: PROMOTED_RULES["matmul", form](product, tuner),
    )  # fmt: skip


RULES: dict[str, Callable[[Compute, Tuner, str], bool]] = {
    "tree_ensemble_leaves": tune_tree_ensemble,
    "pool": tune_pool,
    "matmul_nbits": _packed,
}
"""By the kind of a step's hint: rules that take operands as they are, apart from those of all GPUs."""

PROMOTED_RULES: dict[tuple[str, str], Callable[[Compute, Tuner], bool]] = {
    ("matmul", "cpu"): matmul_on_cpu,
    ("matmul", "gpu"): matmul_on_gpu,
    ("conv", "cpu"): conv_on_cpu,
    ("conv", "gpu"): conv_on_gpu,
}
"""By the kind of a step's hint and the form: rules whose operands are converted to float32 or int32 first."""

TUNED_KINDS = frozenset({*RULES, *SHARED_RULES, *PROMOTED_KINDS})
"""The kinds of hints that have rules."""
