"""`ProgramRunner`: runs a recorded program with new inputs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np

from engine.backends.tensor_data import CPUTensorData

if TYPE_CHECKING:
    from engine.backends.base import DeviceBuffer


class ProgramRunner:
    """Runs a program with new inputs, faster than `upload` and `run` where a backend can.

    It belongs to one fast path; program and buffers belong to the recorded plan. Inputs come as arrays and,
    where some are those of tensors, these beside them, in the same order. The methods that run it return
    whether they did. Those of this class never do.

    Attributes:
        outputs: The outputs that can go to new memory.
        own: Those that the latest run has put there.
    """

    __slots__ = ()

    outputs: Collection[str] = ()
    own: Collection[str] = ()

    def run(
        self,
        arrays: Sequence[np.ndarray],
        tensors: Sequence[CPUTensorData | None] = (),
        own: Collection[str] = (),
    ) -> bool:
        """Take these inputs, and enqueue the program; outputs in `own` go to new memory."""
        return False

    def run_apart(
        self, arrays: Sequence[np.ndarray], tensors: Sequence[CPUTensorData | None], fixed: Collection[str]
    ) -> bool:
        """As `run`, with outputs in new memory where available, so that earlier copies stay valid."""
        return False

    def again(self, tensors: Sequence[CPUTensorData | None]) -> bool:
        """As `run`, for the same list of tensors as last time with unchanged storage."""
        return False

    def own_output(self, name: str) -> DeviceBuffer | None:
        """The memory of an output of the latest run for reading; None if it is the program's buffer."""
        return None

    def detach_output(
        self, name: str, shape: tuple[int, ...], elements: int, is_apart: bool
    ) -> CPUTensorData | None:
        """Copy an output of the latest run by taking over its memory; None if that is impossible.

        Args:
            name: One of `outputs`.
            shape: Shape of the copy.
            elements: How many elements that are.
            is_apart: Whether `run_apart` was the latest run.
        """
        return None

    def note_taken(self) -> None:
        """Take note that the caller takes the outputs now, before it has waited for them."""

    def resize(self) -> None:
        """Follow the program to other sizes; see `engine.backends.plan_template.NativeSizes.refill`."""

    def settle(self) -> None:
        """Update the program to the sizes that native code ran last, before other code runs it."""

    def let_go(self) -> None:
        """Drop the memory of inputs and outputs before other programs run."""
