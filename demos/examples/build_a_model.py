"""Make a model without training: written as text, in ONNX's own notation, and run at once.

Unity's functional API computes a graph from calls; here a graph is ONNX, whoever wrote it: `onnx.parser` from
text, `onnx.helper` node by node, PyTorch or any other exporter.
"""

import numpy as np
from onnx import ModelProto
from onnx.parser import parse_model

from gameglue import ModelLoader, Worker

# The length of each row: the square root of the sum of its squares.
LENGTHS = """
<ir_version: 9, opset_import: ["": 18]>
lengths (float[rows, 3] x) => (float[rows] length)
<int64[1] last = {1}> {
    squares = Mul (x, x)
    sum = ReduceSum <keepdims = 0> (squares, last)
    length = Sqrt (sum)
}"""


def build() -> ModelProto:
    """The model. `onnx.save(model, "lengths.onnx")` keeps it as a file."""
    return parse_model(LENGTHS)


def main() -> np.ndarray:
    """The lengths of (3, 4, 0) and (1, 2, 2)."""
    with Worker(ModelLoader.load(build().SerializeToString())) as worker:
        worker.schedule(np.array([[3, 4, 0], [1, 2, 2]], np.float32))
        return worker.peek_output().download_to_array()


if __name__ == "__main__":
    print(main())
