"""Chooses tuned kernels for a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engine.backends.gpu.packed_matmul import read_by_group, tune_packed
from engine.backends.gpu.rules import SHARED_RULES, Rule
from engine.backends.opencl.kernels.expert_matmul import tune_experts
from engine.backends.opencl.kernels.gemm import conv_on_cpu, conv_on_gpu, matmul_on_cpu, matmul_on_gpu
from engine.backends.opencl.kernels.interpolation import tune_blend
from engine.backends.opencl.kernels.non_max_suppression import tune_suppression
from engine.backends.opencl.kernels.packed_matmul import read_alone
from engine.backends.opencl.kernels.pools import tune_pool
from engine.backends.opencl.kernels.shared import CLKernels
from engine.backends.opencl.kernels.trees import tune_leaves
from engine.backends.operands import plain
from engine.compiler.plan import Compute, Tuner

_KERNELS = {form: CLKernels(form) for form in ("cpu", "gpu")}

_CPU_RULES: Mapping[str, Rule] = {
    "blend": tune_blend,
    "expert_matmul": tune_experts,
    "suppression": tune_suppression,
    "unpacked_expert_matmul": tune_experts,
}
_THREAD_RULES: Mapping[str, Mapping[str, Rule]] = {"cpu": {**SHARED_RULES, **_CPU_RULES}, "gpu": SHARED_RULES}
"""By form and the kind of a step's hint: rules of all GPUs, of which a processor has some of its own."""


def tune(compute: Compute, tuner: Tuner, form: str) -> bool:
    """Replace the step by tuned kernels of a form, "cpu" or "gpu"; False leaves it to the generic kernel."""
    if compute.hint is None:
        return False
    kind, kernels = compute.hint.kind, _KERNELS[form]
    if kind in SHARED_RULES:
        return _THREAD_RULES[form][kind](compute, tuner, kernels)
    if kind in RULES:
        return RULES[kind](compute, tuner, form)
    widened = plain(compute, tuner, kernels.fits)
    if widened is None or widened.hint is None:
        return False
    return WIDENED_RULES[widened.hint.kind, form](widened, tuner)


def _packed(compute: Compute, tuner: Tuner, form: str) -> bool:
    kernels, read = _KERNELS[form], read_alone if form == "cpu" else read_by_group
    return tune_packed(
        compute, tuner, kernels, lambda rows: read(rows, compute, tuner, kernels),
        lambda product: WIDENED_RULES["matmul", form](product, tuner),
    )  # fmt: skip


RULES: dict[str, Callable[[Compute, Tuner, str], bool]] = {
    "leaves": tune_leaves,
    "pool": tune_pool,
    "unpacked_matmul": _packed,
}
"""By the kind of a step's hint: rules that take operands as they are, apart from those of all GPUs."""

WIDENED_RULES: dict[tuple[str, str], Callable[[Compute, Tuner], bool]] = {
    ("matmul", "cpu"): matmul_on_cpu,
    ("matmul", "gpu"): matmul_on_gpu,
    ("conv", "cpu"): conv_on_cpu,
    ("conv", "gpu"): conv_on_gpu,
}
"""By the kind of a step's hint and the form: rules whose operands are converted to float32 or int32 first."""
