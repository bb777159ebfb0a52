"""Networks as frameworks export them, whole, on every backend, against onnxruntime.

Each is made on the spot with random weights: a quantised convolutional network in both of onnxruntime's
forms, a transformer encoder, recurrent networks, a detector whose number of boxes depends on the image. Where
PyTorch is installed, its own exporter makes a detector and a model with loops and branches as well.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from engine import ModelLoader
from tests.engine.conftest import MakeWorker
from tests.graphs import node, proto
from tests.peer import open_session

ort = pytest.importorskip("onnxruntime", reason="onnxruntime is the independent answer")

Feeds = Mapping[str, np.ndarray]


def normal(seed: int, *shape: int, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed).normal(size=shape) * scale).astype(np.float32)


def compare(
    data: bytes, feeds: list[Feeds], channel: str, make_worker: MakeWorker, *, quantum: float = 0.0
) -> None:
    """Every output for every feed. `quantum`: a step of a quantised output, which rounding may miss."""
    session = open_session(data)
    worker = make_worker(ModelLoader.load(data), channel)
    for feed in feeds:
        worker.schedule(dict(feed))
        for output, expected in zip(session.get_outputs(), session.run(None, dict(feed)), strict=True):
            actual = worker.peek_output(output.name).download_to_array()
            assert actual.shape == expected.shape
            assert actual.dtype == expected.dtype
            bound = 1e-5 if channel == "cpu" else 1e-4
            limit = max(bound * max(1.0, np.abs(expected).max(initial=0)), 1.01 * quantum)
            assert np.abs(actual - expected).max(initial=0) <= limit
            if quantum:
                assert np.mean(np.abs(actual - expected) > quantum / 2) < 0.02, "most steps must be the same"


def convolutional() -> bytes:
    """Convolutions with a skip connection, pools and a classifier."""
    return proto(
        [
            node("Conv", ["x", "w0", "b0"], ["c0"], pads=[1, 1, 1, 1], strides=[2, 2]),
            node("Relu", ["c0"], ["r0"]),
            node("Conv", ["r0", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1]),
            node("Relu", ["c1"], ["r1"]),
            node("Add", ["r0", "r1"], ["s"]),
            node("MaxPool", ["s"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
            node("GlobalAveragePool", ["p"], ["g"]),
            node("Flatten", ["g"], ["f"]),
            node("Gemm", ["f", "w2", "b2"], ["y"], transB=1),
        ],
        {"x": ("float32", [1, 3, 16, 16])},
        {"y": ("float32", [1, 5])},
        {
            "w0": normal(0, 8, 3, 3, 3, scale=0.3), "b0": normal(1, 8, scale=0.1),
            "w1": normal(2, 8, 8, 3, 3, scale=0.2), "b1": normal(3, 8, scale=0.1),
            "w2": normal(4, 5, 8, scale=0.5), "b2": normal(5, 5, scale=0.1),
        },
    )  # fmt: skip


@pytest.fixture(scope="module", params=["QDQ", "QOperator"])
def quantized(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The convolutional network quantised to 8 bits by onnxruntime's own tool."""
    quantization = pytest.importorskip("onnxruntime.quantization")
    folder: Path = tmp_path_factory.mktemp("quantized")
    (folder / "plain.onnx").write_bytes(convolutional())

    class Images(quantization.CalibrationDataReader):  # type: ignore[name-defined]
        def __init__(self) -> None:
            self.left = iter([{"x": normal(seed, 1, 3, 16, 16)} for seed in range(8)])

        def get_next(self) -> Any:
            return next(self.left, None)

    quantization.quantize_static(
        folder / "plain.onnx", folder / "quantized.onnx", Images(),
        quant_format=getattr(quantization.QuantFormat, request.param),
    )  # fmt: skip
    return (folder / "quantized.onnx").read_bytes()


@pytest.mark.long
def test_a_quantised_network(quantized: bytes, channel: str, make_worker: MakeWorker) -> None:
    scales = [i for i in onnx.load_from_string(quantized).graph.initializer if i.name == "y_scale"]
    quantum = float(onnx.numpy_helper.to_array(scales[0]))
    feeds: list[Feeds] = [{"x": normal(seed, 1, 3, 16, 16)} for seed in (20, 21)]
    compare(quantized, feeds, channel, make_worker, quantum=quantum)


