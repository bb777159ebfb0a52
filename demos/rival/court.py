"""The rules, for any number of courts at once, in NumPy: one for the game, hundreds for training.

A court is `WIDTH` wide and 1 high. Side 0, on the left, is the player's, side 1 the rival's. Each side's
inputs are relative to that side, so one network can play either.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]

WIDTH = 1.25
LINE = 0.06  # from a side's edge to where its paddle hits
HALF = 0.072  # half a paddle's length
RADIUS = 0.014
REACH = HALF + RADIUS
PADDLE_SPEED = 0.75  # heights of the court a second
SERVE_SPEED, FASTEST, FASTER = 1.15, 3.2, 1.13
STEEPEST = 0.95  # radians
SPIN = 0.35  # of a paddle's speed that the ball takes along
SENSES, DT = 8, 1 / 30  # inputs of the network; seconds of a step while training


class Court:
    """`games` courts. After a `step`, `hits` says who returned the ball, `missed` by how far."""

    def __init__(self, games: int, random: np.random.Generator) -> None:
        self.random = random
        self.ball, self.velocity = np.zeros((games, 2)), np.zeros((games, 2))
        self.paddles, self.moves = np.full((games, 2), 0.5), np.zeros((games, 2))
        self.hits, self.missed = np.zeros((games, 2), bool), np.zeros(games)
        self.serve(np.ones(games, bool))

    def serve(self, which: npt.NDArray[np.bool_]) -> None:
        """Start a rally from the middle, to a random side, in the games that `which` selects."""
        count = int(which.sum())
        angle = self.random.uniform(-0.7, 0.7, count)
        side = self.random.choice((-1.0, 1.0), count)
        self.ball[which] = np.stack((np.full(count, WIDTH / 2), self.random.uniform(0.2, 0.8, count)), 1)
        self.velocity[which] = SERVE_SPEED * np.stack((side * np.cos(angle), np.sin(angle)), 1)

    def senses(self, side: int) -> Floats:
        """The network's input for a side, (games, SENSES): distance and height of the ball relative to its
        paddle, speed towards it and upwards, where relative to the paddle the ball arrives and in what time
        (0 while it moves away), heights of the own and the other paddle.
        """
        x, y = self.ball.T
        along, up = self.velocity.T
        mine, other = self.paddles[:, side], self.paddles[:, 1 - side]
        distance, coming = (WIDTH - LINE - x, along) if side else (x - LINE, -along)
        comes = coming > 1e-6
        time = np.where(comes, np.maximum(distance, 0.0) / np.maximum(coming, 1e-6), 0.0)
        # Walls mirror: the height unfolds to a line, which a triangle wave folds back.
        arrival = 1.0 - np.abs((y + up * time) % 2.0 - 1.0)
        ball = distance / WIDTH, (y - mine) * 2, coming / 2, up / 2
        goal = np.where(comes, arrival - mine, 0.0) * 4, np.minimum(time, 2.0)
        return np.stack((*ball, *goal, (mine - 0.5) * 2, (other - 0.5) * 2), axis=1)

    def swing(self, moves: Floats, dt: float) -> None:
        """Move the paddles only; used before a serve."""
        self.moves = np.clip(moves, -1.0, 1.0)
        self.paddles = np.clip(self.paddles + self.moves * PADDLE_SPEED * dt, HALF, 1.0 - HALF)

    def step(self, moves: Floats, dt: float) -> Floats:
        """Advance by `dt` seconds; moves: (games, 2) from -1 (down) to 1. Returns who scores, (games,): 1 for
        the rival, -1 for the player, 0 for nobody. A new rally starts after each point.
        """
        self.swing(moves, dt)
        self.ball = self.ball + self.velocity * dt
        x, y = self.ball.T
        bounced = np.clip(y, RADIUS, 1.0 - RADIUS)
        self.velocity[y != bounced, 1] *= -1
        y[:] = 2 * bounced - y
        self.hits[:], self.missed[:] = False, 0.0
        points = np.zeros(len(x))
        sign = np.where(x > WIDTH / 2, 1.0, -1.0)
        beyond = sign * (x - WIDTH / 2) - (WIDTH / 2 - LINE)
        at = np.flatnonzero((beyond > 0.0) & (sign * self.velocity[:, 0] > 0.0))
        if at.size:
            lost = self._arrive(at, sign[at], beyond[at])
            points[lost] = -sign[lost]
            self.serve(points != 0)
        return points

    def _arrive(self, at: npt.NDArray[np.int64], sign: Floats, beyond: Floats) -> npt.NDArray[np.int64]:
        """Handle games `at`, whose ball is `beyond` a side's line. Returns those in which it was missed."""
        side, velocity = (sign > 0).astype(int), self.velocity[at]
        # Where it was when it crossed the line, a part of a step ago.
        height = self.ball[at, 1] - velocity[:, 1] * beyond / np.abs(velocity[:, 0])
        offset = (height - self.paddles[at, side]) / REACH
        met = np.abs(offset) <= 1.0
        hit, lost = at[met], at[~met]
        speed = np.minimum(np.hypot(*velocity[met].T) * FASTER, FASTEST)
        spin = SPIN * PADDLE_SPEED * self.moves[hit, side[met]] / speed
        angle = np.clip(offset[met] * 0.8 + spin, -STEEPEST, STEEPEST)
        self.velocity[hit] = speed[:, None] * np.stack((-sign[met] * np.cos(angle), np.sin(angle)), 1)
        self.ball[hit, 0] -= 2 * sign[met] * beyond[met]
        self.hits[hit, side[met]] = True
        self.missed[lost] = np.abs(offset[~met]) - 1.0
        return lost
