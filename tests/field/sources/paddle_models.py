"""PaddlePaddle networks with random weights, through its own export, which is paddle2onnx's.

    python -m tests.field.sources.paddle_models FOLDER

Needs the packages of requirements/paddle.txt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle import nn

from tests.field.feeds import write_feeds
from tests.field.sources.exporting import export_all
from tests.images import smooth

OPSETS = (11, 17)
"""What PaddleOCR's models are published with, and a new one."""

F, vision = nn.functional, paddle.vision.models


class Recurrent(nn.Layer):
    """Two recurrent layers in both directions."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layers = getattr(nn, kind)(8, 12, num_layers=2, direction="bidirect")
        self.head = nn.Linear(24, 3)

    def forward(self, x: Any) -> Any:
        """(batch, length, 8) to (batch, length, 3)."""
        return self.head(self.layers(x)[0])


class Transformer(nn.Layer):
    """Attention over words."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 16)
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32), 2)

    def forward(self, x: Any) -> Any:
        """(batch, length) to (batch, length, 16)."""
        return self.layers(self.words(x))


class Functions(nn.Layer):
    """What has a converter of its own: sampling, sorting, reductions, einsum."""

    def forward(self, x: Any) -> Any:
        """(batch, 4, 16, 16) to a tuple."""
        grid = paddle.tanh(x[:, :2].transpose([0, 2, 3, 1]))
        return (
            F.mish(x) + F.swish(x),
            paddle.roll(x, 2, axis=3),
            paddle.cumsum(x, axis=2),
            F.grid_sample(x, grid),
            *paddle.topk(x, 3, axis=-1),
            F.adaptive_avg_pool2d(x, 4),
            paddle.logsumexp(x, axis=[2, 3]),
            F.unfold(x, 3),
            paddle.einsum("nchw,nchv->nhv", x, x),
            paddle.flip(x, [2]),
        )


def image(shape: tuple[int, ...]) -> np.ndarray:
    """A smooth image."""
    return smooth(shape, sum(shape), -2, 2)


def series(shape: tuple[int, ...]) -> np.ndarray:
    """Standard normal numbers."""
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def words(shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of words."""
    return np.random.default_rng(sum(shape)).integers(0, 50, shape)


@dataclass(frozen=True)
class Network:
    """A network, and its input: shapes to run, the axes that are open, and how to make it."""

    make: Callable[[], Any]
    shapes: Sequence[tuple[int, ...]] = ((2, 3, 64, 64), (1, 3, 64, 64))
    is_open: Sequence[bool] = (True, False, False, False)
    feed: Callable[[tuple[int, ...]], np.ndarray] = image


LENGTHS = ((2, 11, 8), (1, 10, 8))
NETWORKS: Mapping[str, Network] = {
    "resnet18": Network(lambda: vision.resnet18(num_classes=10)),
    "mobilenet_v3": Network(lambda: vision.mobilenet_v3_small(num_classes=10)),
    "shufflenet": Network(lambda: vision.shufflenet_v2_x0_25(num_classes=10)),
    "squeezenet": Network(lambda: vision.squeezenet1_1(num_classes=10)),
    "lstm": Network(lambda: Recurrent("LSTM"), LENGTHS, (True, True, False), series),
    "gru": Network(lambda: Recurrent("GRU"), LENGTHS, (True, True, False), series),
    "transformer": Network(Transformer, ((2, 11), (1, 10)), (True, True), words),
    "functions": Network(Functions, ((2, 4, 16, 16), (1, 4, 16, 16))),
}
NAMES = [f"{name}_opset{opset}" for name in NETWORKS for opset in OPSETS]


def write(name: str, target: Path) -> None:
    """Export a network. Raises what the exporter raises."""
    name, _, opset = name.rpartition("_opset")
    network = NETWORKS[name]
    paddle.seed(0)
    layer = network.make()
    layer.eval()
    shape = [-1 if is_open else n for n, is_open in zip(network.shapes[0], network.is_open, strict=True)]
    feeds = [network.feed(s) for s in network.shapes]
    spec = paddle.static.InputSpec(shape, str(feeds[0].dtype), "x")
    try:
        path = str(target.with_suffix(""))
        paddle.onnx.export(layer, path, input_spec=[spec], opset_version=int(opset))
    except SystemExit as error:
        raise RuntimeError("the exporter ended the process; its log tells why") from error
    write_feeds(target, [{"x": feed} for feed in feeds])


def main(argv: Sequence[str] | None = None) -> None:
    """Export them all."""
    export_all("paddle_models", __doc__, NAMES, write, argv)


if __name__ == "__main__":
    main()
