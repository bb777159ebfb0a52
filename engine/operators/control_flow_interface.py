"""Interface between control-flow operators (If, Loop, Scan, SequenceMap) and the planner.

Such an operator is a class: created when its layer is reached. It returns one run of a body after another,
receives what each run yielded, and returns the layer's outputs in the end. It decides from what is known;
where it has to know more, `needs` says of which tensors, and the plan is split there.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass
from sys import maxsize
from typing import Self

from engine.graph.model import Model
from engine.kernels.value import Entry, Value
from engine.operators.builder import Builder


@dataclass(frozen=True)
class Body:
    """One iteration of a subgraph: its input values, and its identity within the layer.

    A run is `tentative` where nobody knows yet whether it is due. If it fails, or cannot continue without
    data, it is given up, as if it had never begun. Outputs from number `exact_from` on are handed over with
    their exact sizes, where data decides those. One run may stand for all that follow: see `RolledLoop`.
    """

    graph: Model
    inputs: tuple[Entry, ...]
    label: str = ""
    tentative: bool = False
    exact_from: int = maxsize
    stands_for_all: bool = False


class ControlFlow(ABC):
    """The state of a control-flow layer during planning."""

    def needs(self, k: Builder) -> tuple[Value, ...]:
        """Tensors whose elements `next_iteration` has to know and does not."""
        return ()

    @abstractmethod
    def next_iteration(self, k: Builder) -> Body | None:
        """The iteration to plan now, or None at the end."""

    @abstractmethod
    def receive(self, k: Builder, outputs: tuple[Entry, ...]) -> None:
        """Receive the results of the iteration that `next_iteration` returned."""

    def iterations_left(self) -> int:
        """The known lower bound of remaining iterations."""
        return 0

    def abandon_iteration(self) -> None:
        """Called when a speculative iteration was abandoned because data must be read back first."""

    @abstractmethod
    def results(self, k: Builder) -> tuple[Entry, ...]:
        """The layer's outputs, after `next_iteration` gave None."""

    def live_values(self) -> tuple[Entry, ...]:
        """All values that it retains."""
        return ()

    def copy(self) -> Self:
        """A copy of this state, as several plans may continue from it."""
        other = copy.copy(self)
        # What grows while it runs is in lists.
        vars(other).update({name: [*value] for name, value in vars(self).items() if isinstance(value, list)})
        return other
