"""NHWC layers with their own definitions; others share the module of ONNX's layer."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from engine.kernels.expr import arg, unary
from engine.kernels.value import Value
from engine.operators.activations import activated
from engine.operators.builder import Builder
from engine.operators.convolution import add_bias, convolve
from engine.operators.layout import CHANNELS_LAST, FIRST, LAST
from engine.operators.movement import transpose
from engine.operators.normalization import mean_and_variance
from engine.operators.registry import operator
from engine.operators.windows import ConvAttributes


@operator("Conv", domain=CHANNELS_LAST)
@operator("FusedConv", domain=CHANNELS_LAST)
def conv(
    k: Builder, x: Value, w: Value, b: Value | None = None, z: Value | None = None, *, activation: str = "",
    activation_params: Sequence[float] = (), x_first: int = 0, sliding: ConvAttributes,
) -> Value:  # fmt: skip
    """x (N, *spatial, C), or (N, C, *spatial) with `x_first`; w (M, C/group, *kernel) -> (N, *out, M).

    Where `taps_first` says so, w is (M, depth, C/group, height, width). z (N, *out, M) is added, and the
    activation follows.
    """
    source = FIRST if x_first else LAST
    y = add_bias(k, convolve(k, x, w, sliding, source=source, target=LAST), b, LAST)
    if z is not None:
        y = k.elementwise(lambda e, s: e + s, y, z)
    return activated(k, y, activation, activation_params)


@operator("InstanceNormalization", domain=CHANNELS_LAST)
def instance_normalization(k: Builder, x: Value, scale: Value, b: Value, *, epsilon: float = 1e-5) -> Value:
    """Over the plane of each sample's channel (Ulyanov et al., 2016), as (x - mean) * factor + b."""
    rows = k.alias(x, (x.shape[0], prod(x.shape[1:-1]), x.shape[-1]))
    mean, spread = mean_and_variance(k, rows)
    factor = k.elementwise(lambda v, s: s / unary("sqrt", v + arg(epsilon, v.dtype)), spread, scale)
    y = k.compute(rows.shape, x.dtype, lambda n, r, c: (rows[n, r, c] - mean[n, c]) * factor[n, c] + b[c])
    return k.alias(y, x.shape)


@operator("DepthToSpace", domain=CHANNELS_LAST)
def depth_to_space(k: Builder, x: Value, *, blocksize: int, mode: str = "DCR") -> Value:
    """(N, H, W, C * b * b) -> (N, H * b, W * b, C); the block index leads the channel (DCR) or trails it."""
    if x.rank != 4 or blocksize < 1 or x.shape[3] % blocksize**2:
        k.error(f"cannot move blocks of {blocksize}x{blocksize} out of the channels of {list(x.shape)}")
    batch, h, w, depth = x.shape
    channels = depth // blocksize**2
    blocks = (blocksize, blocksize)
    if mode == "DCR":
        moved = transpose(k, k.alias(x, (batch, h, w, *blocks, channels)), perm=(0, 1, 3, 2, 4, 5))
    else:
        moved = transpose(k, k.alias(x, (batch, h, w, channels, *blocks)), perm=(0, 1, 4, 2, 5, 3))
    return k.alias(moved, (batch, h * blocksize, w * blocksize, channels))
