"""Renders imgui's draw data in the game's context, preserving its state."""

from __future__ import annotations

import ctypes
from typing import Any

import moderngl
import numpy as np

from gameglue.inspector.gl_state import SavedState

_VERTEX = """
#version 330
uniform vec2 size;
in vec2 position;
in vec2 at;
in vec4 tint;
out vec2 uv;
out vec4 color;
void main() {
    uv = at;
    color = tint;
    gl_Position = vec4(2.0 * position.x / size.x - 1.0, 1.0 - 2.0 * position.y / size.y, 0.0, 1.0);
}
"""

_FRAGMENT = """
#version 330
uniform sampler2D picture;
in vec2 uv;
in vec4 color;
out vec4 result;
void main() { result = color * texture(picture, uv); }
"""

_OVER = (moderngl.SRC_ALPHA, moderngl.ONE_MINUS_SRC_ALPHA, moderngl.ONE, moderngl.ONE_MINUS_SRC_ALPHA)
_VERTEX_BYTES, _INDEX_BYTES = 20, 4


class ImguiRenderer:
    """Vertices, indices and textures of one imgui context. That has to be the current one."""

    def __init__(self, imgui: Any, ctx: moderngl.Context) -> None:
        if (imgui.VERTEX_SIZE, imgui.INDEX_SIZE) != (_VERTEX_BYTES, _INDEX_BYTES):
            raise RuntimeError(
                "unsupported version of imgui-bundle: its vertices or indices have another size"
            )
        self._imgui = imgui
        self._ctx = ctx
        self._state = SavedState(ctx)
        self._program = ctx.program(vertex_shader=_VERTEX.strip(), fragment_shader=_FRAGMENT.strip())
        self._vertices: moderngl.Buffer | None = None
        self._indices: moderngl.Buffer | None = None
        self._array: moderngl.VertexArray | None = None
        self._textures: dict[int, moderngl.Texture] = {}
        self._shown: dict[int, moderngl.Texture] = {}
        imgui.get_io().backend_flags |= imgui.BackendFlags_.renderer_has_textures

    def show_texture(self, texture: moderngl.Texture) -> Any:
        """Register a game texture for this frame; returns the reference for `imgui.image`."""
        self._shown[texture.glo] = texture
        return self._imgui.ImTextureRef(texture.glo)

    def render(self, data: Any, target: moderngl.Framebuffer) -> None:
        """Draw into `target`, over its contents."""
        ctx = self._ctx
        with self._state.kept(), ctx.scope(target, moderngl.BLEND):
            self._follow_textures()
            # moderngl's stubs know only the forms with two values.
            blending: Any = ctx
            blending.blend_equation = moderngl.FUNC_ADD
            blending.blend_func = _OVER
            ctx.clear_samplers(0, 1)
            framebuffer: Any = target
            framebuffer.viewport = (0, 0, *target.size)
            framebuffer.color_mask = (True, True, True, True)
            self._program["size"] = target.size
            self._draw(data, framebuffer)
            framebuffer.scissor = None
        self._shown.clear()

    def _draw(self, data: Any, target: Any) -> None:
        lists = list(data.cmd_lists)
        vertices = [_bytes_of(part.vtx_buffer, _VERTEX_BYTES) for part in lists]
        indices = [_bytes_of(part.idx_buffer, _INDEX_BYTES).view(np.uint32) for part in lists]
        if not sum(map(len, indices)):
            return
        # One buffer for all lists: what a list calls its first vertex comes after those of the lists before.
        bases = np.cumsum([0, *(len(part) // _VERTEX_BYTES for part in vertices)])
        firsts = np.cumsum([0, *map(len, indices)])
        moved = [part + np.uint32(base) for part, base in zip(indices, bases, strict=False)]
        array = self._array_of(np.concatenate(vertices), np.concatenate(moved))
        height = target.size[1]
        for part, first in zip(lists, firsts, strict=False):
            for command in part.cmd_buffer:
                left, top, right, bottom = command.clip_rect
                wide, high = round(right) - round(left), round(bottom) - round(top)
                texture = self._texture_of(command.tex_ref.get_tex_id())
                if wide <= 0 or high <= 0 or texture is None:
                    continue
                target.scissor = (round(left), height - round(bottom), wide, high)
                texture.use(0)
                array.render(
                    moderngl.TRIANGLES, vertices=command.elem_count, first=int(first) + command.idx_offset
                )

    def _texture_of(self, number: int) -> moderngl.Texture | None:
        return self._textures.get(number) or self._shown.get(number)

    def _array_of(self, vertices: np.ndarray, indices: np.ndarray) -> moderngl.VertexArray:
        """The buffers with this content."""
        if self._array is None or not _fits(self._vertices, vertices) or not _fits(self._indices, indices):
            self._release_buffers()
            self._vertices = self._ctx.buffer(reserve=2 * vertices.nbytes, dynamic=True)
            self._indices = self._ctx.buffer(reserve=2 * indices.nbytes, dynamic=True)
            self._array = self._ctx.vertex_array(
                self._program,
                [(self._vertices, "2f 2f 4f1", "position", "at", "tint")],
                index_buffer=self._indices,
            )
        assert self._vertices is not None
        assert self._indices is not None
        for buffer, content in ((self._vertices, vertices), (self._indices, indices)):
            buffer.orphan()
            buffer.write(content)
        return self._array

    def _follow_textures(self) -> None:
        """Create, update and free the textures that imgui requests (glyphs, as they are needed)."""
        wanted = self._imgui.ImTextureStatus
        for texture in self._imgui.get_platform_io().textures:
            if texture.status == wanted.want_create:
                size = (texture.width, texture.height)
                made = self._ctx.texture(size, 4, texture.get_pixels_array().tobytes(), alignment=1)
                made.filter = (moderngl.LINEAR, moderngl.LINEAR)
                made.repeat_x = made.repeat_y = False
                self._textures[made.glo] = made
                texture.set_tex_id(made.glo)
                texture.set_status(wanted.ok)
            elif texture.status == wanted.want_updates:
                pixels = texture.get_pixels_array().reshape(texture.height, texture.width, 4)
                for part in texture.updates:
                    strip = pixels[part.y : part.y + part.h, part.x : part.x + part.w].tobytes()
                    place = (part.x, part.y, part.w, part.h)
                    self._textures[texture.tex_id].write(strip, viewport=place, alignment=1)
                texture.set_status(wanted.ok)
            elif texture.status == wanted.want_destroy and texture.unused_frames > 0:
                self._free(texture)

    def _free(self, texture: Any) -> None:
        found = self._textures.pop(texture.tex_id, None)
        if found is not None:
            found.release()
        texture.set_tex_id(0)
        texture.set_status(self._imgui.ImTextureStatus.destroyed)

    def _release_buffers(self) -> None:
        for thing in (self._array, self._vertices, self._indices):
            if thing is not None:
                thing.release()
        self._array = self._vertices = self._indices = None

    def release(self) -> None:
        """Free all objects."""
        for texture in self._imgui.get_platform_io().textures:
            if texture.tex_id:
                self._free(texture)
        self._imgui.get_io().backend_flags &= ~self._imgui.BackendFlags_.renderer_has_textures
        self._release_buffers()
        self._program.release()


def _bytes_of(buffer: Any, size: int) -> np.ndarray:
    """The content of one of imgui's vectors, (n,) uint8, without a copy."""
    count = buffer.size() * size
    if count == 0:
        return np.empty(0, np.uint8)
    return np.frombuffer((ctypes.c_uint8 * count).from_address(buffer.data_address()), np.uint8)


def _fits(buffer: moderngl.Buffer | None, content: np.ndarray) -> bool:
    return buffer is not None and buffer.size >= content.nbytes
