"""A worker whose plan stops for data goes on under the host, though nobody polls or registers it."""

from __future__ import annotations

import numpy as np

from engine.graph.model import Model
from gameglue import App, BackendType, MonoBehaviour, Worker
from tests.graphs import model, node


def counting_network() -> Model:
    """Yields as many ones as the largest input says: a size that depends on data."""
    return model(
        [
            node("ReduceMax", ["x"], ["top"], keepdims=1),
            node("Cast", ["top"], ["size"], to=7),
            node("Expand", ["one", "size"], ["y"]),
        ],
        {"x": ("float32", [4])},
        {"y": ("float32", None)},
        {"one": np.ones(1, np.float32)},
    )


class Asker(MonoBehaviour):
    def start(self) -> None:
        self.worker = Worker(counting_network(), BackendType.CPU)
        self.worker.schedule(np.array([0, 3, 1, 2], np.float32))

    def on_destroy(self) -> None:
        self.worker.dispose()


def test_the_host_takes_continuations_up() -> None:
    with App("continue", size=(32, 32), headless=True, on_error="raise") as app:
        asker = app.scene.create("asker", Asker).get_component(Asker)
        assert asker is not None
        for _ in range(1000):
            app.step()
            if asker.worker._latest is not None and asker.worker._latest.finished:
                break
        assert asker.worker.peek_output().shape == (3,)
