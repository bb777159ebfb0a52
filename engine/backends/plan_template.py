"""`Template`, a recorded plan with open sizes, and `PlanTemplate` for backends without one of their own."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from engine.base.generators import finish
from engine.compiler.plan import Plan
from engine.kernels.size import Number, Size

if TYPE_CHECKING:
    from engine.backends.base import Backend, DeviceBuffer, Program


class Template(Protocol):
    """A recorded plan whose sizes are open."""

    @property
    def numbers(self) -> Sequence[Number]:
        """The open numbers that `fill` needs the values of, in this order."""
        ...

    def reserving(self, values: Sequence[int | float]) -> Generator[None, None, None]:
        """Allocate memory that `fill` lacks for one set of sizes: a step for each buffer or texture.

        Yields before each. Raises `OverflowError` as `fill` does.
        """
        ...

    def fill(self, values: Sequence[int | float], buffers: Mapping[str, DeviceBuffer]) -> Program:
        """The program for one set of sizes, over these inputs and outputs.

        Raises `OverflowError` where a number exceeds what arguments hold here.
        """
        ...


class PlanTemplate:
    """A plan with open sizes that is recorded once more for each set of sizes."""

    def __init__(self, backend: Backend, plan: Plan, constants: Mapping[str, DeviceBuffer]) -> None:
        self._backend = backend
        self._plan = plan
        self._constants = dict(constants)
        self.numbers: tuple[Number, ...] = tuple(plan.numbers())
        self._open = [
            place for place, x in enumerate(self.numbers) if isinstance(x, Size) and isinstance(x.hint, int)
        ]

    def reserving(self, values: Sequence[int | float]) -> Generator[None, None, None]:
        """Nothing, in a step: `recording` takes several."""
        yield

    def fill(self, values: Sequence[int | float], buffers: Mapping[str, DeviceBuffer]) -> Program:
        """The program for one set of sizes. Raises `OverflowError` for integers beyond 32 bits."""
        return finish(self.recording(values, buffers))

    def recording(
        self, values: Sequence[int | float], buffers: Mapping[str, DeviceBuffer]
    ) -> Generator[None, None, Program]:
        """`fill`, a step of the plan at a time."""
        integers = [values[place] for place in self._open]
        if integers and not -(2**31) <= min(integers) <= max(integers) < 2**31:
            raise OverflowError(f"{self._backend.name} has 32-bit integers")
        plan = self._plan.filled(values)
        return (yield from self._backend.recording(plan, {**self._constants, **buffers}))
