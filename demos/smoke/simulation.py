"""Two boxes of the same smoke; the network solves for the pressure of one, Jacobi iteration for the other."""

from __future__ import annotations

import colorsys
import math
import time

import numpy as np

from demos.smoke.fluid import COLUMNS, ROWS, Array, Fluid, disc, jacobi, walled_box
from gameglue import LEFT, RIGHT, InferenceRequest, MonoBehaviour, Worker

ITERATIONS = {"1": 20, "2": 40, "3": 80}
_KEPT = 180


class Simulation(MonoBehaviour):
    """Runs the fluids. A step ends when its pressure arrives; frames do not wait for it.

    left: for each box and each of the latest steps, the share of the divergence that remained.
    pointer, stone: positions in a box, in cells.
    """

    worker: Worker
    network_ms: float
    autoplay: bool

    def awake(self) -> None:
        """Start without smoke."""
        self.stone = (COLUMNS * 0.5, ROWS * 0.42)
        self.iterations = 40
        self.shows_divergence = False
        self.pointer = self._before = None  # type: tuple[float, float] | None
        self._blows = self._moves = False
        self.steps = 0
        self.left: list[tuple[float, float]] = []
        self.jacobi_ms: list[float] = []
        self.waits: list[tuple[int, float]] = []
        self._request: InferenceRequest | None = None
        self.clear()

    def clear(self) -> None:
        """Remove all smoke and stop the air."""
        self.fluid = Fluid(np.stack([self._box()] * 2))
        self.remaining = np.zeros((2, ROWS, COLUMNS), np.float32)

    def _box(self) -> np.ndarray:
        return disc(walled_box(), *self.stone, 7.0)

    def point_at(self, cell: tuple[float, float] | None) -> None:
        """Set the cell under the pointer: the left button blows smoke, the right one moves the stone."""
        self.pointer = cell
        if cell is not None:  # for the next step: the divergence of this one is in flight
            self._blows |= self.input.get_mouse_button(LEFT)
            self._moves |= self.input.get_mouse_button(RIGHT)

    def _use_pointer(self) -> None:
        before, self._before = self._before, self.pointer
        if self.pointer is None:
            return
        (x, y), (old_x, old_y) = self.pointer, before or self.pointer
        if self._blows:
            slower = max(math.dist((x, y), (old_x, old_y)) / 2.5, 1.0)
            color = colorsys.hsv_to_rgb(0.15 * self.time.time % 1.0, 0.7, 1.0)
            self.fluid.stir(x, y, (x - old_x) / slower, (y - old_y) / slower, 3.5, color)
        if self._moves:
            self.move_stone(x, y)
        self.autoplay = self.autoplay and not (self._blows or self._moves)
        self._blows = self._moves = False

    def move_stone(self, x: float, y: float) -> None:
        """Move the stone; it stays inside the walls."""
        self.stone = (min(max(x, 9.0), COLUMNS - 9.0), min(max(y, 9.0), ROWS - 20.0))
        self.fluid.set_solid(np.stack([self._box()] * 2))

    def update(self) -> None:
        """Read the keys; start a step if the previous one has ended."""
        for key, count in ITERATIONS.items():
            if self.input.get_key_down(key):
                self.iterations = count
        if self.input.get_key_down("v"):
            self.shows_divergence = not self.shows_divergence
        if self.input.get_key_down("c"):
            self.clear()
        if self._request is None or self._request.is_done():
            self._begin_step()

    def _begin_step(self) -> None:
        fluid, now = self.fluid, 0.05 * self.steps
        if self.autoplay:
            self.move_stone(COLUMNS * (0.5 + 0.2 * math.sin(0.35 * now)), ROWS * 0.42)
        self._use_pointer()
        fluid.advance()
        for number, color in enumerate(((1.0, 0.35, 0.2), (0.25, 0.8, 1.0))):
            side = 2 * number - 1
            x = COLUMNS * (0.5 + 0.2 * side)
            fluid.stir(x, ROWS - 9.0, -0.5 * side + 0.4 * math.sin(0.7 * now + number), -1.3, 3.2, color)
        divergence = fluid.divergence()
        started = time.perf_counter()
        pressure = jacobi(divergence[1:], fluid.fluid[1:], fluid.degree[1:], self.iterations)
        self.jacobi_ms = [*self.jacobi_ms[1 - _KEPT :], 1e3 * (time.perf_counter() - started)]
        solid = fluid.solid[:1, None].astype(np.float32)
        self._request = self.app.inference.submit(
            self.worker,
            divergence[:1, None],
            solid,
            callback=lambda request: self._end_step(request, fluid, divergence, pressure),
        )

    def _end_step(self, request: InferenceRequest, fluid: Fluid, divergence: Array, pressure: Array) -> None:
        fluid.project(np.concatenate((request.result()[:, 0], pressure)))
        self.remaining = fluid.divergence()
        before, after = (np.sqrt(np.square(d).mean(axis=(1, 2))) for d in (divergence, self.remaining))
        network, classical = (after / np.maximum(before, 1e-9)).tolist()
        self.left = [*self.left[1 - _KEPT :], (network, classical)]
        self.waits = [*self.waits[1 - _KEPT :], (request.age_frames, request.age_ms)]
        self.steps += 1

    def on_destroy(self) -> None:
        """Cancel requests and dispose the worker."""
        self.app.inference.cancel_all(self.worker)
        self.worker.dispose()
