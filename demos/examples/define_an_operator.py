"""An operator of your own, as a formula: it runs on every backend, compiled."""

import numpy as np
from onnx.parser import parse_model

from gameglue import ModelLoader, Worker, operator
from gameglue.kernels import Builder, Value, absolute, arg, lit, maximum, sign

NET = """<ir_version: 9, opset_import: ["": 18, "my.game": 1]>
net (float[n] x) => (float[n] y) {
    y = my.game.Shrink <by = 1.0> (x)
}"""


@operator("Shrink", domain="my.game")
def shrink(k: Builder, x: Value, *, by: float = 0.5) -> Value:
    """sign(x) * max(|x| - by, 0), element by element."""
    zero, t = lit(0.0, x.arithmetic), arg(by, x.arithmetic)
    return k.elementwise(lambda v: sign(v) * maximum(absolute(v) - t, zero), x)


def main() -> list[float]:
    """Shrink four numbers by 1."""
    with Worker(ModelLoader.load(parse_model(NET).SerializeToString())) as worker:
        worker.schedule(np.array([-3, 0.5, 2, 5], np.float32))
        shrunk: list[float] = (worker.peek_output().download_to_array() + 0.0).tolist()
    return shrunk


if __name__ == "__main__":
    print(main())
