"""Quads, collected on the CPU and drawn as instances: the one way in which 2D things reach the GPU."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final

import moderngl
import numpy as np

from gameglue.graphics.device import GraphicsDevice, RenderTarget, Texture
from gameglue.graphics.shaders import QUAD_FRAGMENT, QUAD_VERTEX

QUAD: Final = np.dtype(
    [
        ("center", "<f4", 2),
        ("half", "<f4", 2),
        ("axis", "<f4", 2),  # cosine and sine of the rotation
        ("uv", "<f4", 4),
        ("shape", "<f4", 4),  # corner radius, border width, kind, softness
        ("color", "u1", 4),
        ("color2", "u1", 4),  # at the other end of the quad's y axis
    ]
)
PLAIN, PICTURE, GLYPH = 0.0, 1.0, 2.0

_PACK: Final = struct.Struct("<14f8B")
_LAYOUT: Final = "2f4 2f4 2f4 4f4 4f4 4f1 4f1 /i"
_ATTRIBUTES: Final = ("in_center", "in_half", "in_axis", "in_uv", "in_shape", "in_color", "in_color2")
_CAPACITIES: Final = (128, 2048, 16384)
# How many more makes a kind that adds its light.
ADDS: Final = 4.0
# For colours that are multiplied by their alpha already. Alpha adds up, so that a render target drawn with
# this can be laid over something else.
OVER: Final = (
    moderngl.ONE,
    moderngl.ONE_MINUS_SRC_ALPHA,
    moderngl.ONE,
    moderngl.ONE_MINUS_SRC_ALPHA,
)
Picture = Texture | RenderTarget


@dataclass(frozen=True)
class View:
    """From drawing units to the picture: two rows of an affine map to -1..1, and the size of a pixel."""

    x: tuple[float, float, float]
    y: tuple[float, float, float]
    pixel: float
    y_up: bool

    @classmethod
    def of_pixels(cls, width: int, height: int) -> View:
        """Pixels from the top left corner, y down."""
        return cls((2 / width, 0.0, -1.0), (0.0, -2 / height, 1.0), 1.0, False)


@dataclass(frozen=True)
class Run:
    """A stretch of quads in the same units that need no more than one picture."""

    view: View
    picture: Picture | None
    quads: np.ndarray


class QuadList:
    """Quads in drawing order, with the view and the picture that each stretch of them needs."""

    def __init__(self) -> None:
        self._quads = np.zeros(256, QUAD)
        self._bytes = self._quads.view(np.uint8).data
        self._count = 0
        self._runs: list[tuple[View, Picture | None, int]] = []
        self._view: View | None = None
        self._picture: Picture | None = None

    def __len__(self) -> int:
        return self._count

    def seen_by(self, view: View) -> QuadList:
        """This list, to which quads in the units of `view` may now be appended."""
        if view is not self._view:
            if view != self._view:
                self._picture = None
                self._runs.append((view, None, self._count))
            self._view = view
        return self

    def add(
        self,
        cx: float,
        cy: float,
        half_w: float,
        half_h: float,
        color: tuple[int, int, int, int],
        *,
        color2: tuple[int, int, int, int] | None = None,
        axis: tuple[float, float] = (1.0, 0.0),
        uv: tuple[float, float, float, float] = (0.0, 0.0, 1.0, 1.0),
        radius: float = 0.0,
        border: float = 0.0,
        soft: float = 0.0,
        picture: Picture | None = None,
    ) -> None:
        """Append one quad."""
        if self._count == len(self._quads):
            self._grow(self._count + 1)
        if picture is not None:
            self._need(picture)
        kind = PLAIN if picture is None else PICTURE
        far = color if color2 is None else color2
        _PACK.pack_into(
            self._bytes, self._count * QUAD.itemsize,
            cx, cy, half_w, half_h, *axis, *uv, radius, border, kind, soft, *color, *far,
        )  # fmt: skip
        self._count += 1

    def reserve(self, count: int, picture: Picture | None = None) -> np.ndarray:
        """Append `count` quads and return them, (count,) of dtype QUAD, to be filled in."""
        if self._count + count > len(self._quads):
            self._grow(self._count + count)
        if picture is not None:
            self._need(picture)
        quads = self._quads[self._count : self._count + count]
        self._count += count
        return quads

    def clear(self) -> None:
        """Forget all quads."""
        self._count = 0
        self._runs.clear()
        self._view = self._picture = None

    def runs(self) -> list[Run]:
        """Stretches that share view and picture, in drawing order."""
        ends = [start for _, _, start in self._runs[1:]] + [self._count]
        return [
            Run(view, picture, self._quads[start:end])
            for (view, picture, start), end in zip(self._runs, ends, strict=True)
            if end > start
        ]

    def _need(self, picture: Picture) -> None:
        if self._picture is picture:
            return
        assert self._view is not None
        if self._picture is None:
            # Quads without a picture join the stretch behind or before them: panels and text split no batch.
            *_, start = self._runs.pop()
        else:
            start = self._count
        self._runs.append((self._view, picture, start))
        self._picture = picture

    def _grow(self, needed: int) -> None:
        grown = np.zeros(max(needed, 2 * len(self._quads)), QUAD)
        grown[: self._count] = self._quads[: self._count]
        self._quads = grown
        self._bytes = grown.view(np.uint8).data


class QuadPipeline:
    """Draws quad lists into a render target."""

    def __init__(self, device: GraphicsDevice) -> None:
        self._device = device
        self._stores: list[tuple[int, moderngl.Buffer, moderngl.VertexArray]] = []
        self._program: moderngl.Program | None = None
        self._blank: Texture | None = None
        ctx = device.ctx
        if ctx is None:
            return
        self._program = device.program(QUAD_VERTEX, QUAD_FRAGMENT)
        self._program["glyphs"] = 0
        self._program["picture"] = 1
        self._blank = device.texture(np.full((1, 1), 255, np.uint8))
        for capacity in _CAPACITIES:
            buffer = ctx.buffer(reserve=capacity * QUAD.itemsize, dynamic=True)
            vertices = ctx.vertex_array(self._program, [(buffer, _LAYOUT, *_ATTRIBUTES)])
            self._stores.append((capacity, buffer, vertices))
        device.keep(self)

    def draw(self, quads: QuadList, target: RenderTarget, glyphs: Texture | None) -> None:
        """Draw `quads` over what `target` holds, and clear the list."""
        ctx, program, framebuffer = self._device.ctx, self._program, target.framebuffer
        if ctx is not None and program is not None and framebuffer is not None and len(quads):
            self._device.bind(framebuffer, moderngl.BLEND)
            # moderngl's stubs know only the forms with two values.
            blending: Any = ctx
            blending.blend_equation = moderngl.FUNC_ADD
            blending.blend_func = OVER
            ctx.clear_samplers(0, 2)
            for run in quads.runs():
                program["view_x"], program["view_y"] = run.view.x, run.view.y
                program["pixel"] = run.view.pixel
                self._use(glyphs, unit=0)
                # A picture cannot be looked at while it is drawn into.
                self._use(run.picture if run.picture is not target else None, unit=1)
                for start in range(0, len(run.quads), _CAPACITIES[-1]):
                    self._draw_run(run.quads[start : start + _CAPACITIES[-1]])
        quads.clear()

    def _use(self, picture: Picture | None, *, unit: int) -> None:
        texture = picture.texture if picture is not None else None
        if texture is None:
            assert self._blank is not None
            texture = self._blank.texture
        if texture is not None:
            texture.use(unit)

    def _draw_run(self, quads: np.ndarray) -> None:
        _, buffer, vertices = next(store for store in self._stores if len(quads) <= store[0])
        # Orphaned, so that the write does not wait for the GPU to finish drawing from the old content.
        buffer.orphan()
        buffer.write(quads)
        vertices.render(moderngl.TRIANGLE_STRIP, vertices=4, instances=len(quads))

    def release(self) -> None:
        """Free the program and buffers."""
        for _, buffer, vertices in self._stores:
            vertices.release()
            buffer.release()
        self._stores.clear()
        if self._program is not None:
            self._program.release()
            self._program = None
        self._device.forget(self)
