"""Stable fluids (Stam 1999) on a staggered grid; several boxes in one array.

Velocities are stored on the faces between cells, in cells a step: `u` (n, rows, columns + 1) to the right and
`v` (n, rows + 1, columns) downwards; row 0 is on top. Solid cells are impermeable; outside the grid is open
air at pressure 0. A step is `advance`, then `project` with the pressure of a solver.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.floating[Any]]
Mask = npt.NDArray[np.bool_]

ROWS, COLUMNS = 96, 64
BUOYANCY = 0.05  # cells a step, upwards in every step, where smoke is full
SWIRL = 0.25  # strength of the vorticity confinement
FADING = 0.996  # of the smoke, in each step
CALMING = 0.999  # of the velocity


def walled_box(rows: int = ROWS, columns: int = COLUMNS) -> Mask:
    """Mask of a box (rows, columns) that is open on top: true in the walls."""
    solid = np.zeros((rows, columns), np.bool_)
    solid[:, 0] = solid[:, -1] = solid[-1] = True
    return solid


def disc(solid: Mask, x: float, y: float, radius: float) -> Mask:
    """`solid` with a round stone added; position and radius in cells."""
    rows, columns = np.indices(solid.shape, np.float32)
    return np.asarray(solid | ((columns + 0.5 - x) ** 2 + (rows + 0.5 - y) ** 2 < radius**2))


class Fluid:
    """`n` boxes of smoke. `smoke` is (n, rows, columns, 3): red, green and blue from 0."""

    def __init__(self, solid: Mask) -> None:
        """solid: (n, rows, columns)."""
        n, rows, columns = solid.shape
        self.u = np.zeros((n, rows, columns + 1), np.float32)
        self.v = np.zeros((n, rows + 1, columns), np.float32)
        self.smoke = np.zeros((n, rows, columns, 3), np.float32)
        self._x, self._y = np.meshgrid(np.arange(columns + 1), np.arange(rows + 1))
        self._x, self._y = self._x.astype(np.float32), self._y.astype(np.float32)
        self.set_solid(solid)

    def set_solid(self, solid: Mask) -> None:
        """Replace the obstacles; the velocity inside them becomes 0."""
        self.solid = solid
        self.fluid = (~solid).astype(np.float32)
        beside = np.pad(self.fluid, ((0, 0), (0, 0), (1, 1)), constant_values=1.0)
        above = np.pad(self.fluid, ((0, 0), (1, 1), (0, 0)), constant_values=1.0)
        self.u_open, self.v_open = beside[:, :, 1:] * beside[:, :, :-1], above[:, 1:] * above[:, :-1]
        # How many of a cell's four neighbours are not solid.
        self.degree = beside[:, :, 2:] + beside[:, :, :-2] + above[:, 2:] + above[:, :-2]
        self.smoke *= self.fluid[..., None]
        self.u *= self.u_open
        self.v *= self.v_open

    def divergence(self) -> Array:
        """Net outflow of each cell in a step, (n, rows, columns); 0 in solid cells."""
        flow = np.diff(self.u, axis=2) + np.diff(self.v, axis=1)
        return np.asarray(flow * self.fluid)

    def project(self, pressure: Array) -> None:
        """Subtract the gradient of a pressure (n, rows, columns); an exact one leaves no divergence."""
        around = np.pad(pressure * self.fluid, ((0, 0), (1, 1), (1, 1)))
        self.u -= np.diff(around[:, 1:-1], axis=2) * self.u_open
        self.v -= np.diff(around[:, :, 1:-1], axis=1) * self.v_open

    def stir(self, x: float, y: float, dx: float, dy: float, radius: float, color: npt.ArrayLike) -> None:
        """Add velocity (dx, dy), in cells a step, and smoke around the cell (x, y) of all boxes."""
        rows = self.fluid.shape[1]
        bump_u = np.exp(-((self._x[:rows] - x) ** 2 + (self._y[:rows] + 0.5 - y) ** 2) / radius**2)
        bump_v = np.exp(-((self._x[:, :-1] + 0.5 - x) ** 2 + (self._y[:, :-1] - y) ** 2) / radius**2)
        self.u += (dx - self.u) * np.minimum(bump_u, 0.8) * self.u_open
        self.v += (dy - self.v) * np.minimum(bump_v, 0.8) * self.v_open
        puff = np.minimum(bump_v[1:], bump_u[:, 1:])[..., None] * np.asarray(color, np.float32)
        self.smoke = np.maximum(self.smoke, puff * self.fluid[..., None])

    def advance(self) -> None:
        """Advect velocity and smoke and apply forces. The result has divergence."""
        u, v = self.u, self.v
        rows = self.fluid.shape[1]
        down, right = (v[:, 1:] + v[:, :-1]) / 2, (u[:, :, 1:] + u[:, :, :-1]) / 2
        v_at_u = np.pad(down, ((0, 0), (0, 0), (1, 1)), mode="edge")
        u_at_v = np.pad(right, ((0, 0), (1, 1), (0, 0)), mode="edge")
        x, y = self._x, self._y
        new_u = _sample(u, x[:rows] - u, y[:rows] - (v_at_u[:, :, 1:] + v_at_u[:, :, :-1]) / 2)
        new_v = _sample(v, x[:, :-1] - (u_at_v[:, 1:] + u_at_v[:, :-1]) / 2, y[:, :-1] - v)
        self.smoke = _sample(self.smoke, x[:rows, :-1] - right, y[:rows, :-1] - down) * FADING
        push_x, push_y = self._swirl(right, down)
        push_y -= BUOYANCY * self.smoke.max(axis=3)
        new_u[:, :, 1:-1] += (push_x[:, :, 1:] + push_x[:, :, :-1]) / 2
        new_v[:, 1:-1] += (push_y[:, 1:] + push_y[:, :-1]) / 2
        self.u, self.v = new_u * self.u_open * CALMING, new_v * self.v_open * CALMING
        self.smoke *= self.fluid[..., None]

    def _swirl(self, right: Array, down: Array) -> tuple[Array, Array]:
        """Force of the vorticity confinement (Fedkiw, Stam and Jensen 2001)."""
        turn = np.gradient(down, axis=2) - np.gradient(right, axis=1)
        slope_y, slope_x = np.gradient(np.abs(turn), axis=(1, 2))
        scale = SWIRL * turn / (np.hypot(slope_x, slope_y) + 1e-4)
        return np.asarray(scale * slope_y), np.asarray(-scale * slope_x)


def _sample(field: Array, x: Array, y: Array) -> Array:
    """Bilinear samples of `field` (n, h, w) or (n, h, w, k) at x and y (n, ...), in grid units."""
    n, h, w = field.shape[:3]
    x, y = np.clip(x, 0.0, w - 1.001), np.clip(y, 0.0, h - 1.001)
    left, top = x.astype(np.int32), y.astype(np.int32)
    fx, fy = x - left, y - top
    corner = top * w + left + (np.arange(n, dtype=np.int32) * (h * w))[:, None, None]
    flat = field.reshape(n * h * w, -1) if field.ndim == 4 else field.reshape(-1)
    if field.ndim == 4:
        fx, fy = fx[..., None], fy[..., None]
    upper = np.take(flat, corner, axis=0) * (1.0 - fx) + np.take(flat, corner + 1, axis=0) * fx
    lower = np.take(flat, corner + w, axis=0) * (1.0 - fx) + np.take(flat, corner + w + 1, axis=0) * fx
    return np.asarray(upper + (lower - upper) * fy, np.float32)


def jacobi(divergence: Array, fluid: Array, degree: Array, iterations: int) -> Array:
    """Solves for the pressure by Jacobi iteration.

    divergence, and `Fluid.fluid` and `Fluid.degree` of the same boxes: (n, rows, columns).
    """
    around = np.pad(np.zeros_like(divergence), ((0, 0), (1, 1), (1, 1)))
    share = fluid / np.maximum(degree, 1.0)
    inflow = -divergence * share
    for _ in range(iterations):
        total = around[:, :-2, 1:-1] + around[:, 2:, 1:-1]
        total += around[:, 1:-1, :-2]
        total += around[:, 1:-1, 2:]
        total *= share
        total += inflow
        around[:, 1:-1, 1:-1] = total
    return np.asarray(around[:, 1:-1, 1:-1])
