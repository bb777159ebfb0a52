"""An operator of your own as a NumPy function: it runs on the CPU, whatever the backend of the others."""

import numpy as np
from onnx.parser import parse_model

from gameglue import ModelLoader, Worker, numpy_operator

NET = """<ir_version: 9, opset_import: ["": 18, "my.game": 1]>
net (float[n, 4] x) => (float[n, 1] y) {
    y = my.game.Median (x)
}"""


@numpy_operator("Median", domain="my.game")
def median(x: np.ndarray, *, axis: int = -1) -> np.ndarray:
    """Positional parameters are inputs, keyword-only ones attributes."""
    return np.median(x, axis, keepdims=True).astype(x.dtype)


def main() -> list[list[float]]:
    """The median of four numbers."""
    with Worker(ModelLoader.load(parse_model(NET).SerializeToString())) as worker:
        worker.schedule(np.array([[-3, 0.5, 2, 5]], np.float32))
        medians: list[list[float]] = worker.peek_output().download_to_array().tolist()
    return medians


if __name__ == "__main__":
    print(main())
