"""Convolutions and pools that onnxruntime's optimiser writes: fused, channels last, dynamic pads."""

from __future__ import annotations

from collections.abc import Sequence

from engine.graph.model import CONTRIB
from engine.kernels.value import Value
from engine.operators.activations import activated
from engine.operators.builder import Builder
from engine.operators.convolution import conv
from engine.operators.layout import LAST, channels_first, to_channels_last
from engine.operators.movement import transpose
from engine.operators.pooling import window_maximum
from engine.operators.registry import operator
from engine.operators.transposed_convolution import conv_transpose
from engine.operators.windows import ConvAttributes, PoolAttributes, slide


@operator("FusedConv", domain=CONTRIB)
def fused_conv(
    k: Builder, x: Value, w: Value, b: Value | None = None, z: Value | None = None, *, activation: str = "",
    activation_params: Sequence[float] = (), sliding: ConvAttributes,
) -> Value:  # fmt: skip
    """Conv, plus the tensor z, and an activation."""
    y = conv(k, x, w, b, sliding=sliding)
    if z is not None:
        y = k.elementwise(lambda e, s: e + s, y, z)
    return activated(k, y, activation, activation_params)


@operator("NhwcConv", domain=CONTRIB)
def nhwc_conv(k: Builder, x: Value, w: Value, b: Value | None = None, *, sliding: ConvAttributes) -> Value:
    """Conv of tensors (N, *spatial, C) with weights (M, *kernel, C/group), as onnxruntime's optimiser writes.

    Weights (M, C/group, *kernel), which its documentation asks for, are taken where the others do not fit.
    """
    last = x.rank > 2 and w.rank == x.rank and w.shape[-1] * sliding.group == x.shape[-1]
    if last and tuple(sliding.kernel_shape or w.shape[1:-1]) == w.shape[1:-1]:
        w = transpose(k, w, perm=(0, w.rank - 1, *range(1, w.rank - 1)))
    return nhwc_fused_conv(k, x, w, b, sliding=sliding)


@operator("NhwcFusedConv", domain=CONTRIB)
def nhwc_fused_conv(
    k: Builder, x: Value, w: Value, b: Value | None = None, z: Value | None = None, *, activation: str = "",
    activation_params: Sequence[float] = (), sliding: ConvAttributes,
) -> Value:  # fmt: skip
    """`FusedConv` of tensors (N, *spatial, C); the weights stay (M, C/group, *kernel)."""
    y = fused_conv(
        k, channels_first(k, x), w, b, None if z is None else channels_first(k, z), activation=activation,
        activation_params=activation_params, sliding=sliding,
    )  # fmt: skip
    return to_channels_last(k, y)


@operator("NhwcMaxPool", domain=CONTRIB)
def nhwc_max_pool(k: Builder, x: Value, *, sliding: PoolAttributes) -> Value:
    """MaxPool of tensors (N, *spatial, C)."""
    return window_maximum(k, x, slide(k, LAST.spatial(k, x), sliding.kernel_shape, sliding), LAST)


@operator("ConvTransposeWithDynamicPads", domain=CONTRIB, host=("pads",))
def conv_transpose_with_dynamic_pads(
    k: Builder, x: Value, w: Value, pads: Value | None = None, b: Value | None = None, *,
    auto_pad: str = "NOTSET", dilations: Sequence[int] = (), group: int = 1,
    kernel_shape: Sequence[int] = (), output_padding: Sequence[int] = (), strides: Sequence[int] = (),
) -> Value:  # fmt: skip
    """ConvTranspose whose pads are an input."""
    sliding = ConvAttributes(
        auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape, strides=strides,
        pads=() if pads is None else k.ints(pads),
    )  # fmt: skip
    return conv_transpose(k, x, w, b, output_padding=output_padding, sliding=sliding)
