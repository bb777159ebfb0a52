"""The sea: fish by the thousand, food that grows, and sharks that hunt. NumPy alone; training uses it too.

The sea is `SIZE` large and wraps around. A fish senses what is in the cells around it, seen from its own
heading (forward, left), which `observe` puts into `SENSES` numbers; two numbers steer it, see `step`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]

SENSES = 14
SIZE = np.array((1.5, 1.0), np.float32)
COLUMNS, ROWS = 60, 40
CELL = float(SIZE[0]) / COLUMNS
SLOWEST, FASTEST, TURN = 0.05, 0.30, 6.0  # sizes of the sea's height, or radians, a second
SHARK_SPEED, SHARK_TURN, BITE, SIGHT = 0.32, 2.0, 0.018, 0.24
FOOD_FOR_ALL = 24.0  # cells full of food that all fish together eat in a second
GROWTH = 7.0  # the same, that grow in a second
_Y, _X = np.mgrid[0:ROWS, 0:COLUMNS].astype(np.float32)
_CENTERS = np.stack(((_X + 0.5) * CELL, (_Y + 0.5) * CELL), axis=-1)


def shortest(way: Floats) -> Floats:
    """Differences of places (..., 2), the short way round."""
    half = SIZE / 2
    return np.asarray((way + half) % SIZE - half, np.float32)


def _blurred(fields: Floats) -> Floats:
    """(..., ROWS, COLUMNS), mixed with the neighbouring cells."""
    for axis in (-1, -2):
        fields = 0.5 * fields + 0.25 * (np.roll(fields, 1, axis) + np.roll(fields, -1, axis))
    return fields


def _slopes(field: Floats) -> tuple[Floats, Floats]:
    """How a field rises along x and y, a cell."""
    return (
        (np.roll(field, -1, 1) - np.roll(field, 1, 1)) / 2,
        (np.roll(field, -1, 0) - np.roll(field, 1, 0)) / 2,
    )


class Sea:
    """`count` fish and `sharks` sharks. What is eaten and who is caught counts per fish, so that any number
    of them lives in the same sea. `ghost`: where a player frightens them, if anywhere.
    """

    def __init__(self, count: int, random: np.random.Generator, sharks: int = 3) -> None:
        self.random = random
        self.food = np.zeros((ROWS, COLUMNS), np.float32)
        self.scent = np.zeros((ROWS, COLUMNS), np.float32)
        self.place: Floats = np.zeros((0, 2), np.float32)
        self.heading: Floats = np.zeros(0, np.float32)
        self.speed: Floats = np.zeros(0, np.float32)
        self.shark_place = random.random((sharks, 2), np.float32) * SIZE
        self.shark_heading = random.random(sharks, np.float32) * 6.28
        self.ghost: tuple[float, float] | None = None
        self.caught = 0
        for _ in range(8):
            self.grow()
        self.resize(count)

    @property
    def count(self) -> int:
        """How many fish."""
        return len(self.heading)

    def resize(self, count: int) -> None:
        """Have `count` fish: some leave, or new ones come anywhere."""
        kept, fresh = min(count, self.count), max(count - self.count, 0)
        places = self.random.random((fresh, 2), np.float32) * SIZE
        self.place = np.concatenate((self.place[:kept], places))
        self.heading = np.append(self.heading[:kept], self.random.random(fresh, np.float32) * 6.28)
        self.speed = np.append(self.speed[:kept], np.full(fresh, 0.15, np.float32))
        self.fear = self.eating = np.zeros(count, np.float32)
        self.observe()

    def grow(self, where: tuple[float, float] | None = None, radius: float = 0.05) -> None:
        """Let a patch of food grow, somewhere or at a place."""
        center = self.random.random(2, np.float32) * SIZE if where is None else np.array(where, np.float32)
        distance = np.linalg.norm(shortest(_CENTERS - center), axis=-1)
        self.food = np.maximum(self.food, np.clip(1.5 - distance / radius, 0.0, 1.0))

    def observe(self) -> Floats:
        """What every fish senses, (count, SENSES): slopes of scent (2), food here, scent; the nearest shark's
        direction (2), closeness and aim; slopes of crowd (2), crowd; how others swim (2); its own speed.
        """
        cos, sin = np.cos(self.heading), np.sin(self.heading)
        cells = (self.place / CELL).astype(np.int32)
        self.cells = (cells[:, 1] % ROWS) * COLUMNS + cells[:, 0] % COLUMNS
        share = ROWS * COLUMNS / self.count
        fields = [
            np.bincount(self.cells, weights, ROWS * COLUMNS)
            for weights in (None, cos * self.speed, sin * self.speed)
        ]
        crowd, along, across = _blurred(
            _blurred(np.array(fields, np.float32).reshape(3, ROWS, COLUMNS) * share)
        )
        self.crowd = crowd
        scent = np.log(self.scent + 1e-3)
        flow = 1.0 / (FASTEST * (crowd + 0.2))
        table = (*_slopes(scent), self.food, scent, *_slopes(crowd), crowd, along * flow, across * flow)
        sensed = np.stack(table, axis=-1).reshape(-1, 9)[self.cells]
        away, closeness, aim = self._nearest_shark()
        self.fear = closeness

        def seen(x: Floats, y: Floats) -> tuple[Floats, Floats]:
            return cos * x + sin * y, cos * y - sin * x

        rise = 2.0 / (1.0 + np.hypot(sensed[:, 0], sensed[:, 1]) * 2.0)
        dense = 1.0 / (1.0 + np.abs(sensed[:, 4]) + np.abs(sensed[:, 5]))
        ahead, left = seen(sensed[:, 7], sensed[:, 8])
        self.aligned = ahead
        senses = (
            *seen(sensed[:, 0] * rise, sensed[:, 1] * rise),
            sensed[:, 2],
            sensed[:, 3] / 5.0,
            *seen(away[:, 0] * closeness, away[:, 1] * closeness),
            closeness,
            aim * closeness,
            *seen(sensed[:, 4] * dense, sensed[:, 5] * dense),
            np.minimum(sensed[:, 6] / 4.0, 2.0),
            ahead,
            left,
            self.speed / FASTEST,
        )
        return np.stack(senses, axis=1).astype(np.float32)

    def _nearest_shark(self) -> tuple[Floats, Floats, Floats]:
        """Direction to it (count, 2), closeness from 0 to 1, and whether it comes (1) or goes (-1)."""
        places, headings = self.shark_place, self.shark_heading
        if self.ghost is not None:
            places = np.vstack((places, np.array(self.ghost, np.float32)))
            headings = np.append(headings, np.float32(0.0))
        way = shortest(places[None] - self.place[:, None])
        distances = np.hypot(way[..., 0], way[..., 1])
        nearest = distances.argmin(axis=1)
        every = np.arange(self.count)
        distance = distances[every, nearest]
        self.to_shark = distance
        toward = way[every, nearest] / np.maximum(distance, 1e-4)[:, None]
        heading = headings[nearest]
        aim = -(toward[:, 0] * np.cos(heading) + toward[:, 1] * np.sin(heading))
        return toward, np.clip(1.0 - distance / SIGHT, 0.0, 1.0), aim

    def step(self, steering: Floats, dt: float) -> Floats:
        """Go on by `dt` seconds; `observe` comes between two steps. Returns a reward for each fish (count,).

        steering: (count, 2) from -1 to 1: turn to the right or left, and slow down or speed up.
        """
        turn, push = np.clip(steering[:, 0], -1.0, 1.0), np.clip(steering[:, 1], -1.0, 1.0)
        self.heading = (self.heading + turn * TURN * dt) % (2 * np.pi)
        wanted = SLOWEST + (FASTEST - SLOWEST) * (push + 1.0) / 2
        self.speed = self.speed + (wanted - self.speed) * min(5.0 * dt, 1.0)
        way = np.stack((np.cos(self.heading), np.sin(self.heading)), axis=1) * self.speed[:, None]
        self.place = (self.place + way * dt) % SIZE
        self._eat(dt)
        self._hunt(dt)
        crowded = np.clip((self.crowd.ravel()[self.cells] - 3.0) / 8.0, 0.0, 2.0)
        effort = (self.speed / FASTEST) ** 2
        pleasure = self.eating + 0.15 * self.aligned - 0.2 * crowded - 0.15 * effort - 0.5 * self.fear
        caught = np.flatnonzero(self.to_shark < BITE)
        reward = pleasure * dt
        reward[caught] -= 8.0
        # Another one is born elsewhere, so that there are always as many.
        self.place[caught] = self.random.random((len(caught), 2), np.float32) * SIZE
        self.caught += len(caught)
        return np.asarray(reward, np.float32)

    def _eat(self, dt: float) -> None:
        food = self.food.ravel()
        mouths = np.bincount(self.cells, minlength=len(food))
        portion = FOOD_FOR_ALL * dt / self.count
        given = np.minimum(food, mouths * portion)
        self.eating = (given / np.maximum(mouths * portion, 1e-9)).astype(np.float32)[self.cells]
        self.food = (food - given).astype(np.float32).reshape(ROWS, COLUMNS)
        if self.random.random() < GROWTH / 11.0 * dt and self.food.sum() < 90.0:
            self.grow()
        for _ in range(2):
            self.scent = _blurred(self.scent)
        self.scent += (self.food - 0.6 * self.scent) * min(6.0 * dt, 0.5)

    def _hunt(self, dt: float) -> None:
        """Sharks swim to where fish are dense and near."""
        way = shortest(_CENTERS[None] - self.shark_place[:, None, None])
        worth = self.crowd * np.exp(-(way**2).sum(-1) / 0.25**2)
        best = worth.reshape(len(way), -1).argmax(axis=1)
        goal = way.reshape(len(way), -1, 2)[np.arange(len(way)), best]
        turn = np.arctan2(goal[:, 1], goal[:, 0]) - self.shark_heading
        turn = (turn + np.pi) % (2 * np.pi) - np.pi
        self.shark_heading = self.shark_heading + np.clip(turn, -SHARK_TURN * dt, SHARK_TURN * dt)
        along = np.stack((np.cos(self.shark_heading), np.sin(self.shark_heading)), axis=1)
        self.shark_place = np.asarray((self.shark_place + along * SHARK_SPEED * dt) % SIZE, np.float32)
