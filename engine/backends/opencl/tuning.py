"""Chooses tuned kernels for a step."""

from __future__ import annotations

from collections.abc import Callable

from engine.backends.gpu.packed_matmul import tune_packed
from engine.backends.gpu.rules import SHARED_RULES
from engine.backends.opencl.kernels.expert_matmul import TILES
from engine.backends.opencl.kernels.packed_matmul import read_packed
from engine.backends.opencl.kernels.pools import tune_pool
from engine.backends.opencl.kernels.products import conv_on_cpu, conv_on_gpu, matmul_on_cpu, matmul_on_gpu
from engine.backends.opencl.kernels.shared import CLKernels
from engine.backends.opencl.kernels.trees import tune_leaves
from engine.backends.operands import plain
from engine.compiler.plan import Compute, Tuner

_KERNELS = {form: CLKernels(form) for form in TILES}


def tune(compute: Compute, tuner: Tuner, form: str) -> bool:
    """Replace a step by tuned kernels of a form, "cpu" or "gpu"; False leaves it to the generic kernel."""
    if compute.hint is None:
        return False
    kind, kernels = compute.hint.kind, _KERNELS[form]
    if kind in SHARED_RULES:
        return SHARED_RULES[kind](compute, tuner, kernels)
    if kind in RULES:
        return RULES[kind](compute, tuner, form)
    widened = plain(compute, tuner, kernels.fits)
    if widened is None or widened.hint is None:
        return False
    return PRODUCTS[widened.hint.kind, form](widened, tuner)


def _packed(compute: Compute, tuner: Tuner, form: str) -> bool:
    return tune_packed(
        compute, tuner, _KERNELS[form].fits,
        lambda rows: read_packed(rows, compute, tuner, form),
        lambda product: PRODUCTS["matmul", form](product, tuner),
    )  # fmt: skip


RULES: dict[str, Callable[[Compute, Tuner, str], bool]] = {
    "leaves": tune_leaves,
    "pool": tune_pool,
    "unpacked_matmul": _packed,
}
"""By the kind of a step's hint: rules that take operands as they are, apart from those of all GPUs."""

PRODUCTS: dict[tuple[str, str], Callable[[Compute, Tuner], bool]] = {
    ("matmul", "cpu"): matmul_on_cpu,
    ("matmul", "gpu"): matmul_on_gpu,
    ("conv", "cpu"): conv_on_cpu,
    ("conv", "gpu"): conv_on_gpu,
}
"""By the kind of a step's plain hint and the form: products, of operands made float32 or int32 first."""
