"""Change a model before it is loaded: behind the digit network's output comes the digit itself."""

import numpy as np
import onnx
from onnx.compose import merge_models
from onnx.parser import parse_model

from gameglue import App, ModelLoader, Worker

LIKELIEST = """
<ir_version: {version}, opset_import: ["": {opset}]>
likeliest (float[n, 10] scores) => (int64[n] digit, float[n] sureness)
<int64[1] last = {{1}}> {{
    digit = ArgMax <axis = 1, keepdims = 0> (scores)
    sureness = ReduceMax <keepdims = 0> (scores, last)
}}"""


def with_likeliest(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, whose one output is (n, 10), with two others in its place."""
    opset = next(item.version for item in model.opset_import if item.domain in ("", "ai.onnx"))
    head = parse_model(LIKELIEST.format(version=model.ir_version, opset=opset))
    return merge_models(model, head, io_map=[(model.graph.output[0].name, "scores")])


def main() -> tuple[int, float]:
    """The digit that a grey square is taken for, and how sure the network is."""
    with App("edit", headless=True) as app:
        edited = with_likeliest(onnx.load(app.resources.find("digits/digits.onnx")))
    with Worker(ModelLoader.load(edited.SerializeToString())) as worker:
        worker.schedule(np.full((1, 1, 28, 28), 0.5, np.float32))
        digit = worker.peek_output("digit").download_to_array()
        sureness = worker.peek_output("sureness").download_to_array()
    return int(digit[0]), float(sureness[0])


if __name__ == "__main__":
    digit, sureness = main()
    print(f"{digit} ({sureness:.1%})")
