"""Tensor layouts: NCHW, as in ONNX, and NHWC."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.operators.movement import transpose

T = TypeVar("T")


@dataclass(frozen=True)
class Layout:
    """The order of the axes batch, channels and spatial ones."""

    channels_last: bool

    def order(self, batch: T, channels: T, spatial: Sequence[T]) -> tuple[T, ...]:
        """Arrange batch, channel and spatial items in the layout's order."""
        return (batch, *spatial, channels) if self.channels_last else (batch, channels, *spatial)

    def split(self, axes: Sequence[T]) -> tuple[T, T, tuple[T, ...]]:
        """Inverse of `order`: split items into batch, channel and spatial ones."""
        if self.channels_last:
            return axes[0], axes[-1], tuple(axes[1:-1])
        return axes[0], axes[1], tuple(axes[2:])

    def spatial(self, k: Builder, x: Value) -> tuple[int, ...]:
        """The spatial sizes of a tensor; an error of the layer if it has none."""
        if x.rank < 3:
            axes = "(N, ..., C)" if self.channels_last else "(N, C, ...)"
            k.error(f"takes a tensor {axes} of rank 3 or more, not {list(x.shape)}")
        return self.split(x.shape)[2]

    def per_channel(self, k: Builder, parameter: Value, rank: int) -> Value:
        """A (C) tensor shaped to broadcast over tensors of a rank."""
        behind = 0 if self.channels_last else max(rank - 2, 0)
        return k.alias(parameter, (parameter.size, *(1,) * behind))


FIRST = Layout(channels_last=False)
LAST = Layout(channels_last=True)

CHANNELS_LAST = "gameglue.channels_last"
"""The domain of NHWC layers, which the pass `channels_last` substitutes for ONNX's. No file holds them."""


def layout_of(k: Builder) -> Layout:
    """The layout of the layer's tensors; weights and attributes are the same in both."""
    return LAST if k.layer.domain == CHANNELS_LAST else FIRST


def channels_first(k: Builder, x: Value) -> Value:
    """(N, *spatial, C) as (N, C, *spatial)."""
    LAST.spatial(k, x)
    return transpose(k, x, perm=(0, x.rank - 1, *range(1, x.rank - 1)))


def to_channels_last(k: Builder, x: Value) -> Value:
    """(N, C, *spatial) as (N, *spatial, C)."""
    return transpose(k, x, perm=(0, *range(2, x.rank), 1))


def in_either_layout(k: Builder, x: Value, channels_last: int, layer: Callable[[Value], Value]) -> Value:
    """A layer that takes (N, C, *spatial), of a tensor of that layout or of (N, *spatial, C)."""
    if channels_last:
        return to_channels_last(k, layer(channels_first(k, x)))
    FIRST.spatial(k, x)
    return layer(x)
