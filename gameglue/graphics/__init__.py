"""Drawing on the shared moderngl context: cameras, sprites, text, meshes, image effects, the window."""

from gameglue.graphics.camera import (
    Camera,
    Camera2D,
    LineRenderer,
    Renderer,
    SpriteRenderer,
    TextRenderer,
)
from gameglue.graphics.camera3d import Camera3D, MeshRenderer
from gameglue.graphics.canvas import Canvas
from gameglue.graphics.colors import Palette
from gameglue.graphics.device import Effect, RenderTarget, Texture
from gameglue.graphics.graphics import Graphics
from gameglue.graphics.gui import Gui
from gameglue.graphics.lights import AmbientLight, DirectionalLight
from gameglue.graphics.mesh import Mesh

__all__ = [
    "AmbientLight",
    "Camera",
    "Camera2D",
    "Camera3D",
    "Canvas",
    "DirectionalLight",
    "Effect",
    "Graphics",
    "Gui",
    "LineRenderer",
    "Mesh",
    "MeshRenderer",
    "Palette",
    "RenderTarget",
    "Renderer",
    "SpriteRenderer",
    "TextRenderer",
    "Texture",
]
