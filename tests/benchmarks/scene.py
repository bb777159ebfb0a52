"""The scene that plays while a network is loaded or runs beside it."""

from __future__ import annotations

import math

import numpy as np

from engine import Tensor, Worker
from gameglue import App, MonoBehaviour, SpriteRenderer
from tests.networks import Inputs

SAMPLE = "engine"
"""What the profiler calls the time in calls of the engine."""


class Dancer(MonoBehaviour):
    """A sprite that goes round and turns."""

    phase: float = 0.0

    def update(self) -> None:
        angle = self.phase + self.time.time
        self.transform.local_position = (4 * math.cos(angle), 3 * math.sin(1.3 * angle), 0.0)
        self.transform.rotate(90 * self.time.delta_time)


class Board(MonoBehaviour):
    """What is drawn over the scene: a plot, bars and lines of text."""

    def awake(self) -> None:
        self.history = np.zeros(120)

    def on_gui(self) -> None:
        self.history = np.append(self.history[1:], math.sin(3 * self.time.time))
        gui = self.app.gui
        gui.panel(16, 16, 260, 150, "scene")
        gui.plot(28, 56, 236, 60, self.history, low=-1.0, high=1.0)
        gui.text(f"frame {self.time.frame_count}", 28, 130, size=14)


class Asker(MonoBehaviour):
    """Keeps one inference in flight, if it has a worker."""

    worker: Worker | None = None

    def awake(self) -> None:
        self.inputs: Inputs = {}
        self.pending: Tensor | None = None
        self.answers = 0

    def employ(self, worker: Worker | None, inputs: Inputs) -> None:
        """Ask `worker` from the next frame on, or nobody."""
        self.worker, self.inputs, self.pending, self.answers = worker, inputs, None, 0

    def update(self) -> None:
        if self.worker is None:
            return
        with self.app.profiler.sample(SAMPLE):
            if self.pending is not None and self.pending.is_readback_request_done():
                self.pending.download_to_array()
                self.pending = None
                self.answers += 1
            if self.pending is None:
                self.worker.schedule(self.inputs)
                self.pending = self.worker.peek_output()
                self.pending.readback_request()


def build(app: App, sprites: int) -> Asker:
    """Fill the scene."""
    for i in range(sprites):
        dancer = app.scene.create(f"dancer {i}", scale=0.4)
        dancer.add_component(SpriteRenderer, color="#4aa3df" if i % 2 else "#e8893a", radius=0.1)
        dancer.add_component(Dancer, phase=i * 0.37)
    app.scene.create("board", Board)
    return app.scene.create("asker").add_component(Asker)
