"""`Graphics`: an app's rendering, from the cameras to the window."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

import moderngl
import numpy as np

from gameglue.graphics.batch import QuadPipeline, View
from gameglue.graphics.camera_renderer import CameraRenderer
from gameglue.graphics.canvas import Canvas
from gameglue.graphics.colors import Palette, parse_color
from gameglue.graphics.current_context import ContextGuard
from gameglue.graphics.device import Effect, GraphicsDevice, RenderTarget, Texture
from gameglue.graphics.gui import Gui
from gameglue.graphics.image_effect import ImageEffect
from gameglue.graphics.mesh_pipeline import MeshPipeline
from gameglue.graphics.pending_fences import PendingFences
from gameglue.graphics.surface import Surface
from gameglue.graphics.text import Fonts
from gameglue.host.lifecycle import Lifecycle
from gameglue.host.pygame_ce import import_pygame
from gameglue.scripting.behaviour import MonoBehaviour
from gameglue.scripting.dispatch import ErrorHandler, HookList, Wrap

_log = logging.getLogger("gameglue")


class Graphics:
    """Creates textures, render targets and effects, and holds the frame's image: `app.graphics`.

    It draws an app's cameras, image effects and GUI into an image, and presents it. The image is a render
    target, with or without a window, so screenshots and image effects are the same in both. Without OpenGL
    (`ctx` is `None`) everything may be called and nothing is drawn.

    Attributes:
        background: Colour that the image is cleared to each frame; a camera's own covers it.
    """

    def __init__(self, surface: Surface, lifecycle: Lifecycle, on_error: ErrorHandler) -> None:
        self.surface = surface
        self._switch = ContextGuard(surface.ctx) if surface.ctx is not None else None
        self.device = GraphicsDevice(surface.ctx)
        self.fonts = Fonts(self.device)
        self.background = Palette.BACKGROUND
        self.white = self.device.texture(np.full((1, 1), 255, np.uint8))
        self._pipeline = QuadPipeline(self.device)
        self._on_error = on_error
        self._picture = self.device.render_target(surface.size)
        self._spare: RenderTarget | None = None
        size = self._picture.size
        self.gui = Gui(self._pipeline, self.fonts, View.of_pixels(*size), size)
        world = Canvas(self._pipeline, self.fonts, self.gui.view, size)
        self._stage = CameraRenderer(world, MeshPipeline(self.device), lifecycle, self._guarded)
        self._screenshots: list[Path] = []
        is_bound = surface.is_window and not self.is_software
        self._pending = PendingFences(surface.ctx) if surface.ctx is not None and not is_bound else None
        self.wrap: Wrap | None = None
        self._warm_up()

    def _warm_up(self) -> None:
        """Draw a little of each kind now: drivers compile at the first draw, not when a program is linked."""
        self.gui.rect(0, 0, 4, 4, "black")
        self.gui.image(self.white, 0, 0, 4, 4)
        self.gui.text("0", 0, 0)
        self.gui.flush(self._picture)
        self._picture.clear(parse_color(self.background))

    # -- what games use -------------------------------------------------------------------------

    @property
    def ctx(self) -> moderngl.Context | None:
        """The moderngl context, for a game's own OpenGL; `None` where there is none."""
        return self.device.ctx

    @property
    def renderer(self) -> str:
        """The renderer's name, as the driver gives it: `GL_RENDERER`."""
        return self.device.renderer

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the image in pixels."""
        return self._picture.size

    @property
    def picture(self) -> RenderTarget:
        """The image of this frame so far; between frames, the complete last frame."""
        return self._picture

    def texture(
        self,
        pixels: np.ndarray | None = None,
        *,
        size: tuple[int, int] | None = None,
        smooth: bool = True,
        repeat: bool = False,
        mipmaps: bool = False,
    ) -> Texture:
        """Create a texture from an array, or an empty one of `size` (width, height); see `Texture.write`.

        `smooth=False` keeps hard edges when it is enlarged. For meshes: `repeat` lays copies side by side
        where texture coordinates go beyond 1, `mipmaps` keeps it calm where it is far away.
        """
        return self.device.texture(pixels, size=size, smooth=smooth, repeat=repeat, mipmaps=mipmaps)

    def render_target(self, size: tuple[int, int], *, smooth: bool = True) -> RenderTarget:
        """Create a render target, for effects or as the `target` of a camera.

        `smooth=False` keeps hard edges when it is shown enlarged.
        """
        return self.device.render_target(size, smooth=smooth)

    def effect(self, fragment: str) -> Effect:
        """A fragment shader for `on_render_image`; see `Effect`."""
        return self.device.effect(fragment)

    def copy(self, source: RenderTarget, destination: RenderTarget) -> None:
        """Copy a texture, scaled if the sizes differ."""
        self.device.copy(source, destination)

    # -- what the frame uses --------------------------------------------------------------------

    def make_current(self) -> None:
        """Make this app's OpenGL context current on this thread."""
        if self._switch is not None:
            self._switch.make_current()

    def follow_window_size(self) -> None:
        """Resize the image to the window."""
        if self._picture.size != self.surface.size and min(self.surface.size) > 0:
            for target in (self._picture, self._spare):
                if target is not None:
                    target.release()
            self._picture, self._spare = self.device.render_target(self.surface.size), None
            self.gui.size = self._picture.size
            self.gui.view = View.of_pixels(*self._picture.size)

    def draw_cameras(self) -> None:
        """Clear, and draw the scene as each camera sees it."""
        self.fonts.begin_frame()
        self._picture.clear(parse_color(self.background))
        self._stage.draw(self._picture, self.wrap)

    def apply_image_effects(self, hooks: HookList) -> None:
        """Run every `on_render_image` over the image."""
        if self.device.ctx is None:
            return
        for component, call in hooks.entries():
            if not component.is_active_and_enabled:
                continue
            if isinstance(component, ImageEffect) and component.strength <= 0.0:
                continue
            if self._spare is None:
                self._spare = self.device.render_target(self._picture.size)
            source, destination = self._picture, self._spare
            # An effect that raises has written half a picture: the previous one stays.
            if self._guarded(component, hooks.name, call, source, destination):
                self._picture, self._spare = destination, source

    def draw_gui(self) -> None:
        """Draw what `app.gui` has collected."""
        self.gui.flush(self._picture)

    def present(self) -> None:
        """Save requested screenshots, and present the image."""
        for path in self._screenshots:
            self.save_picture(path)
        self._screenshots.clear()
        # In front of the flush that presenting begins with: some drivers take a fence with nothing between it
        # and a flush for passed.
        self.mark()
        self.surface.present(self.device, self._picture)

    @property
    def is_software(self) -> bool:
        """Whether the processor draws."""
        return self.device.is_software

    def mark(self) -> None:
        """Add a fence to `pending`."""
        if self._pending is not None:
            self._pending.mark()

    @property
    def pending(self) -> int:
        """Number of fences, one per frame, that the GPU has not reached; never waits.

        With a window on a graphics card always 0: there the window bounds how many images are enqueued.
        """
        if self._pending is None:
            return 0
        self.make_current()
        return self._pending.count()

    # -- screenshots ----------------------------------------------------------------------------

    def request_screenshot(self, path: Path) -> None:
        """Save the image when this frame is complete."""
        self._screenshots.append(path)

    def read_pixels(self) -> np.ndarray:
        """Read the image as (height, width, 3) uint8, row 0 on top. Waits for the GPU."""
        self.make_current()
        return self._picture.read()

    def save_picture(self, path: Path) -> bool:
        """Save the image as PNG (or by suffix); returns False, with a warning, without OpenGL."""
        if self.device.ctx is None:
            _log.warning("no screenshot %s: there is no OpenGL to draw with", path)
            return False
        pygame = import_pygame()
        pixels = self.read_pixels()
        os.makedirs(path.parent, exist_ok=True)
        surface = pygame.image.frombytes(pixels.tobytes(), (pixels.shape[1], pixels.shape[0]), "RGB")
        pygame.image.save(surface, str(path))
        return True

    def release(self) -> None:
        """Free everything on the GPU, and close the window."""
        self.make_current()
        if self._pending is not None:
            self._pending.release()
            self._pending = None
        self.device.release()
        self.surface.close()
        self.device.ctx = self._switch = None

    def _guarded(
        self, component: MonoBehaviour, name: str, call: Callable[..., object], *arguments: object
    ) -> bool:
        try:
            call(*arguments)
        except Exception as error:  # noqa: BLE001 - one component's fault must not end the loop
            self._on_error(component, name, error)
            return False
        return True
