"""Drawing on the shared moderngl context: cameras, sprites, text, meshes, image effects, the window."""

from gameglue.graphics.camera import Camera, Camera2D, LineRenderer, Renderer, SpriteRenderer, TextRenderer
from gameglue.graphics.camera3d import Camera3D, MeshRenderer
from gameglue.graphics.canvas import Canvas
from gameglue.graphics.colors import Color, Palette, with_alpha
from gameglue.graphics.device import Effect, RenderTarget, Texture
from gameglue.graphics.graphics import Graphics
from gameglue.graphics.gui import Gui
from gameglue.graphics.image_effect import ImageEffect
from gameglue.graphics.image_network import ImageNetwork
from gameglue.graphics.lights import AmbientLight, DirectionalLight
from gameglue.graphics.mesh import Mesh
from gameglue.graphics.page import Page, Rect
from gameglue.graphics.particles import Particles, ParticleSystem, ParticleSystem3D
from gameglue.graphics.sprite_animator import SpriteAnimator
from gameglue.graphics.sprite_sheet import AnimationClip, SpriteSheet
from gameglue.graphics.tile_map import TileMap
from gameglue.graphics.web_cam_texture import WebCamTexture

__all__ = [
    "AmbientLight",
    "AnimationClip",
    "Camera",
    "Camera2D",
    "Camera3D",
    "Canvas",
    "Color",
    "DirectionalLight",
    "Effect",
    "Graphics",
    "Gui",
    "ImageEffect",
    "LineRenderer",
    "Mesh",
    "MeshRenderer",
    "Page",
    "Palette",
    "ParticleSystem",
    "ParticleSystem3D",
    "Particles",
    "ImageNetwork",
    "Rect",
    "RenderTarget",
    "Renderer",
    "SpriteAnimator",
    "SpriteRenderer",
    "SpriteSheet",
    "TextRenderer",
    "Texture",
    "TileMap",
    "WebCamTexture",
    "with_alpha",
]
