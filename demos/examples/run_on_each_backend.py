"""Run one model on each backend that this machine has, and see that they agree."""

import numpy as np

from gameglue import BACKEND_CHOICES, App, EngineError, ModelLoader, open_worker


def main() -> dict[str, np.ndarray]:
    """The answers by backend; what is not there is told with its reason."""
    answers: dict[str, np.ndarray] = {}
    image = np.random.default_rng(1).random((1, 1, 28, 28), np.float32)
    with App("each backend", headless=True) as app:  # has the OpenGL context that two of them use
        model = ModelLoader.load(app.resources.find("digits/digits.onnx"))
        for choice in BACKEND_CHOICES:
            try:
                with open_worker(model, choice) as worker:
                    worker.schedule(image)
                    answers[choice.label] = worker.peek_output().download_to_array()
            except EngineError as error:
                print(f"no {choice.label} here: {error}")
    for label, answer in answers.items():
        print(f"{label:22} {answer.argmax()} {answer.max():.6f}")
    return answers


if __name__ == "__main__":
    main()
