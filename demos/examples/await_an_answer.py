"""Await an answer in an `async` hook: frames go on until it is there."""

import numpy as np

from gameglue import App, Model, MonoBehaviour, Worker


class Once(MonoBehaviour):
    """Asks one question."""

    model: Model

    async def start(self) -> None:
        """The worker is disposed at the end, also when the game ends first."""
        with Worker(self.model) as worker:
            image = np.zeros((1, 1, 28, 28), np.float32)
            scores = await self.app.inference.submit(worker, image)
            print("reads", scores.argmax())
        self.app.quit()


def main() -> None:
    """Run until the answer is there."""
    with App("once", headless=True) as app:
        app.scene.create("once").add_component(Once, model="digits/digits.onnx")
        app.run(frames=600)


if __name__ == "__main__":
    main()
