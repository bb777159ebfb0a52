"""Serialization of a backend's kernels and steps for the plan store."""

from __future__ import annotations

from engine.compiler.plan import AnyKernel, Step


class PlanCodec:
    """Describes a backend's kernels and steps.

    Kernels are stored whole: the formulas of generic ones, the fields of tuned ones. Where compiled code is
    found by a kernel's key, a subclass stores plans without formulas.

    Args:
        setting: All that the backend's plans depend on apart from the model and the engine's sources.
        records: The classes of tuned kernels: dataclasses of numbers, texts, tuples and further dataclasses.
    """

    def __init__(self, setting: str, *records: type) -> None:
        self.setting = setting
        self.records = records

    def key(self, kernel: AnyKernel) -> str:
        """The cache key of a kernel's compiled code."""
        return kernel.key

    def stored(self, kernel: AnyKernel, nanoseconds: float) -> AnyKernel:
        """The replacement of a step's kernel in a plan that is read back."""
        return kernel

    def nanoseconds(self, step: Step) -> float:
        """Estimated nanoseconds of a step, for kernels stored without a formula."""
        return 0.0

    def words(self, step: Step) -> int:
        """Number of argument words of a step, for kernels that are found by keys."""
        return 0
