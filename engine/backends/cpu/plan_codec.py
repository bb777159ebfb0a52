"""Serialization of the CPU backend's kernels and steps."""

from __future__ import annotations

from collections.abc import Sequence

from engine.backends.cpu.codegen.cost import step_ns
from engine.backends.cpu.codegen.native_kernel import source_of
from engine.backends.cpu.codegen.tiles import host_tile
from engine.backends.cpu.execution.arguments import count_words
from engine.backends.cpu.kernels.convolution.winograd_partition import LARGEST, scratch_bytes
from engine.backends.cpu.kernels.matmul.precision import Arithmetic
from engine.backends.plan_codec import PlanCodec
from engine.compiler.plan import AnyKernel, Step, StoredKernel
from engine.kernels.kernel import Kernel


class CPUPlanCodec(PlanCodec):
    """The `PlanCodec` for plans with this number of threads."""

    def __init__(self, threads: int, arithmetics: Sequence[Arithmetic]) -> None:
        super().__init__(f"{threads} {arithmetics} {LARGEST} {scratch_bytes(host_tile())}")

    def key(self, kernel: AnyKernel) -> str:
        return kernel.key if isinstance(kernel, StoredKernel) else source_of(kernel).key

    def stored(self, kernel: AnyKernel, nanoseconds: float) -> StoredKernel:
        if isinstance(kernel, StoredKernel):
            return kernel._replace(nanoseconds=nanoseconds)
        is_tuned = not isinstance(kernel, Kernel)
        return StoredKernel(self.key(kernel), getattr(kernel, "name", "generic"), is_tuned, nanoseconds)

    def nanoseconds(self, step: Step) -> float:
        return step_ns(step)

    def words(self, step: Step) -> int:
        return count_words(step)
