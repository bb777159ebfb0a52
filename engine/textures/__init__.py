"""Pictures as tensors and tensors as pictures."""

from __future__ import annotations

from engine.textures.converter import TextureConverter
from engine.textures.transform import ChannelSwizzle, CoordOrigin, TensorLayout, TextureTransform

__all__ = ["ChannelSwizzle", "CoordOrigin", "TensorLayout", "TextureConverter", "TextureTransform"]
