"""Let the machine choose the backend: a graphics card's shaders, or the processor."""

import numpy as np

from gameglue import App, ModelLoader, default_backend_choice, open_worker


def main() -> str:
    """Open a worker on the chosen backend; returns the backend's name."""
    with App("choose", headless=True) as app:
        choice, reason = default_backend_choice(app.ctx is not None)
        model = ModelLoader.load(app.resources.find("digits/digits.onnx"))
        with open_worker(model, choice) as worker:
            worker.schedule(np.zeros((1, 1, 28, 28), np.float32))
            print("reads", worker.peek_output().download_to_array().argmax())
    print(choice.label, "-", reason)
    return choice.label


if __name__ == "__main__":
    main()
