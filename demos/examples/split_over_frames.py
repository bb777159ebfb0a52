"""Split one inference over several frames, so that none of them is late for it."""

from collections.abc import Iterator

import numpy as np

from gameglue import App, ModelLoader, MonoBehaviour, Worker

SLICE_MS = 0.005  # of the device's time in a frame; small here, so that the small network needs several


class SplitOverFrames(MonoBehaviour):
    """Enqueues a slice in each frame until all is enqueued."""

    worker: Worker

    def awake(self) -> None:
        """Nothing is read yet."""
        self.answer: np.ndarray | None = None
        self.frames = 0

    def start(self) -> Iterator[None]:
        """A coroutine: each `yield` ends its part of a frame."""
        schedule = self.worker.schedule_iterable(np.ones((1, 1, 28, 28), np.float32))
        for _ in schedule:
            self.frames += 1
            yield
        scores = schedule.output()
        scores.readback_request()
        while not scores.is_readback_request_done():
            yield
        self.answer = scores.download_to_array()
        print(f"reads {self.answer.argmax()}, enqueued in {self.frames} frames")
        self.app.quit()


def main() -> SplitOverFrames:
    """Run until the answer is there."""
    with App("slices", headless=True) as app:
        model = ModelLoader.load(app.resources.find("digits/digits.onnx"))
        with Worker(model, slice_ms=SLICE_MS) as worker:
            split = app.scene.create("reader").add_component(SplitOverFrames, worker=worker)
            app.run(frames=2000)
    return split


if __name__ == "__main__":
    main()
