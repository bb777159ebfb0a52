"""Fluids to learn from and to measure with: boxes with stones and jets at random, at all stages of flow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from demos.smoke.fluid import COLUMNS, ROWS, Array, Fluid, Mask, disc, walled_box

RENEWED = 0.02  # of the fluids that take a step begin anew
BLOWING = 0.7  # of the time, each jet


@dataclass(frozen=True)
class Box:
    """A fluid of one box, and its jets: x, y, dx, dy, radius, in cells and cells a step."""

    fluid: Fluid
    jets: list[tuple[float, float, float, float, float]]


def random_box(rng: np.random.Generator) -> Mask:
    """A walled box with up to three stones."""
    solid = walled_box()
    for _ in range(rng.integers(0, 4)):
        solid = disc(solid, rng.uniform(4, COLUMNS - 4), rng.uniform(8, ROWS - 4), rng.uniform(2, 11))
    return solid


class Pool:
    """Fluids that take a step from time to time. Whoever takes them projects them."""

    def __init__(self, seed: int, count: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.boxes = [self._box() for _ in range(count)]

    def _box(self) -> Box:
        rng = self.rng
        jets = []
        for _ in range(rng.integers(1, 4)):
            x, y, radius = rng.uniform(4, COLUMNS - 4), rng.uniform(8, ROWS - 2), rng.uniform(2, 6)
            jets.append((x, y, rng.normal(0.0, 1.2), rng.normal(0.0, 1.2), radius))
        return Box(Fluid(random_box(rng)[None]), jets)

    def step(self, count: int) -> list[Fluid]:
        """Move so many fluids one step on; their pressure is still to be found."""
        chosen = self.rng.choice(len(self.boxes), count, replace=False)
        fluids = []
        for number in chosen:
            if self.rng.random() < RENEWED:
                self.boxes[number] = self._box()
            box = self.boxes[number]
            box.fluid.advance()
            for x, y, dx, dy, radius in box.jets:
                if self.rng.random() < BLOWING:
                    box.fluid.stir(x, y, dx, dy, radius, self.rng.random(3))
            fluids.append(box.fluid)
        return fluids


def stacked(fluids: list[Fluid]) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """The network's inputs: divergence and solid, (n, 1, ROWS, COLUMNS)."""
    divergence = np.stack([fluid.divergence() for fluid in fluids])
    return divergence, np.stack([fluid.solid for fluid in fluids]).astype(np.float32)


def conjugate_gradients(fluid: Fluid, divergence: Array, tolerance: float = 1e-5) -> Array:
    """The pressure (n, rows, columns) to within `tolerance` of the divergence, of one box (n is 1)."""

    def flow(p: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        around = np.pad(p, ((0, 0), (1, 1), (1, 1)))
        beside = around[:, :-2, 1:-1] + around[:, 2:, 1:-1] + around[:, 1:-1, :-2] + around[:, 1:-1, 2:]
        return np.asarray((fluid.degree * p - beside) * fluid.fluid)

    left = -divergence.astype(np.float64)
    pressure, direction = np.zeros_like(left), left
    power, enough = float((left * left).sum()), tolerance**2 * float((left * left).sum())
    for _ in range(4 * divergence.size):
        if power <= enough:
            break
        image = flow(direction)
        step = power / float((direction * image).sum())
        pressure, left = pressure + step * direction, left - step * image
        before, power = power, float((left * left).sum())
        direction = left + power / before * direction
    return pressure.astype(np.float32)
