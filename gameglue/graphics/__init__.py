"""Drawing on the shared moderngl context: cameras, sprites, text, plots, image effects, the window."""

from gameglue.graphics.camera import Camera2D, LineRenderer, Renderer, SpriteRenderer, TextRenderer
from gameglue.graphics.canvas import Canvas
from gameglue.graphics.colors import Palette
from gameglue.graphics.device import Effect, RenderTarget, Texture
from gameglue.graphics.graphics import Graphics
from gameglue.graphics.gui import Gui

__all__ = [
    "Camera2D",
    "Canvas",
    "Effect",
    "Graphics",
    "Gui",
    "LineRenderer",
    "Palette",
    "RenderTarget",
    "Renderer",
    "SpriteRenderer",
    "TextRenderer",
    "Texture",
]
