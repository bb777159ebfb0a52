"""`Camera2D`, and the components that it draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Annotated

from gameglue.graphics.batch import View
from gameglue.graphics.canvas import Align, Canvas, VerticalAlign
from gameglue.graphics.colors import Color, Palette
from gameglue.graphics.device import RenderTarget, Texture
from gameglue.graphics.sprite_sheet import SpriteSheet
from gameglue.scripting.behaviour import MonoBehaviour
from gameglue.scripting.fields import Range


def world_view(center: tuple[float, float], height: float, angle: float, size: tuple[int, int]) -> View:
    """A camera's view: `height` world units from the bottom to the top of an image of `size` pixels."""
    up = 2.0 / height
    along = up * size[1] / size[0]
    c, s = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    x, y = center
    return View(
        (along * c, along * s, -along * (c * x + s * y)),
        (-up * s, up * c, -up * (c * y - s * x)),
        height / size[1],
        True,
    )


class Camera(MonoBehaviour):
    """Base class of cameras: the fields that `Camera2D` and `Camera3D` share.

    Cameras with a `target` draw before those that draw to the screen.
    """

    background: Color | None = Palette.BACKGROUND
    """The colour that the image is cleared with; `None` draws over what is there."""
    depth: int = 0
    """Cameras draw in ascending order of it."""
    target: RenderTarget | None = None
    """The image to draw into; `None` is the screen."""
    layers: tuple[int, ...] | None = None
    """The layers whose objects it shows; `None` shows all."""

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels of the image that it draws into."""
        return self.target.size if self.target is not None else self.app.size


class Camera2D(Camera):
    """Shows the x-y plane around its object.

    It draws renderers (sprites, text, lines, particles) and no meshes. Where a scene has no `Camera2D`, a
    default one draws them, 10 units high, over what a `Camera3D` has drawn.
    """

    height: Annotated[float, Range(0.0, inf, "units", exclusive=True)] = 10.0
    """World units from the bottom to the top of the image."""

    def view(self, size: tuple[int, int]) -> View:
        """The map from the world to an image of `size` pixels."""
        x, y, _ = self.transform.position
        return world_view((x, y), self.height, self.transform.angle, size)

    def screen_to_world(self, x: float, y: float) -> tuple[float, float]:
        """The point of the world under a pixel, counted from the top left."""
        width, height = self.size
        unit = self.height / height
        point = ((x - width / 2) * unit, (height / 2 - y) * unit)
        angle = math.radians(self.transform.angle)
        c, s = math.cos(angle), math.sin(angle)
        px, py, _ = self.transform.position
        return px + point[0] * c - point[1] * s, py + point[0] * s + point[1] * c

    def world_to_screen(self, x: float, y: float) -> tuple[float, float]:
        """The pixel, counted from the top left, at which a point of the world is seen."""
        width, height = self.size
        view = self.view((width, height))
        ndc_x = view.x[0] * x + view.x[1] * y + view.x[2]
        ndc_y = view.y[0] * x + view.y[1] * y + view.y[2]
        return (ndc_x + 1) / 2 * width, (1 - ndc_y) / 2 * height


class Renderer(MonoBehaviour):
    """A component that cameras draw: subclass it and write `draw(canvas)`."""

    order: int = 0
    """Renderers are drawn in ascending order of it, so higher ones are in front."""

    def draw(self, canvas: Canvas) -> None:
        """Draw with `canvas`, in world units, y up."""


class SpriteRenderer(Renderer):
    """Draws an image at the object's position, or a rectangle without `texture` and `sheet`."""

    texture: Texture | RenderTarget | None = None
    """The image; scene files and `add_component` take a file name, too."""
    width: Annotated[float, Range(0.0, inf, "units")] = 1.0
    """Width in the world, times the object's scale."""
    height: Annotated[float | None, Range(0.0, inf, "units")] = None
    """Height in the world; `None` keeps the image's proportions."""
    color: Color = "white"
    """Multiplies the image's colours; the rectangle's colour without an image."""
    radius: Annotated[float, Range(0.0, inf, "units")] = 0.0
    """Radius of rounded corners."""
    sheet: SpriteSheet | None = None
    """A sheet of frames to show one of, instead of `texture`."""
    frame: int = 0
    """The frame of `sheet`, counted from the top left, row by row."""
    flip_x: bool = False
    """Mirror the image left to right."""
    flip_y: bool = False
    """Mirror the image top to bottom."""

    def draw(self, canvas: Canvas) -> None:
        """Draw the image."""
        transform, sheet = self.transform, self.sheet
        x, y, _ = transform.position
        scale = transform.lossy_scale
        picture = self.texture if sheet is None else sheet.texture
        left, top, right, bottom = (0.0, 0.0, 1.0, 1.0) if sheet is None else sheet.region(self.frame)
        across, down = (1.0, 1.0) if picture is None else picture.size if sheet is None else sheet.frame_size
        width = self.width * scale.x
        height = (self.height if self.height is not None else self.width * down / across) * scale.y
        if self.flip_x:
            left, right = right, left
        if self.flip_y:
            top, bottom = bottom, top
        canvas.sprite(
            picture if picture is not None else self.app.graphics.white,
            x,
            y,
            width,
            height,
            rotation=transform.angle,
            color=self.color,
            radius=self.radius,
            region=(left, top, right, bottom),
        )


class TextRenderer(Renderer):
    """A text at the object's position. It does not rotate with the object."""

    text: str = ""
    """What is written; line breaks begin new lines."""
    size: Annotated[float, Range(0.0, inf, "units")] = 0.5
    """Height of the letters in the world, times the object's scale."""
    color: Color = Palette.TEXT
    """The letters' colour."""
    align: Align = "center"
    """Where the object's position is in the text, horizontally."""
    valign: VerticalAlign = "center"
    """Where the object's position is in the text, vertically."""
    font: Path | None = None
    """A TrueType or OpenType file; `None` is the built-in font."""

    def draw(self, canvas: Canvas) -> None:
        """Draw the text."""
        x, y, _ = self.transform.position
        size = self.size * self.transform.lossy_scale.y
        canvas.text(
            self.text, x, y, size=size, color=self.color, align=self.align, valign=self.valign, font=self.font
        )


class LineRenderer(Renderer):
    """A line through points that move, rotate and scale with the object."""

    points: Sequence[tuple[float, float]] = ()
    """Points in the object's own coordinates."""
    width: Annotated[float, Range(0.0, inf, "units")] = 0.05
    """Width of the line in the world; the object's scale does not change it."""
    color: Color = Palette.ACCENT
    """The line's colour."""
    closed: bool = False
    """Also join the last point to the first."""

    def draw(self, canvas: Canvas) -> None:
        """Draw the line."""
        world = [self.transform.to_world(point)[:2] for point in self.points]
        canvas.polyline(world, self.color, width=self.width, closed=self.closed)
