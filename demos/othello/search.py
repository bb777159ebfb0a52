"""Tree search led by a network (PUCT), in batches: leaves go out, policies and values come back."""

from __future__ import annotations

import math

import numpy as np

from demos.othello.rules import Position, squares

EXPLORATION = 1.6
_CAUTION = 0.15  # what an untried move is taken to be worth less than its position

_LOSS = np.array((1.0, -1.0))  # a visit, and what it is worth


class Node:
    """A position, and for each of its moves: prior, visits, sum of values for its mover, node after."""

    def __init__(self, position: Position) -> None:
        self.position, self.moves = position, squares(position.moves)
        self.children: dict[int, Node] = {}
        self.visits, self.total = self.sums = np.zeros((2, len(self.moves)))
        self.prior: np.ndarray | None = None  # until the network has answered
        self.value, self.waits = 0.0, False

    def pick(self, prior: np.ndarray) -> int:
        """The number of the move to look into next."""
        visits = self.visits
        worth = np.where(visits > 0, self.total / np.maximum(visits, 1.0), self.value - _CAUTION)
        spread = EXPLORATION * math.sqrt(float(visits.sum()) + 1.0)
        return int((worth + spread * prior / (1.0 + visits)).argmax())


Leaf = tuple[list[tuple[Node, int]], Node]
"""The moves from the root, and the node they end at."""


class Search:
    """The tree below a position. `gather` leaves, let the network judge them, and `receive` what it says."""

    def __init__(self, position: Position) -> None:
        self.root = Node(position)
        self.done = 0
        """Simulations that the root knows of: those before it became the root, and those that came back."""

    def gather(self, most: int) -> list[Leaf]:
        """Up to `most` leaves for the network, all different; games that end are counted at once."""
        leaves: list[Leaf] = []
        for _ in range(4 * most):
            if len(leaves) == most:
                break
            path, node = self._descend()
            if not node.moves:
                lead = node.position.lead
                self._back_up(path, node, (lead > 0) - (lead < 0) + 0.001 * lead)
            elif node.waits:  # All that is promising is on its way to the network already.
                for before, move in path:
                    before.sums[:, move] -= _LOSS
                break
            else:
                node.waits = True
                leaves.append((path, node))
        return leaves

    def receive(self, leaves: list[Leaf], policy: np.ndarray, value: np.ndarray) -> None:
        """Take in what the network says of `leaves`: policy (n, 64) and value (n, 1) for each one's mover."""
        for (path, node), chances, worth in zip(leaves, policy, value[:, 0], strict=False):
            prior = np.maximum(chances[node.moves], 1e-6)
            node.prior, node.value, node.waits = prior / prior.sum(), float(worth), False
            self._back_up(path, node, node.value)

    def advance(self, square: int) -> None:
        """Make the position after a move the root, with what is known of it."""
        known = self.root.children.get(self.root.moves.index(square))
        self.root = known or Node(self.root.position.play(square))
        self.done = int(self.root.visits.sum())

    @property
    def expectation(self) -> float:
        """What black may expect, from -1 (a loss) to 1: the mean of the root's value and all simulations."""
        value = (self.root.value + self.root.total.sum()) / (1.0 + self.root.visits.sum())
        return float(np.clip(value, -1.0, 1.0)) * (1.0 if self.root.position.black_moves else -1.0)

    def choose(self, temperature: float, random: np.random.Generator) -> int:
        """A square to play: the most visited, or by chance where the temperature is above 0."""
        root = self.root
        weights = root.visits + (1e-3 if root.prior is None else root.prior)
        if temperature <= 0.0:
            return root.moves[int(weights.argmax())]
        weights = (weights / weights.max()) ** (1.0 / temperature)
        return root.moves[int(random.choice(len(weights), p=weights / weights.sum()))]

    def _descend(self) -> Leaf:
        node, path = self.root, []
        while node.prior is not None and node.moves:
            move = node.pick(node.prior)
            # A loss is noted until the value comes, so that the next way down is another one.
            node.sums[:, move] += _LOSS
            path.append((node, move))
            if move not in node.children:
                node.children[move] = Node(node.position.play(node.moves[move]))
            node = node.children[move]
        return path, node

    def _back_up(self, path: list[tuple[Node, int]], leaf: Node, value: float) -> None:
        # What began above the root was counted when this became the root.
        self.done += (path[0][0] if path else leaf) is self.root
        for node, move in path:
            same = node.position.black_moves == leaf.position.black_moves
            node.total[move] += 1.0 + (value if same else -value)
