"""Give a worker its inputs: by position, by name, set ahead, as arrays or tensors, in changing shapes."""

import numpy as np
from onnx.parser import parse_model

from gameglue import DynamicTensorShape, ModelLoader, Tensor, TensorShape, Worker

SCALED = """
<ir_version: 9, opset_import: ["": 18]>
scaled (float[rows, 2] x, float scale) => (float[rows, 2] y) {
    y = Mul (x, scale)
}"""


def main() -> list[np.ndarray]:
    """The same model with inputs given in four ways."""
    model = ModelLoader.load(parse_model(SCALED).SerializeToString())
    assert model.inputs[0].shape == DynamicTensorShape(("rows", 2))
    answers = []
    with Worker(model) as worker:

        def read() -> None:
            answers.append(worker.peek_output("y").download_to_array())

        worker.schedule(np.ones((1, 2), np.float32), np.float32(2.0))  # by position
        read()
        worker.schedule(x=np.ones((1, 2), np.float32), scale=np.float32(3.0))  # by name
        read()
        worker.set_input("scale", np.float32(4.0))  # stays for later schedules
        worker.schedule(x=np.ones((3, 2), np.float32))  # another number of rows: nothing compiles
        read()
        with Tensor(np.arange(4, dtype=np.float32)) as tensor:  # one that is written again and again
            pairs = tensor.reshape(2, 2)
            assert pairs.shape == TensorShape((2, 2))
            worker.schedule(x=pairs)
            read()
    return answers


if __name__ == "__main__":
    for answer in main():
        print(answer.tolist())
