"""Read an output three ways: wait for it, ask now and then whether it has come, or await it."""

import numpy as np

from gameglue import App, ModelLoader, MonoBehaviour, Tensor, Worker


class ThreeWays(MonoBehaviour):
    """Each way reads the same answer; `frames` tells in how many frames."""

    worker: Worker

    def awake(self) -> None:
        """Nothing is read yet."""
        self.answers: dict[str, np.ndarray] = {}
        self.frames: dict[str, int] = {}

    async def start(self) -> None:
        """One way after the other."""
        scores, began = self.ask()
        self.note("waiting", scores.readback_and_clone(), began)  # blocks until it is there

        scores, began = self.ask()
        scores.readback_request()  # begins to copy, and returns
        while not scores.is_readback_request_done():
            await self.app.next_frame()
        self.note("polling", scores, began)  # reading it is immediate now

        scores, began = self.ask()
        self.note("awaiting", await scores.readback_and_clone_async(), began)
        self.app.quit()

    def ask(self) -> tuple[Tensor, int]:
        """The output, a tensor whose values may still be on their way, and the frame of the question."""
        self.worker.schedule(np.ones((1, 1, 28, 28), np.float32))
        return self.worker.peek_output(), self.time.frame_count

    def note(self, way: str, scores: Tensor, since: int) -> None:
        """Remember and print."""
        answer = scores.download_to_array()
        self.answers[way], self.frames[way] = answer, self.time.frame_count - since
        print(f"{way:9} {answer.argmax()} after {self.frames[way]} frame(s)")


def main() -> ThreeWays:
    """Run until all three have read."""
    with App("three ways", headless=True) as app:
        model = ModelLoader.load(app.resources.find("digits/digits.onnx"))
        with Worker(model) as worker:
            ways = app.scene.create("reader").add_component(ThreeWays, worker=worker)
            app.run(frames=600)
    return ways


if __name__ == "__main__":
    main()
