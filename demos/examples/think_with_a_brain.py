"""A `Brain` owns a network, chooses its backend, asks within the budget and disposes it with its object."""

from gameglue import App, Brain, InferenceRequest, MonoBehaviour


class Guard(MonoBehaviour):
    """Looks at noise."""

    brain: Brain
    seen: int = -1

    def update(self) -> None:
        """Ask about what is seen now; the newest question replaces those that wait."""
        senses = self.app.random.random((1, 1, 28, 28), "float32")
        self.brain.request(senses, callback=self.take, latest_only=True)

    def take(self, request: InferenceRequest) -> None:
        """Keep the answer."""
        self.seen = int(request.result().argmax())


def main() -> bool:
    """Sixty frames; returns whether the guard has seen something."""
    with App("guard", headless=True, deterministic=True) as app:
        owner = app.scene.create("guard")
        brain = Brain.open(owner, "digits/digits.onnx", shapes={"batch": 1})
        guard = owner.add_component(Guard, brain=brain)
        app.run(frames=60)
        return guard.seen >= 0


if __name__ == "__main__":
    print("has an answer:", main())
