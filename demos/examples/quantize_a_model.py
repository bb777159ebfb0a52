"""Keep a model's weights in bytes: the file is nearly a quarter as large, and the answers nearly the same.

The weights are unpacked when the model is loaded, so it runs as fast as before. Tools such as onnxruntime's
`quantize_dynamic` and `quantize_static` make such files too, and ones that compute in bytes.
"""

import numpy as np
import onnx
from onnx import helper, numpy_helper

from gameglue import App, ModelLoader, Worker

SMALL = 64  # weights fewer than these stay as they are


def quantize_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its float32 weights as int8, each with a scale for the whole."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph, nodes = made.graph, []
    for weights in list(graph.initializer):
        if weights.data_type != onnx.TensorProto.FLOAT or np.prod(weights.dims) < SMALL:
            continue
        values = numpy_helper.to_array(weights)
        scale = np.float32(np.abs(values).max() / 127 or 1)
        codes = np.rint(values / scale).astype(np.int8)
        graph.initializer.remove(weights)
        for name, array in ((f"{weights.name}.codes", codes), (f"{weights.name}.scale", np.array(scale))):
            graph.initializer.append(numpy_helper.from_array(array, name))
        parts = [f"{weights.name}.codes", f"{weights.name}.scale"]
        nodes.append(helper.make_node("DequantizeLinear", parts, [weights.name]))
    nodes += graph.node
    del graph.node[:]
    graph.node.extend(nodes)
    return made


def main() -> tuple[int, int, np.ndarray, np.ndarray]:
    """Bytes of the file before and after, and the answers to one picture."""
    image = np.random.default_rng(3).random((1, 1, 28, 28), np.float32)
    with App("quantize", headless=True) as app:
        before = onnx.load(app.resources.find("digits/digits.onnx"))
    answers, sizes = [], []
    for model in (before, quantize_weights(before)):
        data = model.SerializeToString()
        sizes.append(len(data))
        with Worker(ModelLoader.load(data)) as worker:
            worker.schedule(image)
            answers.append(worker.peek_output().download_to_array())
    return sizes[0], sizes[1], answers[0], answers[1]


if __name__ == "__main__":
    before, after, exact, rounded = main()
    print(f"{before} bytes, then {after}; largest difference {np.abs(exact - rounded).max():.4f}")
