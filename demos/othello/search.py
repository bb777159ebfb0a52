"""Monte Carlo tree search guided by a network (PUCT), with leaves evaluated in batches."""

from __future__ import annotations

import math

import numpy as np

from demos.othello.rules import Position, squares

EXPLORATION = 1.6
_CAUTION = 0.15  # an unvisited move's value is its position's, less this

_LOSS = np.array((1.0, -1.0))  # virtual loss: a visit and its value


class Node:
    """A position; for each move its prior, visits, sum of values for the mover, and child."""

    def __init__(self, position: Position) -> None:
        self.position, self.moves = position, squares(position.moves)
        self.children: dict[int, Node] = {}
        self.visits, self.total = self.sums = np.zeros((2, len(self.moves)))
        self.prior: np.ndarray | None = None  # until the network has answered
        self.value, self.waits = 0.0, False

    def pick(self, prior: np.ndarray) -> int:
        """Index of the move with the highest PUCT score."""
        visits = self.visits
        worth = np.where(visits > 0, self.total / np.maximum(visits, 1.0), self.value - _CAUTION)
        spread = EXPLORATION * math.sqrt(float(visits.sum()) + 1.0)
        return int((worth + spread * prior / (1.0 + visits)).argmax())


Leaf = tuple[list[tuple[Node, int]], Node]
"""The path from the root, and the leaf."""


class Search:
    """The search tree of a position: `gather` leaves, evaluate them, `receive` the results."""

    def __init__(self, position: Position) -> None:
        self.root = Node(position)
        self.done = 0
        """Finished simulations of the root, including those from before it became the root."""

    def gather(self, most: int) -> list[Leaf]:
        """Return up to `most` different leaves for the network; final positions are scored at once."""
        leaves: list[Leaf] = []
        for _ in range(4 * most):
            if len(leaves) == most:
                break
            path, node = self._descend()
            if not node.moves:
                lead = node.position.lead
                self._back_up(path, node, (lead > 0) - (lead < 0) + 0.001 * lead)
            elif node.waits:  # the best leaf is in flight already
                for before, move in path:
                    before.sums[:, move] -= _LOSS
                break
            else:
                node.waits = True
                leaves.append((path, node))
        return leaves

    def receive(self, leaves: list[Leaf], policy: np.ndarray, value: np.ndarray) -> None:
        """Store the network's results for `leaves`: policy (n, 64) and value (n, 1) for the mover."""
        for (path, node), chances, worth in zip(leaves, policy, value[:, 0], strict=False):
            prior = np.maximum(chances[node.moves], 1e-6)
            node.prior, node.value, node.waits = prior / prior.sum(), float(worth), False
            self._back_up(path, node, node.value)

    def advance(self, square: int) -> None:
        """Make the child of a move the root; its subtree is kept."""
        known = self.root.children.get(self.root.moves.index(square))
        self.root = known or Node(self.root.position.play(square))
        self.done = int(self.root.visits.sum())

    @property
    def expectation(self) -> float:
        """Expected result for black, from -1 (loss) to 1: mean of the root's value and all simulations."""
        value = (self.root.value + self.root.total.sum()) / (1.0 + self.root.visits.sum())
        return float(np.clip(value, -1.0, 1.0)) * (1.0 if self.root.position.black_moves else -1.0)

    def choose(self, temperature: float, random: np.random.Generator) -> int:
        """The square to play: the most visited, or sampled if the temperature is above 0."""
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
            # A virtual loss until the value arrives, so that the next descent takes another path.
            node.sums[:, move] += _LOSS
            path.append((node, move))
            if move not in node.children:
                node.children[move] = Node(node.position.play(node.moves[move]))
            node = node.children[move]
        return path, node

    def _back_up(self, path: list[tuple[Node, int]], leaf: Node, value: float) -> None:
        # Simulations from above the root were counted when it became the root.
        self.done += (path[0][0] if path else leaf) is self.root
        for node, move in path:
            same = node.position.black_moves == leaf.position.black_moves
            node.total[move] += 1.0 + (value if same else -value)
