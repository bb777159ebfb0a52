"""What the plan store needs of a backend whose plans it stores."""

from __future__ import annotations

from typing import Protocol

from engine.compiler.plan import AnyKernel, Step


class PlanCodec(Protocol):
    """Describes a backend's kernels and steps without their formulas."""

    @property
    def setting(self) -> str:
        """All that the backend's plans depend on apart from the model and the engine's sources."""
        ...

    def key(self, kernel: AnyKernel) -> str:
        """The key of a kernel's compiled code, 64 hexadecimal digits; see `Backend.prepare_cached`."""
        ...

    def nanoseconds(self, step: Step) -> float:
        """What a step is estimated to take: a restored step has no formula to estimate from."""
        ...

    def words(self, step: Step) -> int:
        """How many words of arguments the step calls its kernel with."""
        ...
