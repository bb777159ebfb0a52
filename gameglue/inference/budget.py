"""Scheduling policy of the frame budget: priority, then deadline, then fair shares.

Fairness is that of virtual time: what was spent on one client, divided by its weight; the one with the least
has the next turn. A client that was idle begins at the least of those that are not, so idling saves nothing.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

PATIENCE = 60
"""After so many frames without a turn, a client that wants one comes first, regardless of its priority."""

_ROUNDING = 1e-6
_HITCH = 4.0
_SLICE_MS = 0.5
"""What a slice is worth where they are counted."""
Rank = tuple[bool, int, float]


class StepTime(NamedTuple):
    """The expected time of one step in milliseconds, in addition to the measured time of this thread."""

    frame_ms: float
    """Of the frame: the GPU's time, which the game's image has to wait for."""
    jobs_ms: float
    """Of job threads: counts in the fair shares only."""
    progressed: bool = True
    """False if all there is to do has to wait for something: no further turn in this frame."""


class BudgetClient(ABC):
    """A participant in the frame budget."""

    is_on_jobs = False
    """Whether its steps run on job threads and leave the GPU alone."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.weight = 1.0
        self.virtual = 0.0
        self.saved = 0.0
        """Milliseconds laid by for a step that is dearer than a frame's budget."""
        self.frames_passed_over = 0
        self.had_turn = False
        self.spent = 0.0
        """What its steps took in this frame, in ms of its device."""
        self.recent = 0.0
        """The same of the latest frames together, the older the less."""

    @property
    @abstractmethod
    def urgency(self) -> tuple[int, float]:
        """Sort key: negative priority, then deadline; the smallest comes first."""

    @property
    @abstractmethod
    def expected_ms(self) -> float:
        """Expected frame time of the next step."""

    @abstractmethod
    def wants_turn(self) -> bool:
        """Whether it could do a step now."""

    @abstractmethod
    def take(self, grant_ms: float) -> StepTime:
        """Do a step of about `grant_ms`, or the smallest there is. Never raises."""

    @property
    def rank(self) -> Rank:
        """Sort key regardless of fairness; the smallest comes first."""
        return (self.frames_passed_over < PATIENCE, *self.urgency)


class FrameBudget:
    """Distributes each frame's budget, and carries debts over."""

    def __init__(self, clock_ms: Callable[[], float], counts_slices: bool = False) -> None:
        """clock_ms: the time in ms. counts_slices: every step costs 1, regardless of its time."""
        self._clock_ms = clock_ms
        self._counts_slices = counts_slices
        self._has_dipped = False
        self.given = 0.0
        """What this frame was given, in ms (or slices)."""
        self.left = 0.0
        self.spent = 0.0
        """What steps took in this frame."""
        self.debt = 0.0
        """What the frame spent too much; the next one has that much less."""

    def spend(self, clients: Sequence[BudgetClient], budget: float) -> float:
        """Run steps until the budget is spent or no client has work; returns what was spent.

        A step begins only if it is expected to fit. One that fits a whole frame but not what is left of this
        one comes first in the next, and smaller ones take what is left. One that is dearer than a whole
        frame's budget lays by its share, frame after frame, until it can be paid: so the mean is kept, and
        a frame spends at most that one step more than its budget. What a step takes beyond what was expected
        is missing in the next frame, up to one frame's budget.
        """
        self.given, self.spent, self._has_dipped = budget, 0.0, False
        self.left = budget - self.debt
        for client in clients:
            client.had_turn, client.spent = False, 0.0
        wanting = [client for client in clients if client.wants_turn()]
        weights: dict[Rank, float] = defaultdict(float)
        for client in wanting:
            weights[client.rank] += client.weight
        turns = [(client.rank, client.virtual, i) for i, client in enumerate(wanting)]
        heapq.heapify(turns)
        while turns and self.left > _ROUNDING:
            rank, _, i = heapq.heappop(turns)
            client = wanting[i]
            share = budget * client.weight / max(weights[rank], client.weight)
            if self._turn(client, share) and client.wants_turn():
                heapq.heappush(turns, (client.rank, client.virtual, i))
        for client in wanting:
            client.frames_passed_over = 0 if client.had_turn else client.frames_passed_over + 1
        self.debt = min(max(-self.left, 0.0), budget)
        return self.spent

    def _turn(self, client: BudgetClient, share: float) -> bool:
        """Let `client` do a step, or save budget for one; whether it may have another turn in this frame."""
        cost = 1.0 if self._counts_slices else client.expected_ms
        left = self.left
        if cost <= left + _ROUNDING:
            return self._step(client, min(max(share, cost), left))
        if self.spent > 0.0 and cost <= self.given:
            return False
        if client.saved + left < cost - _ROUNDING:
            laid_by = min(share, left)
            client.saved += laid_by
            client.virtual += laid_by / client.weight
            client.had_turn = True
            self.left -= laid_by
            return True
        if self._has_dipped:
            return False
        self._has_dipped = True
        return self._step(client, cost)

    def _step(self, client: BudgetClient, grant: float) -> bool:
        before = self._clock_ms()
        step = client.take(_SLICE_MS if self._counts_slices else grant)
        elapsed = self._clock_ms() - before
        if self._counts_slices:
            cost = share = float(step.frame_ms + step.jobs_ms > 0.0)
        else:
            cost = max(elapsed, step.frame_ms)
            # A hitch (a first time, another program) is no reason to be passed over for long.
            share = max(min(cost, _HITCH * grant), step.jobs_ms)
        paid = min(client.saved, cost)
        client.saved -= paid
        client.virtual += max(share - paid, 0.0) / client.weight
        client.spent += share
        client.had_turn = True
        self.spent += cost
        self.left -= cost - paid
        return step.progressed


def join(client: BudgetClient, others: Iterable[BudgetClient]) -> None:
    """Raise a client's virtual time to at least the others' lowest, so that idling gains no credit."""
    least = min((other.virtual for other in others if other is not client), default=None)
    if least is not None:
        client.virtual = max(client.virtual, least)
