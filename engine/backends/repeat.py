"""A program that runs repeatedly, with new inputs each time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.backends.tensor_data import CPUTensorData


class Repeat:
    """Takes inputs of a program and runs it, where a backend can do that faster than with `upload` and `run`.

    Inputs come as arrays and, where some are those of tensors, these beside them, in the same order. The
    methods return whether they did it. Those of this class never do.
    """

    __slots__ = ()

    def run(self, arrays: Sequence[np.ndarray], tensors: Sequence[CPUTensorData | None] = ()) -> bool:
        """Take these inputs, and enqueue the program."""
        return False

    def again(self, tensors: Sequence[CPUTensorData | None]) -> bool:
        """The same with nothing but tensors, and the very list that `run` was given last, whose elements are
        where they were.
        """
        return False
