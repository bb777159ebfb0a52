"""Read an intermediate result: ask the worker for a layer's output by name."""

import numpy as np

from gameglue import App, ModelLoader, Worker


def main() -> tuple[int, ...]:
    """The shape of the first layer's output, which the model itself does not give."""
    with App("inside", headless=True) as app:
        model = ModelLoader.load(app.resources.find("digits/digits.onnx"))
    (name,) = model.layers[0].outputs
    with Worker(model, outputs=[name]) as worker:  # only what this needs is computed
        worker.schedule(np.zeros((1, 1, 28, 28), np.float32))
        return worker.peek_output(name).download_to_array().shape


if __name__ == "__main__":
    print(main())
