"""A program that runs repeatedly, with new inputs each time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np

from engine.backends.tensor_data import CPUTensorData

if TYPE_CHECKING:
    from engine.backends.base import DeviceBuffer


class ProgramReplay:
    """Takes inputs of a program and runs it, where a backend can do that faster than with `upload` and `run`.

    Inputs come as arrays and, where some are those of tensors, these beside them, in the same order. The
    methods that run it return whether they did. Those of this class never do.

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
        self,
        arrays: Sequence[np.ndarray],
        tensors: Sequence[CPUTensorData | None],
        fixed: Collection[str],
    ) -> bool:
        """The same where copies of outputs were made since the last run. As far as there is memory, these
        outputs go to new memory, which the next copies take over, but none in `fixed`.
        """
        return False

    def again(self, tensors: Sequence[CPUTensorData | None]) -> bool:
        """The same with nothing but tensors, and the very list that `run` was given last, whose elements are
        where they were.
        """
        return False

    def own_output(self, name: str) -> DeviceBuffer | None:
        """Where the latest run has put an output, to be looked at; None if that is the program's buffer."""
        return None

    def take_output(
        self, name: str, shape: tuple[int, ...], elements: int, is_apart: bool
    ) -> CPUTensorData | None:
        """A copy of an output of the latest run, which takes over its new memory; None if there is none, or
        if the output was looked at. In any case, notes that the output is copied.

        Args:
            name: One of `outputs`.
            shape: Shape of the copy.
            elements: How many elements that are.
            is_apart: Whether `run_apart` was the latest run.
        """
        return None

    def let_go(self) -> None:
        """Hold no memory of inputs or of outputs: other programs follow."""
