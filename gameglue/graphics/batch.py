"""Quad batches: all 2D drawing is collected on the CPU and drawn as instances."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import moderngl
import numpy as np

from gameglue.graphics.device import GraphicsDevice, RenderTarget, Texture
from gameglue.graphics.shaders import PICTURE_FRAGMENT, PLAIN_FRAGMENT, QUAD_FRAGMENT, QUAD_VERTEX

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
MIXED: Final = -1.0
"""Stands for any of them, where a program is chosen."""

_PACK: Final = struct.Struct("<14f8B")
_ATTRIBUTES: Final = (
    ("2f4", "in_center"), ("2f4", "in_half"), ("2f4", "in_axis"), ("4f4", "in_uv"), ("4f4", "in_shape"),
    ("4f1", "in_color"), ("4f1", "in_color2"),
)  # fmt: skip
_SKIPPED: Final = {"2f4": "2x4", "4f4": "4x4", "4f1": "4x1"}
_CAPACITIES: Final = (128, 2048, 16384)
_FRAGMENTS: Final = {MIXED: QUAD_FRAGMENT, PLAIN: PLAIN_FRAGMENT, PICTURE: PICTURE_FRAGMENT}
_MANY_PIXELS: Final = 10_000
"""For fewer, a program of its own saves less on a software renderer than its two draw calls cost."""
# How many more makes a kind that adds its light.
ADDS: Final = 4.0
# For colours that are multiplied by their alpha already. Alpha adds up, so that a render target drawn with
# this can be laid over something else.
OVER: Final = (moderngl.ONE, moderngl.ONE_MINUS_SRC_ALPHA, moderngl.ONE, moderngl.ONE_MINUS_SRC_ALPHA)
Picture = Texture | RenderTarget


@dataclass(frozen=True)
class View:
    """An affine map from drawing units to clip space, and the size of a pixel in these units."""

    x: tuple[float, float, float]
    y: tuple[float, float, float]
    pixel: float
    y_up: bool

    @classmethod
    def of_pixels(cls, width: int, height: int) -> View:
        """Pixels from the top left corner, y down."""
        return cls((2 / width, 0.0, -1.0), (0.0, -2 / height, 1.0), 1.0, False)


@dataclass(frozen=True)
class QuadRun:
    """Consecutive quads drawn by one call: one view, and at most one texture."""

    view: View
    picture: Picture | None
    quads: np.ndarray


class QuadList:
    """Quads in drawing order, with the view and texture of each run."""

    def __init__(self) -> None:
        self._quads = np.zeros(256, QUAD)
        self._bytes = self._quads.view(np.uint8).data
        self._count = 0
        self._runs: list[tuple[View, Picture | None, int]] = []
        self._view: View | None = None
        self._picture: Picture | None = None

    def __len__(self) -> int:
        return self._count

    def with_view(self, view: View) -> QuadList:
        """Use the units of `view` for the quads that are added next; returns this list."""
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
        """Append `count` uninitialized quads and return them, (count,) of dtype QUAD."""
        if self._count + count > len(self._quads):
            self._grow(self._count + count)
        if picture is not None:
            self._need(picture)
        quads = self._quads[self._count : self._count + count]
        self._count += count
        return quads

    def clear(self) -> None:
        """Remove all quads."""
        self._count = 0
        self._runs.clear()
        self._view = self._picture = None

    def runs(self) -> list[QuadRun]:
        """Runs of quads with the same view and texture, in drawing order."""
        ends = [start for _, _, start in self._runs[1:]] + [self._count]
        return [
            QuadRun(view, picture, self._quads[start:end])
            for (view, picture, start), end in zip(self._runs, ends, strict=True)
            if end > start
        ]

    def _need(self, picture: Picture) -> None:
        if self._picture is picture:
            return
        assert self._view is not None
        if self._picture is None:
            # Quads without an image join the run after or before them: panels and text split no batch.
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


def by_kind(run: QuadRun) -> list[tuple[float, np.ndarray]]:
    """Split a run by program: `PLAIN` or `PICTURE` for many covered pixels, else `MIXED`."""
    shape, count = run.quads["shape"], len(run.quads)
    kinds = shape[:, 2] % ADDS
    starts = np.flatnonzero(np.diff(kinds, prepend=-1.0))
    sides = 2.0 * (run.quads["half"] + shape[:, 3:]) / run.view.pixel
    areas = np.add.reduceat(sides[:, 0] * sides[:, 1], starts)
    ends = np.append(starts[1:], count)
    pieces: list[tuple[float, np.ndarray]] = []
    done = 0
    for place in np.flatnonzero((areas > _MANY_PIXELS) & (kinds[starts] < GLYPH)):
        start, end = starts[place], ends[place]
        if start > done:
            pieces.append((MIXED, run.quads[done:start]))
        pieces.append((float(kinds[start]), run.quads[start:end]))
        done = end
    if done < count:
        pieces.append((MIXED, run.quads[done:]))
    return pieces


class _Program:
    """A shader program for quads of one kind or of any, and how it reads each of the buffers."""

    def __init__(self, device: GraphicsDevice, fragment: str, buffers: Sequence[moderngl.Buffer]) -> None:
        assert device.ctx is not None
        self.program = device.program(QUAD_VERTEX, fragment)
        for unit, name in enumerate(("glyphs", "picture")):
            if name in self.program:
                self.program[name] = unit
        # Attributes that a program does not use are not there.
        used = [(form, name) for form, name in _ATTRIBUTES if name in self.program]
        layout = " ".join(form if name in self.program else _SKIPPED[form] for form, name in _ATTRIBUTES)
        names = [name for _, name in used]
        self.arrays = [
            device.ctx.vertex_array(self.program, [(buffer, f"{layout} /i", *names)]) for buffer in buffers
        ]

    def set_view(self, view: View) -> None:
        """Use the units of `view`."""
        self.program["view_x"], self.program["view_y"] = view.x, view.y
        self.program["pixel"] = view.pixel

    def release(self) -> None:
        """Free it."""
        for array in self.arrays:
            array.release()
        self.program.release()


class QuadPipeline:
    """Draws quad lists into a render target.

    A graphics card draws all kinds with one program, so that panels, images and text are one batch. Where
    the processor draws, a run of one kind that covers many pixels has a program of its own.
    """

    def __init__(self, device: GraphicsDevice) -> None:
        self._device = device
        self._buffers: list[moderngl.Buffer] = []
        self._programs: dict[float, _Program] = {}
        self._blank: Texture | None = None
        ctx = device.ctx
        if ctx is None:
            return
        self._buffers = [ctx.buffer(reserve=count * QUAD.itemsize, dynamic=True) for count in _CAPACITIES]
        # All now: compiling within a frame would wait for what is drawn.
        kinds = (MIXED, PLAIN, PICTURE) if device.is_software else (MIXED,)
        self._programs = {kind: _Program(device, _FRAGMENTS[kind], self._buffers) for kind in kinds}
        self._blank = device.texture(np.full((1, 1), 255, np.uint8))
        device.keep(self)

    def draw(self, quads: QuadList, target: RenderTarget, glyphs: Texture | None) -> None:
        """Draw `quads` over what `target` holds, and clear the list."""
        ctx, framebuffer = self._device.ctx, target.framebuffer
        if ctx is not None and self._programs and framebuffer is not None and len(quads):
            self._device.bind(framebuffer, moderngl.BLEND)
            # moderngl's stubs know only the forms with two values.
            blending: Any = ctx
            blending.blend_equation = moderngl.FUNC_ADD
            blending.blend_func = OVER
            ctx.clear_samplers(0, 2)
            for run in quads.runs():
                self._use(glyphs, unit=0)
                # An image cannot be looked at while it is drawn into.
                self._use(run.picture if run.picture is not target else None, unit=1)
                pieces = by_kind(run) if self._device.is_software else [(MIXED, run.quads)]
                for kind in {kind for kind, _ in pieces}:
                    self._programs[kind].set_view(run.view)
                for kind, piece in pieces:
                    for start in range(0, len(piece), _CAPACITIES[-1]):
                        self._draw_piece(self._programs[kind], piece[start : start + _CAPACITIES[-1]])
        quads.clear()

    def _use(self, picture: Picture | None, *, unit: int) -> None:
        texture = picture.texture if picture is not None else None
        if texture is None:
            assert self._blank is not None
            texture = self._blank.texture
        if texture is not None:
            texture.use(unit)

    def _draw_piece(self, program: _Program, quads: np.ndarray) -> None:
        place = next(place for place, capacity in enumerate(_CAPACITIES) if len(quads) <= capacity)
        # Orphaned, so that the write does not wait for the GPU to finish drawing from the old content.
        self._buffers[place].orphan()
        self._buffers[place].write(quads)
        program.arrays[place].render(moderngl.TRIANGLE_STRIP, vertices=4, instances=len(quads))

    def release(self) -> None:
        """Free the programs and buffers."""
        for program in self._programs.values():
            program.release()
        for buffer in self._buffers:
            buffer.release()
        self._programs.clear()
        self._buffers.clear()
        self._device.forget(self)
