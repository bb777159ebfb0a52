"""A game that imports everything at once, as a user writes it: the star import has types, too. Never run."""

# ruff: noqa: F403, F405

from typing import assert_type

from gameglue import *


class Reader(MonoBehaviour):
    """A component."""

    speed: float = 2.0

    def start(self) -> None:
        """Open the worker."""
        self.worker = Worker(ModelLoader.load("net.onnx"), BackendType.CPU)
        assert_type(self.worker.peek_output(), Tensor)
        assert_type(Vec3(1.0, 2.0).magnitude, float)


with App("typed") as app:
    app.scene.create("reader", Reader)
    assert_type(app.scene, Scene)
    app.run()