def recurrent(kind: str) -> bytes:
    """Two layers, the second in both directions, and a read-out of the last step."""
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    extra = {"linear_before_reset": 1} if kind == "GRU" else {}
    return proto(
        [
            node(kind, ["x", "w0", "r0", "b0"], ["h0"], hidden_size=6, **extra),
            node("Squeeze", ["h0", "one"], ["q0"]),
            node(
                kind, ["q0", "w1", "r1", "b1"], ["h1", "last"],
                hidden_size=5, direction="bidirectional", **extra,
            ),
            node("Transpose", ["last"], ["t"], perm=[1, 0, 2]),
            node("Reshape", ["t", "flat"], ["v"]),
            node("MatMul", ["v", "w2"], ["y"]),
        ],
        {"x": ("float32", ["time", "batch", 4])},
        {"y": ("float32", None), "h1": ("float32", None)},
        {
            "w0": normal(0, 1, gates * 6, 4, scale=0.4), "r0": normal(1, 1, gates * 6, 6, scale=0.4),
            "b0": normal(2, 1, gates * 12, scale=0.1),
            "w1": normal(3, 2, gates * 5, 6, scale=0.4), "r1": normal(4, 2, gates * 5, 5, scale=0.4),
            "b1": normal(5, 2, gates * 10, scale=0.1), "w2": normal(6, 10, 3),
            "one": np.array([1]), "flat": np.array([0, 10]),
        },
    )  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_a_recurrent_network(kind: str, channel: str, make_worker: MakeWorker) -> None:
    feeds: list[Feeds] = [{"x": normal(t, t, n, 4)} for t, n in [(5, 2), (1, 1), (8, 3)]]
    compare(recurrent(kind), feeds, channel, make_worker)


ENCODER = """<ir_version: 9, opset_import: ["": 17]>
g (float[batch, time, 16] x, float[batch, time] mask) => (float[batch, time, 16] y) {
    heads = Constant<value = int64[4] {0, 0, 4, 4}>()
    flat = Constant<value = int64[3] {0, 0, 16}>()
    q0 = MatMul(x, wq)  k0 = MatMul(x, wk)  v0 = MatMul(x, wv)
    q1 = Reshape(q0, heads)  k1 = Reshape(k0, heads)  v1 = Reshape(v0, heads)
    q = Transpose<perm = [0, 2, 1, 3]>(q1)
    kt = Transpose<perm = [0, 2, 3, 1]>(k1)
    v = Transpose<perm = [0, 2, 1, 3]>(v1)
    half = Constant<value = float {0.5}>()
    qk0 = MatMul(q, kt)
    qk = Mul(qk0, half)
    axes = Constant<value = int64[2] {1, 2}>()
    one = Constant<value = float {1}>()
    hidden0 = Sub(one, mask)
    far = Constant<value = float {-10000}>()
    hidden1 = Mul(hidden0, far)
    hidden = Unsqueeze(hidden1, axes)
    scores = Add(qk, hidden)
    weights = Softmax<axis = -1>(scores)
    mixed = MatMul(weights, v)
    back = Transpose<perm = [0, 2, 1, 3]>(mixed)
    joined = Reshape(back, flat)
    projected = MatMul(joined, wo)
    s1 = Add(x, projected)
    n1 = LayerNormalization<axis = -1>(s1, g1, c1)
    f0 = MatMul(n1, w1)
    f1 = Add(f0, b1)
    two = Constant<value = float {1.4142135}>()
    e0 = Div(f1, two)
    e1 = Erf(e0)
    e2 = Add(e1, one)
    e3 = Mul(f1, e2)
    e4 = Mul(e3, half)
    f2 = MatMul(e4, w2)
    s2 = Add(n1, f2)
    y = LayerNormalization<axis = -1>(s2, g1, c1)
}"""


def encoder() -> bytes:
    """A layer of a transformer encoder, as exporters of opset 17 write it out."""
    made = onnx.parser.parse_model(ENCODER)
    weights = {
        **{name: normal(i, 16, 16, scale=0.25) for i, name in enumerate(("wq", "wk", "wv", "wo"))},
        "w1": normal(5, 16, 32, scale=0.25), "b1": normal(6, 32, scale=0.1),
        "w2": normal(7, 32, 16, scale=0.2),
        "g1": 1 + normal(8, 16, scale=0.1), "c1": normal(9, 16, scale=0.1),
    }  # fmt: skip
    made.graph.initializer.extend(onnx.numpy_helper.from_array(a, n) for n, a in weights.items())
    return bytes(made.SerializeToString())


