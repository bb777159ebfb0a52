"""Conversion between textures or images and tensors."""

from __future__ import annotations

from engine.api.textures.converter import TextureConverter
from engine.api.textures.transform import ChannelSwizzle, CoordOrigin, TensorLayout, TextureTransform

__all__ = ["ChannelSwizzle", "CoordOrigin", "TensorLayout", "TextureConverter", "TextureTransform"]
