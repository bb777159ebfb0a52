"""The simulation in NumPy: thousands of fish, food that grows, and sharks that hunt. Training uses it, too.

The sea is `SIZE` large and wraps around. Places are (x, y); directions and slopes are complex, x + iy.
Multiplied by the conjugate of a fish's heading, a direction becomes relative to the fish: forward + i left.
`observe` returns the `SENSES` inputs of every fish; `step` takes its two outputs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]
Directions = npt.NDArray[np.complexfloating[Any, Any]]

SENSES = 14
SIZE = np.array((1.5, 1.0), np.float32)
COLUMNS, ROWS = 60, 40
CELL = float(SIZE[0]) / COLUMNS
SLOWEST, FASTEST, TURN = 0.05, 0.30, 6.0  # sizes of the sea's height, or radians, a second
SHARK_SPEED, SHARK_TURN, BITE, SIGHT = 0.32, 2.0, 0.018, 0.24
FOOD_FOR_ALL = 24.0  # cells full of food that all fish together eat in a second
GROWTH = 7.0  # the same, that grow in a second
_Y, _X = np.mgrid[0:ROWS, 0:COLUMNS]
_CENTERS = ((np.stack((_X, _Y), axis=-1) + 0.5) * CELL).astype(np.float32)


def shortest(way: Floats) -> Directions:
    """Differences of places (..., 2) in the wrapped sea, as complex directions (...)."""
    x, y = np.moveaxis((way + SIZE / 2) % SIZE - SIZE / 2, -1, 0)
    return np.asarray(x + 1j * y, np.complex64)


def heads(angles: Floats) -> Directions:
    """Unit directions of angles from the x axis, in radians."""
    return np.asarray(np.cos(angles) + 1j * np.sin(angles))


def moved(place: Floats, way: Directions) -> Floats:
    """Places (n, 2), moved by `way` (n,)."""
    return np.asarray((place + np.stack((way.real, way.imag), axis=1)) % SIZE, np.float32)


def blurred(fields: Floats) -> Floats:
    """`fields` (..., ROWS, COLUMNS), blurred with the neighbouring cells."""
    for axis in (-1, -2):
        fields = 0.5 * fields + 0.25 * (np.roll(fields, 1, axis) + np.roll(fields, -1, axis))
    return fields


def slope(field: Floats, gain: float) -> Directions:
    """Gradient of `field`, times `gain`; its length is limited to 1."""
    along, across = (np.roll(field, -1, axis) - np.roll(field, 1, axis) for axis in (1, 0))
    rise = (along + 1j * across) * gain / 2
    return np.asarray(rise / (1 + np.abs(rise)))


class Sea:
    """The sea with `count` fish and `sharks` sharks. Food and catches are scaled by the number of fish.

    ghost: where the player frightens them, or `None`.
    """

    def __init__(self, count: int, random: np.random.Generator, sharks: int = 3) -> None:
        self.random = random
        self.food = np.zeros((ROWS, COLUMNS), np.float32)
        self.scent = self.food.copy()
        self.place, self.heading = self._anywhere(0)
        self.speed = self.heading.copy()
        self.shark_place, self.shark_heading = self._anywhere(sharks)
        self.ghost: tuple[float, float] | None = None
        self.caught = 0
        for _ in range(8):
            self.grow()
        self.resize(count)

    @property
    def count(self) -> int:
        """Number of fish."""
        return len(self.heading)

    def _anywhere(self, count: int) -> tuple[Floats, Floats]:
        """Random places (count, 2), and headings (count,) in radians."""
        return self.random.random((count, 2), np.float32) * SIZE, self.random.random(count, np.float32) * 6.28

    def resize(self, count: int) -> None:
        """Change the number of fish; new ones start at random places."""
        fresh = max(count - self.count, 0)
        places, headings = self._anywhere(fresh)
        self.place = np.concatenate((self.place[:count], places))
        self.heading = np.append(self.heading[:count], headings)
        self.speed = np.append(self.speed[:count], np.full(fresh, 0.15, np.float32))
        self.fear = self.eating = np.zeros(count, np.float32)
        self.observe()

    def grow(self, where: tuple[float, float] | None = None, radius: float = 0.05) -> None:
        """Add a patch of food, at a random or a given place."""
        center = self._anywhere(1)[0] if where is None else np.array(where, np.float32)
        self.food = np.maximum(self.food, np.clip(1.5 - np.abs(shortest(_CENTERS - center)) / radius, 0, 1))

    def observe(self) -> Floats:
        """The inputs of every fish, (count, SENSES): forward, and then left, the gradient of the scent, the
        gradient of the crowd, the flow of the neighbours and the direction of the nearest shark (4 each);
        then food, scent and crowd here, closeness and approach of the shark, and the own speed.
        """
        facing = heads(self.heading)
        columns, rows = (self.place / CELL).astype(np.int32).T
        self.cells = rows % ROWS * COLUMNS + columns % COLUMNS
        swims = facing * self.speed
        counted = [np.bincount(self.cells, what, ROWS * COLUMNS) for what in (None, swims.real, swims.imag)]
        shares = np.float32(ROWS * COLUMNS / self.count) * np.array(counted, np.float32)
        self.crowd, along, across = blurred(blurred(shares.reshape(3, ROWS, COLUMNS)))
        flow = (along + 1j * across) / (FASTEST * (self.crowd + 0.2))
        scent = np.log(self.scent + 1e-3)
        ways = np.stack((slope(scent, 2.0), slope(self.crowd, 1.0), flow))
        amounts = np.stack((self.food, scent / 5, np.minimum(self.crowd / 4, 2)))
        shark, aim = self._nearest_shark()
        seen = np.vstack((self._here(ways), shark)) * facing.conj()
        felt = np.vstack((self._here(amounts), self.fear, aim, self.speed / FASTEST))
        return np.concatenate((seen.real, seen.imag, felt)).T.astype(np.float32, order="C")

    def _here(self, fields: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Values of fields (n, ROWS, COLUMNS) at every fish: (n, count)."""
        return np.take(fields.reshape(len(fields), -1), self.cells, axis=1)

    def _nearest_shark(self) -> tuple[Directions, Floats]:
        """Direction of the nearest shark, and whether it approaches (1) or leaves (-1), both scaled by its
        closeness `fear`, from 0 to 1.
        """
        places, headings = self.shark_place, np.append(self.shark_heading, 0.0)
        if self.ghost is not None:
            places = np.vstack((places, self.ghost))
        way = shortest(places - self.place[:, None])
        nearest = np.abs(way).argmin(axis=1)
        way = way[np.arange(self.count), nearest]
        self.to_shark = np.abs(way)
        self.fear = np.clip(1 - self.to_shark / SIGHT, 0, 1)
        way *= self.fear / np.maximum(self.to_shark, 1e-4)
        return way, -(way * heads(headings)[nearest].conj()).real

    def step(self, steering: Floats, dt: float) -> npt.NDArray[np.bool_]:
        """Advance by `dt` seconds; call `observe` between two steps. Returns who was caught, (count,).

        steering: (count, 2) from -1 to 1: turn right or left, and slow down or speed up.
        """
        turn, push = np.clip(steering, -1, 1).T
        self.heading = (self.heading + turn * TURN * dt) % (2 * np.pi)
        wanted = SLOWEST + (FASTEST - SLOWEST) * (push + 1) / 2
        self.speed = self.speed + (wanted - self.speed) * min(5 * dt, 1)
        self.place = moved(self.place, heads(self.heading) * self.speed * dt)
        self._eat(dt)
        self._hunt(dt)
        is_caught = self.to_shark < BITE
        # Another one is born elsewhere, so that there are always as many.
        self.place[is_caught] = self._anywhere(is_caught.sum())[0]
        self.caught += int(is_caught.sum())
        return is_caught

    def _eat(self, dt: float) -> None:
        food = self.food.ravel()
        wanted = np.bincount(self.cells, minlength=len(food)) * FOOD_FOR_ALL * dt / self.count
        given = np.minimum(food, wanted)
        self.eating = (given / np.maximum(wanted, 1e-9))[self.cells]
        self.food = np.asarray(food - given, np.float32).reshape(ROWS, COLUMNS)
        if self.random.random() < GROWTH / 11 * dt and self.food.sum() < 90:
            self.grow()
        self.scent = blurred(blurred(self.scent))
        self.scent += (self.food - 0.6 * self.scent) * min(6 * dt, 0.5)

    def _hunt(self, dt: float) -> None:
        """Move the sharks towards fish that are dense and near."""
        way = shortest(_CENTERS - self.shark_place[:, None, None])
        worth = self.crowd * np.exp(-(np.abs(way) ** 2) / 0.25**2)
        best = worth.reshape(len(way), -1).argmax(axis=1)
        goal = way.reshape(len(way), -1)[np.arange(len(way)), best]
        turn = np.angle(goal * heads(self.shark_heading).conj())
        self.shark_heading = self.shark_heading + np.clip(turn, -SHARK_TURN * dt, SHARK_TURN * dt)
        self.shark_place = moved(self.shark_place, heads(self.shark_heading) * SHARK_SPEED * dt)