def test_a_transformer_encoder(channel: str, make_worker: MakeWorker) -> None:
    feeds: list[Feeds] = []
    for batch, time in [(2, 7), (1, 1), (1, 12)]:
        mask = np.ones((batch, time), np.float32)
        mask[:, time // 2 + 1 :] = 0
        feeds.append({"x": normal(time, batch, time, 16), "mask": mask})
    compare(encoder(), feeds, channel, make_worker)


DETECTOR = """<ir_version: 9, opset_import: ["": 17]>
g (float[1, 3, h, w] x) => (float[m, 4] boxes, float[m] scores) {
    c = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(x, w0)
    r = Relu(c)
    p = Conv(r, w1)
    t = Transpose<perm = [0, 2, 3, 1]>(p)
    rows = Constant<value = int64[2] {-1, 5}>()
    all = Reshape(t, rows)
    four = Constant<value = int64 {4}>()
    score = Gather<axis = 1>(all, four)
    zero = Constant<value = float {0}>()
    keep = Greater(score, zero)
    found = NonZero(keep)
    turned = Transpose<perm = [1, 0]>(found)
    axis = Constant<value = int64[1] {1}>()
    at = Squeeze(turned, axis)
    kept = Gather<axis = 0>(all, at)
    scores = Gather<axis = 0>(score, at)
    from = Constant<value = int64[1] {0}>()
    to = Constant<value = int64[1] {4}>()
    boxes = Slice(kept, from, to, axis)
}"""


def test_a_detector_whose_boxes_depend_on_the_image(channel: str, make_worker: MakeWorker) -> None:
    made = onnx.parser.parse_model(DETECTOR)
    weights = {"w0": normal(0, 8, 3, 3, 3, scale=0.3), "w1": normal(1, 5, 8, 1, 1)}
    made.graph.initializer.extend(onnx.numpy_helper.from_array(a, n) for n, a in weights.items())
    feeds: list[Feeds] = [{"x": normal(h, 1, 3, h, w)} for h, w in [(16, 16), (8, 12), (16, 16)]]
    feeds.append({"x": np.zeros((1, 3, 8, 8), np.float32)})
    compare(made.SerializeToString(), feeds, channel, make_worker)


def by_pytorch(name: str) -> bytes:
    """A model with loops, conditions or sizes that depend on data, by PyTorch's own exporter."""
    torch = pytest.importorskip("torch", reason="PyTorch is too large to be among the test's requirements")

    class Detector(torch.nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Conv2d(3, 8, 3, 2, 1)
            self.second = torch.nn.Conv2d(8, 5, 1)

        def forward(self, x: Any) -> Any:
            rows = self.second(torch.relu(self.first(x))).permute(0, 2, 3, 1).reshape(-1, 5)
            keep = torch.nonzero(rows[:, 4] > 0.0).squeeze(1)
            return rows[keep], keep

    class Control(torch.nn.Module):  # type: ignore[name-defined]
        def forward(self, x, n: int):
            y = x
            i = 0
            while bool(y.abs().sum() < 100.0) and i < n:
                y = y * 1.5 + x
                i += 1
            z = y.relu() if bool(y.mean() > 0) else torch.tanh(y)
            return z, y

    torch.manual_seed(0)
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name == "detector":
            torch.onnx.export(
                Detector().eval(), (torch.randn(1, 3, 32, 32),), file, dynamo=False, opset_version=17,
                input_names=["x"], dynamic_axes={"x": {2: "h", 3: "w"}},
            )  # fmt: skip
        else:
            torch.onnx.export(
                torch.jit.script(Control()), (torch.randn(4), torch.tensor(5)), file, dynamo=False,
                opset_version=17, input_names=["x", "n"],
            )  # fmt: skip
    return file.getvalue()


@pytest.mark.parametrize("name", ["detector", "control"])
def test_what_pytorch_exports(name: str, channel: str, make_worker: MakeWorker) -> None:
    data = by_pytorch(name)
    feeds: list[Feeds]
    if name == "detector":
        feeds = [{"x": normal(h, 1, 3, h, 32)} for h in (32, 16)]
    else:
        feeds = [{"x": normal(n, 4), "n": np.array(n)} for n in (0, 3, 50)]
    compare(data, feeds, channel, make_worker)
