"""Built-in resource loaders: textures, images, models, meshes and sounds."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from engine import Model, ModelAsset, ModelLoader
from engine.runtime.loading.handle import Steps
from gameglue.audio import AudioClip
from gameglue.graphics.device import Texture
from gameglue.graphics.graphics import Graphics
from gameglue.graphics.mesh import Mesh
from gameglue.host.resources import Resources

_PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tga", ".tif", ".tiff", ".webp")
_SOUNDS = (".wav", ".ogg", ".mp3", ".flac", ".opus")

_STRIP = 1 << 18
"""Bytes of an image that are uploaded at once: a small part of a millisecond."""


def register_loaders(resources: Resources, graphics: Graphics) -> None:
    """Register the built-in loaders."""

    def upload(pixels: np.ndarray) -> Steps[Texture]:
        height, width = pixels.shape[:2]
        texture = graphics.texture(size=(width, height))
        rows = max(1, _STRIP // (4 * width))
        for top in range(0, height, rows):
            yield None
            texture.write_rows(top, pixels[top : top + rows])
        return texture

    resources.register_loader(
        Texture,
        lambda path: graphics.texture(resources.read_image(path)),
        suffixes=_PICTURES,
        read=resources.read_image,
        finish=upload,
    )
    resources.register_loader(np.ndarray, resources.read_image, read=resources.read_image)
    resources.register_loader(Model, ModelLoader.load, suffixes=(".onnx",), read=ModelLoader.load)
    resources.register_loader(ModelAsset, ModelAsset, read=_read_asset)
    resources.register_loader(Mesh, Mesh.load, suffixes=(".obj",), read=Mesh.load, by_name=Mesh.named)
    resources.register_loader(AudioClip, AudioClip.load, suffixes=_SOUNDS, read=AudioClip.load)


def _read_asset(path: Path) -> ModelAsset:
    """An asset whose model has been read."""
    asset = ModelAsset(path)
    asset.load()
    return asset
