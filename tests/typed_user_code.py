"""A game's code as a user writes it: type checkers know what every call returns. Never run."""

from __future__ import annotations

from typing import assert_type

import numpy as np

from gameglue import (
    App,
    BackendType,
    InferenceRequest,
    Loading,
    ModelLoader,
    MonoBehaviour,
    Tensor,
    Texture,
    Vec3,
    Worker,
)


class Reader(MonoBehaviour):
    """Reads a picture with a network."""

    speed: float = 2.0

    def start(self) -> None:
        """Open the worker."""
        self.worker = Worker(ModelLoader.load("net.onnx"), BackendType.CPU, outputs=["features", "scores"])
        assert_type(self.resources.load("hero.png", Texture), Texture)
        assert_type(self.resources.load_async("hero.png", Texture), Loading[Texture])

    async def update(self) -> None:
        """Ask, and wait for the answer."""
        self.transform.translate((self.speed * self.time.delta_time, 0.0))
        self.worker.schedule(np.zeros((1, 3), np.float32))
        assert_type(self.worker.peek_output(), Tensor)
        assert_type(self.worker.peek_output("boxes", list), list[Tensor])
        assert_type(self.worker.copy_output("scores"), Tensor)
        read = await self.worker.peek_output().readback_and_clone_async()
        assert_type(read, Tensor)
        request = self.app.inference.submit(self.worker, np.zeros((1, 3), np.float32))
        assert_type(request, InferenceRequest)
        answer = await request
        print(answer.argmax(), request.result(dict)["scores"].max())
        assert_type((Vec3(1.0, 2.0) - self.transform.position).magnitude, float)


def main() -> int:
    """Play."""
    with App("typed", on_error="raise") as app:
        app.scene.create("reader", Reader)
        app.run()
        return app.exit_code
