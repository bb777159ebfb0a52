"""Outputs and who frees them: a peeked one is the worker's until its next schedule, a copied one is yours."""

import numpy as np
from onnx.parser import parse_model

from gameglue import ModelLoader, StaleTensorError, Worker

DOUBLE = """
<ir_version: 9, opset_import: ["": 18]>
double (float[n] x) => (float[n] y) {
    y = Add (x, x)
}"""


def main() -> tuple[list[float], list[float], bool]:
    """A copy of the first output, the second through two workers, and whether a stale one is refused."""
    model = ModelLoader.load(parse_model(DOUBLE).SerializeToString())
    with Worker(model) as first, Worker(model) as second:
        first.schedule(np.array([1, 2, 3], np.float32))
        peeked = first.peek_output()
        kept = first.copy_output()

        second.schedule(peeked)  # stays where it was computed: nothing is read back between the two
        chained = second.peek_output().download_to_array().tolist()

        first.schedule(np.array([7], np.float32))
        try:
            peeked.download_to_array()
            is_refused = False
        except StaleTensorError:
            is_refused = True
        with kept:  # disposed at the end, as the workers are
            return kept.download_to_array().tolist(), chained, is_refused


if __name__ == "__main__":
    print(main())
