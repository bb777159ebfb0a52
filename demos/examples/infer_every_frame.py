"""One inference each frame: requests run within the frame's budget, and answers arrive in later frames."""

from gameglue import App, InferenceRequest, Model, MonoBehaviour, Worker


class Eyes(MonoBehaviour):
    """Looks at a picture in every frame."""

    model: Model
    answers: int = 0

    def start(self) -> None:
        """One worker for all frames."""
        self.worker = Worker(self.model)

    def update(self) -> None:
        """Submit copies the array and returns at once."""
        image = self.app.random.random((1, 1, 28, 28), "float32")
        self.app.inference.submit(self.worker, image, callback=self.see)

    def see(self, request: InferenceRequest) -> None:
        """Called at the start of a later frame."""
        self.answers += request.result().shape == (1, 10)

    def on_destroy(self) -> None:
        """Free the worker's memory."""
        self.worker.dispose()


def main() -> Eyes:
    """Sixty frames; a deterministic app delivers each answer two frames after its request."""
    with App("eyes", headless=True, frame_budget_ms=2.0, deterministic=True, latency_frames=2) as app:
        eyes = app.scene.create("eyes").add_component(Eyes, model="digits/digits.onnx")
        app.run(frames=60)
    return eyes


if __name__ == "__main__":
    print(main().answers, "answers in 60 frames")
