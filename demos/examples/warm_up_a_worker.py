"""Warm up a worker for the sizes that will come, so that no frame pays for a first run."""

import numpy as np

from gameglue import App, ModelLoader, Worker


def main() -> list[tuple[int, ...]]:
    """Prepare batches of 1 and 8; returns the shapes of their outputs."""
    shapes = []
    with App("warm up", headless=True) as app:
        path = app.resources.find("digits/digits.onnx")
    with Worker(ModelLoader.load(path)) as worker:
        worker.warm_up([{"batch": 1}, {"batch": 8}]).wait()  # a game awaits it instead
        for batch in (1, 8):
            worker.schedule(np.zeros((batch, 1, 28, 28), np.float32))
            shapes.append(worker.peek_output().download_to_array().shape)
    return shapes


if __name__ == "__main__":
    print(main())
