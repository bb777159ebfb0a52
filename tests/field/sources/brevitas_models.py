"""Networks with quantisers of few bits, as Brevitas exports them: QuantizeLinear, Clip, DequantizeLinear.

    python -m tests.field.sources.brevitas_models FOLDER

Needs the packages of requirements/brevitas.txt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import brevitas.nn as qnn
import numpy as np
import torch
from brevitas.export import export_onnx_qcdq
from brevitas.quant import Int8WeightPerChannelFloat, Int8WeightPerTensorFloat, Int32Bias
from torch import nn

from tests.field.feeds import write_feeds
from tests.field.sources.exporting import export_all
from tests.images import smooth

OPSETS = (13, 21)


def convolutions(bits: int, weights: Any = Int8WeightPerChannelFloat, biases: Any = Int32Bias) -> nn.Module:
    """Convolutions, one of them depthwise, and a product."""
    options = {"weight_quant": weights, "weight_bit_width": bits, "return_quant_tensor": True}
    return nn.Sequential(
        qnn.QuantIdentity(bit_width=bits, return_quant_tensor=True),
        qnn.QuantConv2d(3, 8, 3, padding=1, bias=True, bias_quant=biases, **options),
        nn.BatchNorm2d(8),
        qnn.QuantReLU(bit_width=bits, return_quant_tensor=True),
        qnn.QuantConv2d(8, 8, 3, groups=8, stride=2, bias=False, **options),
        qnn.QuantReLU(bit_width=bits, return_quant_tensor=True),
        nn.AvgPool2d(3),
        nn.Flatten(),
        qnn.QuantIdentity(bit_width=bits, return_quant_tensor=True),
        qnn.QuantLinear(200, 5, bias=True, bias_quant=biases, **{**options, "return_quant_tensor": False}),
    )


def perceptron(bits: int) -> nn.Module:
    """Two products with bounded activations."""
    return nn.Sequential(
        qnn.QuantIdentity(return_quant_tensor=True),
        qnn.QuantLinear(16, 32, bias=True, weight_bit_width=bits),
        qnn.QuantTanh(bit_width=bits, return_quant_tensor=True),
        qnn.QuantLinear(32, 4, bias=True, weight_bit_width=bits),
        qnn.QuantSigmoid(bit_width=8),
    )


def upscaler() -> nn.Module:
    """A transposed convolution and a resize."""
    return nn.Sequential(
        qnn.QuantIdentity(return_quant_tensor=True),
        qnn.QuantConvTranspose2d(3, 4, 2, stride=2, bias=True),
        qnn.QuantIdentity(return_quant_tensor=False),
        nn.Upsample(scale_factor=2),
    )


class Attention(nn.Module):
    """Attention of a series to itself."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = qnn.QuantMultiheadAttention(8, 2, batch_first=True, packed_in_proj=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The attended series."""
        return self.layer(x, x, x, need_weights=False)[0]


NETWORKS: Mapping[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "convolutions8": (partial(convolutions, 8), (3, 32, 32)),
    "convolutions4": (partial(convolutions, 4), (3, 32, 32)),
    "convolutions2": (partial(convolutions, 2, Int8WeightPerTensorFloat), (3, 32, 32)),
    "convolutions_float_bias": (partial(convolutions, 8, biases=None), (3, 32, 32)),
    "perceptron8": (partial(perceptron, 8), (16,)),
    "perceptron5": (partial(perceptron, 5), (16,)),
    "upscaler": (upscaler, (3, 16, 16)),
    "attention": (Attention, (10, 8)),
}
NAMES = [f"{name}_opset{opset}" for name in NETWORKS for opset in OPSETS]


def sample(shape: tuple[int, ...], batch: int) -> np.ndarray:
    """A batch of images, or of vectors."""
    if len(shape) == 3:
        return smooth((batch, *shape), batch, -2, 2)
    return np.random.default_rng(batch).normal(size=(batch, *shape)).astype(np.float32)


def write(name: str, target: Path) -> None:
    """Export a network whose ranges a few batches have set. Raises what the exporter raises."""
    name, _, opset = name.rpartition("_opset")
    make, shape = NETWORKS[name]
    torch.manual_seed(0)
    network = make().train()
    with torch.no_grad():
        for batch in range(4, 7):
            network(torch.from_numpy(sample(shape, batch)))
        export_onnx_qcdq(
            network.eval(),
            args=torch.from_numpy(sample(shape, 2)),
            export_path=str(target),
            opset_version=int(opset),
            input_names=["x"],
            dynamic_axes={"x": {0: "batch"}},
            dynamo=False,
        )
    write_feeds(target, [{"x": sample(shape, batch)} for batch in (2, 1)])


def main(argv: Sequence[str] | None = None) -> None:
    """Export them all."""
    export_all("brevitas_models", __doc__, NAMES, write, argv)


if __name__ == "__main__":
    main()
