"""Convolutional networks of the kinds that games run, with seeded random weights."""

from __future__ import annotations

from functools import cache

import numpy as np

from tests.maker import Maker


@cache
def cnn_policy() -> bytes:
    """A policy that sees the screen: Mnih et al. (2015), 18 actions. obs (batch, 3, 84, 84)."""
    make = Maker(11)
    x = make.add("Relu", make.conv("obs", (3, 32), 8, stride=4))
    x = make.add("Relu", make.conv(x, (32, 64), 4, stride=2))
    x = make.add("Relu", make.conv(x, (64, 64), 3))
    x = make.add("Flatten", x)
    x = make.add("Relu", make.gemm(x, 64 * 7 * 7, 512))
    make.rename(make.gemm(x, 512, 18, gain=1.0), "actions")
    return make.file(
        {"obs": ("float32", ["batch", 3, 84, 84])}, {"actions": ("float32", ["batch", 18])}, opset=17
    )


# Expansion, channels, repeats and first stride of each stage: table 2 of Sandler et al. (2018).
_STAGES = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
)  # fmt: skip


@cache
def mobilenet_v2() -> bytes:
    """Inverted residuals with relu6, norms folded into convolutions, up to logits. x (1, 3, 224, 224)."""
    make = Maker(12)
    zero, six = make.constant(0.0), make.constant(6.0)

    def relu6(x: str) -> str:
        return make.add("Clip", x, zero, six)

    x, entering = relu6(make.conv("x", (3, 32), 3, stride=2, pad=1)), 32
    for expansion, leaving, repeats, first in _STAGES:
        for i in range(repeats):
            wide, before, stride = entering * expansion, x, first if i == 0 else 1
            if expansion > 1:
                x = relu6(make.conv(x, (entering, wide), 1))
            x = relu6(make.conv(x, (wide, wide), 3, stride=stride, pad=1, group=wide))
            x = make.conv(x, (wide, leaving), 1, gain=0.7)
            if stride == 1 and entering == leaving:
                x = make.add("Add", before, x)
            entering = leaving
    x = relu6(make.conv(x, (entering, 1280), 1))
    x = make.add("Flatten", make.add("GlobalAveragePool", x))
    make.rename(make.gemm(x, 1280, 1000, gain=1.0), "logits")
    return make.file({"x": ("float32", [1, 3, 224, 224])}, {"logits": ("float32", [1, 1000])}, opset=17)


@cache
def style_transfer() -> bytes:
    """Johnson et al. (2016): instance norm everywhere, reflection padding, upsampling to the nearest.

    picture (1, 3, 256, 256), 0 to 255, and the same out.
    """
    make = Maker(13)
    twice = make.constant([1, 1, 2, 2])

    def conv(x: str, channels: tuple[int, int], kernel: int, stride: int = 1) -> str:
        edge = kernel // 2
        padded = make.add("Pad", x, make.integers(0, 0, edge, edge, 0, 0, edge, edge), mode="reflect")
        return make.conv(padded, channels, kernel, stride=stride)

    def norm(x: str, channels: int) -> str:
        shift = make.normal(channels, scale=0.1)
        return make.add("InstanceNormalization", x, make.uniform(channels), shift, epsilon=1e-5)

    def layer(x: str, channels: tuple[int, int], kernel: int, stride: int = 1) -> str:
        return make.add("Relu", norm(conv(x, channels, kernel, stride), channels[1]))

    def upsample(x: str) -> str:
        return make.add(
            "Resize",
            x,
            "",
            twice,
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        )

    x = layer("picture", (3, 32), 9)
    x = layer(x, (32, 64), 3, 2)
    x = layer(x, (64, 128), 3, 2)
    for _ in range(5):
        inner = conv(layer(x, (128, 128), 3), (128, 128), 3)
        x = make.add("Add", norm(inner, 128), x)
    x = layer(upsample(x), (128, 64), 3)
    x = layer(upsample(x), (64, 32), 3)
    x = make.add("Mul", conv(x, (32, 3), 9), make.constant(60.0))
    make.rename(make.add("Add", x, make.constant(128.0)), "styled")
    return make.file(
        {"picture": ("float32", [1, 3, 256, 256])}, {"styled": ("float32", [1, 3, 256, 256])}, opset=17
    )


@cache
def video_network() -> bytes:
    """Residual blocks over frames, rows and columns, as in Tran et al. (2018). x (1, 3, 8, 56, 56)."""
    make = Maker(14)

    def conv(x: str, entering: int, leaving: int, stride: int = 1) -> str:
        scale = float(np.sqrt(2 / (27 * entering)))
        w = make.normal(leaving, entering, 3, 3, 3, scale=scale)
        return make.add("Conv", x, w, make.normal(leaving, scale=0.1), strides=[stride] * 3, pads=[1] * 6)

    x = make.add("Relu", conv("x", 3, 32))
    x = make.add("MaxPool", x, kernel_shape=[1, 2, 2], strides=[1, 2, 2])
    for entering, leaving in ((32, 32), (32, 64)):
        stride = leaving // entering
        inner = make.add("Relu", conv(x, entering, leaving, stride))
        inner = conv(inner, leaving, leaving)
        if stride > 1:
            w = make.normal(leaving, entering, 1, 1, 1, scale=entering**-0.5)
            x = make.add("Conv", x, w, strides=[stride] * 3)
        x = make.add("Relu", make.add("Add", x, inner))
    x = make.add("Flatten", make.add("GlobalAveragePool", x))
    make.rename(make.gemm(x, 64, 27, gain=1.0), "actions")
    return make.file({"x": ("float32", [1, 3, 8, 56, 56])}, {"actions": ("float32", [1, 27])}, opset=17)
