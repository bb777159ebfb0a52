"""`Camera2D`, and the components that it draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from gameglue.behaviour import MonoBehaviour
from gameglue.graphics.batch import View
from gameglue.graphics.canvas import Align, Canvas, VerticalAlign
from gameglue.graphics.colors import Color, Palette
from gameglue.graphics.device import RenderTarget, Texture
from gameglue.graphics.sprite_sheet import SpriteSheet


def world_view(center: tuple[float, float], height: float, angle: float, size: tuple[int, int]) -> View:
    """How a camera sees: `height` world units from bottom to top of a picture of `size` pixels."""
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
    """What all cameras have in common.

    Several cameras draw in the order of `depth`; only those with a `background` clear first, the others draw
    over what is there. A camera with a `target` draws into that picture, before those that draw to the
    screen. `layers` are the numbers of the layers whose objects it shows; `None` shows all.
    """

    background: Color | None = Palette.BACKGROUND
    depth: int = 0
    target: RenderTarget | None = None
    layers: tuple[int, ...] | None = None

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels of the picture that it draws into."""
        return self.target.size if self.target is not None else self.app.size


class Camera2D(Camera):
    """Shows the x-y plane around its object; `height` world units fit between bottom and top.

    It draws renderers (sprites, text, lines, particles) and no meshes. Where a scene has no `Camera2D`, a
    default one draws them, 10 units high, over what a `Camera3D` has drawn.
    """

    height: float = 10.0

    def view(self, size: tuple[int, int]) -> View:
        """What to draw with, for a picture of `size` pixels."""
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
    """A component that cameras draw: subclass it and write `draw(canvas)`. Lower `order` lies behind."""

    order: int = 0

    def draw(self, canvas: Canvas) -> None:
        """Draw with `canvas`, in world units, y up."""


class SpriteRenderer(Renderer):
    """A picture at the object's place. `width` is in world units; the height follows from the picture.

    Of a `sheet` it shows `frame`; `flip_x` and `flip_y` mirror it. Without a picture it is a rectangle
    (`width` by `height`, with rounded corners) in `color`.
    """

    texture: Texture | RenderTarget | None = None
    width: float = 1.0
    height: float | None = None
    color: Color = "white"
    radius: float = 0.0
    sheet: SpriteSheet | None = None
    frame: int = 0
    flip_x: bool = False
    flip_y: bool = False

    def draw(self, canvas: Canvas) -> None:
        """Draw the picture."""
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
    """A text at the object's place; `size` is the letters' height in world units. It is not turned."""

    text: str = ""
    size: float = 0.5
    color: Color = Palette.TEXT
    align: Align = "center"
    valign: VerticalAlign = "center"
    font: Path | None = None

    def draw(self, canvas: Canvas) -> None:
        """Draw the text."""
        x, y, _ = self.transform.position
        size = self.size * self.transform.lossy_scale.y
        canvas.text(
            self.text, x, y, size=size, color=self.color, align=self.align, valign=self.valign, font=self.font
        )


class LineRenderer(Renderer):
    """A line through `points`, given in the object's own units."""

    points: Sequence[tuple[float, float]] = ()
    width: float = 0.05
    color: Color = Palette.ACCENT
    closed: bool = False

    def draw(self, canvas: Canvas) -> None:
        """Draw the line."""
        world = [self.transform.to_world(point)[:2] for point in self.points]
        canvas.polyline(world, self.color, width=self.width, closed=self.closed)
