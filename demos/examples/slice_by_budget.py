"""Slices of a heavy network by milliseconds: enqueue what fits into the frame, as often as you like."""

import numpy as np

from gameglue import App, ModelLoader, Worker


def main() -> bool:
    """Enqueue 0.01 ms of the network at a time; returns whether the answer equals that of one schedule."""
    image = np.ones((1, 1, 28, 28), np.float32)
    with App("slices", headless=True) as app:
        path = app.resources.find("digits/digits.onnx")
    with Worker(ModelLoader.load(path)) as worker:
        worker.schedule(image)
        whole = worker.peek_output().download_to_array()
        schedule = worker.schedule_iterable(image)
        while not schedule.is_done:
            schedule.advance(0.01, force=True)  # a game draws a frame between two of these
        return bool((schedule.output().download_to_array() == whole).all())


if __name__ == "__main__":
    print("the same, to the bit:", main())
