"""Predicts the data that a plan stops for, so that the rest can be prepared before it runs.

A wrong guess costs nothing but the work of making it: what it says about shapes is one sample among others,
and kernels do not depend on sizes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.compiler.walk import Elements, Stop
from engine.kernels.value import Value

LARGEST = 16
"""Tensors with more elements than this are no sizes, and are not guessed."""

MOST_STOPS = 24
"""How many stops in a row are answered: loops that data ends have one after another."""


class DataGuesses:
    """Guesses the data for one stop after another: conditions alternate, sizes come from `sizes`."""

    def __init__(self, sizes: Sequence[int], condition: bool) -> None:
        self.sizes = sizes
        self.condition = condition
        self.conditions = 0
        self.stops = 0

    def answer(self, stop: Stop) -> Elements | None:
        """Plausible elements for the tensors that a stop needs, or None."""
        self.stops += 1
        if stop.call is not None or self.stops > MOST_STOPS:
            return None
        found: dict[str, np.ndarray] = {}
        for value in stop.needs:
            if value.size > LARGEST or value.dtype.kind not in "biu":
                return None
            found[value.root.name] = self._elements(value, stop.repeats)
        return found

    def _elements(self, value: Value, repeats: bool) -> np.ndarray:
        if value.dtype == bool:
            self.conditions += 1
            return np.full(value.size, self.condition ^ (self.conditions % 2 == 0))
        sizes = [self.sizes[i % len(self.sizes)] for i in range(value.size)]
        if repeats:
            # A few runs of a loop tell as much as many, and loops in loops multiply.
            sizes = [2 + size % 4 for size in sizes]
        return np.array(sizes).astype(value.dtype)
