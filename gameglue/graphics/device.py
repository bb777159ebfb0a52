"""`GraphicsDevice`: an OpenGL context and the objects created in it; there may be no context.

Everything that draws goes through a device, and a device without a context accepts every call and does
nothing: that is the only place where "this machine has no OpenGL" is decided. Objects are freed explicitly,
by `release()` of their own or of the device, on the thread that made the context.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import moderngl
import numpy as np

from engine.device.gl.limits import GLInfo
from gameglue.errors import GraphicsError
from gameglue.graphics.context import resolve_call
from gameglue.graphics.shaders import COPY_FRAGMENT, FULLSCREEN_VERTEX, numbered


class Releasable(Protocol):
    """Something that holds GL objects."""

    def release(self) -> None:
        """Free them."""
        ...


class GraphicsDevice:
    """Creates textures, render targets and effects, and tracks them."""

    def __init__(self, ctx: moderngl.Context | None) -> None:
        self.ctx = ctx
        self.renderer = str(ctx.info["GL_RENDERER"]) if ctx is not None else "none"
        self.is_software = GLInfo(self.renderer, "", "", 0, frozenset()).is_software
        """Whether the processor draws."""
        self.version = ctx.version_code if ctx is not None else 0
        self.smooth_samples = min(4, ctx.max_samples) if ctx is not None else 0
        """Samples a pixel where edges of triangles are to be smooth; 0 where the driver has but one."""
        if self.smooth_samples < 2:
            self.smooth_samples = 0
        self._alive: dict[int, Releasable] = {}
        self._copy: Effect | None = None
        self._resolve: Callable[[moderngl.Framebuffer, moderngl.Framebuffer], None] | None = None

    @property
    def live_objects(self) -> int:
        """How many textures, targets and effects were made and not released."""
        return len(self._alive)

    def keep(self, thing: Releasable) -> None:
        """Free `thing` with the device, unless it is released before."""
        self._alive[id(thing)] = thing

    def forget(self, thing: Releasable) -> None:
        """`thing` was released."""
        self._alive.pop(id(thing), None)

    def program(self, vertex: str, fragment: str) -> moderngl.Program:
        """Compile a program. Raises `GraphicsError` with the numbered source."""
        assert self.ctx is not None
        try:
            return self.ctx.program(vertex_shader=vertex.strip(), fragment_shader=fragment.strip())
        except moderngl.Error as error:
            raise GraphicsError(f"{error}\nin this fragment shader:\n{numbered(fragment)}") from error

    def bind(self, framebuffer: moderngl.Framebuffer, flags: int) -> None:
        """Draw into all of `framebuffer` from now on, with `flags` (such as `moderngl.BLEND`) and no others.

        moderngl keeps viewport, scissor and mask with the framebuffer that is bound, where a game's
        `ctx.viewport = ...` ends up too, so all are set again.
        """
        assert self.ctx is not None
        target: Any = framebuffer  # The stubs do not know that `scissor` may be None.
        target.viewport = (0, 0, *framebuffer.size)
        target.scissor = None
        if framebuffer.color_attachments != ():  # One for depths only has no colours to mask.
            target.color_mask = (True, True, True, True)
        target.use()
        self.ctx.enable_only(flags)

    def resolve(self, source: moderngl.Framebuffer, destination: moderngl.Framebuffer) -> None:
        """Copy a framebuffer's colours to one of the same size with another number of samples."""
        assert self.ctx is not None
        if self._resolve is None:
            self._resolve = resolve_call(self.ctx)
        # A scissor would cut the copy.
        self.bind(source, moderngl.NOTHING)
        self._resolve(source, destination)

    def texture(
        self,
        pixels: np.ndarray | None = None,
        *,
        size: tuple[int, int] | None = None,
        smooth: bool = True,
        repeat: bool = False,
        mipmaps: bool = False,
    ) -> Texture:
        """Create a texture from an array, or an empty one of `size` (width, height); see `Texture.write`."""
        return Texture(self, pixels, size, smooth, repeat, mipmaps)

    def render_target(self, size: tuple[int, int], *, smooth: bool = True) -> RenderTarget:
        """Create a render target; `smooth=False` keeps hard edges when it is enlarged."""
        return RenderTarget(self, size, smooth)

    def effect(self, fragment: str) -> Effect:
        """Create a full-screen pass; see `Effect`."""
        return Effect(self, fragment)

    def copy(self, source: RenderTarget, destination: RenderTarget | moderngl.Framebuffer) -> None:
        """Copy a texture, scaled if the sizes differ."""
        if self._copy is None:
            self._copy = Effect(self, COPY_FRAGMENT)
        self._copy.apply(source, destination)

    def release(self) -> None:
        """Release all remaining objects."""
        for thing in list(self._alive.values()):
            thing.release()
        self._alive.clear()


class Texture:
    """A texture, row 0 at the top. Created by `graphics.texture(...)`.

    `write` may be called in every frame without waiting: the driver keeps the old content as long as the GPU
    needs it.

    Args:
        device: The graphics device.
        pixels: (height, width, 3 or 4) uint8, or floats from 0 to 1.
        size: Width and height, if there are no pixels yet.
        smooth: Whether to interpolate between pixels.
        repeat: Whether it repeats beyond its edges.
        mipmaps: Whether to keep smaller versions for drawing it small.

    Attributes:
        size: Width and height in pixels.
        smooth: Whether it is interpolated between pixels.
        texture: The moderngl texture; None without OpenGL.
        bottom_up: Whether row 0 is the lowest.
    """

    def __init__(
        self,
        device: GraphicsDevice,
        pixels: np.ndarray | None = None,
        size: tuple[int, int] | None = None,
        smooth: bool = True,
        repeat: bool = False,
        mipmaps: bool = False,
    ) -> None:
        if not isinstance(device, GraphicsDevice):
            raise GraphicsError(
                "a Texture belongs to an app: make it with app.graphics.texture(pixels), or load it with "
                "app.resources.load(name, Texture)"
            )
        if pixels is None and size is None:
            raise ValueError("a texture needs pixels or a size")
        if pixels is not None:
            size = (pixels.shape[1], pixels.shape[0])
        assert size is not None
        self.size = (int(size[0]), int(size[1]))
        self.smooth = smooth
        self.texture: moderngl.Texture | None = None
        self.bottom_up = False
        self._device = device
        self._mipmaps = mipmaps
        self._channels = 1 if pixels is not None and pixels.ndim == 2 else 4
        self._staging: moderngl.Buffer | None = None
        if device.ctx is not None:
            self.texture = device.ctx.texture(self.size, self._channels, alignment=1)
            self.texture.repeat_x = self.texture.repeat_y = repeat
            kind = moderngl.LINEAR if smooth else moderngl.NEAREST
            self.texture.filter = (kind, kind)
            if self._channels == 1:
                self.texture.swizzle = "RRR1"
            self._staging = device.ctx.buffer(
                reserve=self.size[0] * self.size[1] * self._channels, dynamic=True
            )
            device.keep(self)
        if pixels is not None:
            self.write(pixels)

    @property
    def width(self) -> int:
        """Width in pixels."""
        return self.size[0]

    @property
    def height(self) -> int:
        """Height in pixels."""
        return self.size[1]

    def write(self, pixels: np.ndarray) -> None:
        """Replace the image.

        pixels: (height, width) for grey, or (height, width, 3 or 4); uint8 from 0 to 255, or floating point
        from 0 to 1. A texture is grey or coloured for life.

        Raises:
            ValueError: The array has another shape.
        """
        expected = (self.height, self.width)
        grey = pixels.ndim == 2
        if (
            pixels.shape[:2] != expected
            or grey != (self._channels == 1)
            or (not grey and (pixels.ndim != 3 or pixels.shape[2] not in (3, 4)))
        ):
            wanted = expected if self._channels == 1 else (*expected, "3 or 4")
            raise ValueError(f"this texture takes pixels of shape {wanted}, got {pixels.shape}")
        if self.texture is None or self._staging is None:
            return
        if np.issubdtype(pixels.dtype, np.floating):
            pixels = np.clip(np.nan_to_num(pixels) * 255.0 + 0.5, 0.0, 255.0).astype(np.uint8)
        elif pixels.dtype == np.bool_:
            pixels = pixels.astype(np.uint8) * 255
        if not grey and pixels.shape[2] == 3:
            opaque = np.full((*expected, 4), 255, np.uint8)
            opaque[..., :3] = pixels
            pixels = opaque
        self._staging.orphan()
        self._staging.write(np.ascontiguousarray(pixels, np.uint8))
        self.texture.write(self._staging, alignment=1)
        self._reduce()

    def write_rows(self, top: int, pixels: np.ndarray) -> None:
        """Replace some rows of an RGBA texture: `pixels`, (rows, width, 4) uint8, from row `top` on.

        Raises:
            ValueError: The array has another shape or type, or the texture has no such rows.
        """
        rows = pixels.shape[0]
        if pixels.shape != (rows, self.width, 4) or self._channels != 4 or pixels.dtype != np.uint8:
            raise ValueError(f"rows of this texture are (n, {self.width}, 4) uint8, got {pixels.shape}")
        if top < 0 or top + rows > self.height:
            raise ValueError(f"rows {top} to {top + rows} are not all in a picture of {self.height}")
        if self.texture is not None:
            strip = np.ascontiguousarray(pixels)
            self.texture.write(strip, viewport=(0, top, self.width, rows), alignment=1)
            if top + rows == self.height:
                self._reduce()

    def _reduce(self) -> None:
        """Build mipmaps and use them for minification, if the texture was created with them."""
        if self._mipmaps and self.texture is not None:
            self.texture.build_mipmaps()
            near = moderngl.LINEAR if self.smooth else moderngl.NEAREST
            self.texture.filter = (moderngl.LINEAR_MIPMAP_LINEAR, near)

    def release(self) -> None:
        """Free the GPU memory; drawing with it afterwards draws nothing."""
        if self.texture is not None and self._staging is not None:
            self.texture.release()
            self._staging.release()
            self.texture = self._staging = None
        self._device.forget(self)


class RenderTarget:
    """An RGBA texture with its framebuffer. Row 0 is at the bottom, as in OpenGL.

    Attributes:
        size: Width and height in pixels.
        smooth: Whether it is interpolated between pixels.
        bottom_up: Whether row 0 is the lowest: always.
        texture: The moderngl texture; None without OpenGL.
        framebuffer: The moderngl framebuffer; None without OpenGL.
    """

    def __init__(self, device: GraphicsDevice, size: tuple[int, int], smooth: bool = True) -> None:
        self.size = (max(1, int(size[0])), max(1, int(size[1])))
        self.smooth = smooth
        self.bottom_up = True
        self.texture: moderngl.Texture | None = None
        self.framebuffer: moderngl.Framebuffer | None = None
        self._device = device
        self._layered: dict[int, tuple[moderngl.Framebuffer, list[moderngl.Renderbuffer]]] = {}
        if device.ctx is not None:
            self.texture = device.ctx.texture(self.size, 4)
            self.texture.repeat_x = self.texture.repeat_y = False
            kind = moderngl.LINEAR if smooth else moderngl.NEAREST
            self.texture.filter = (kind, kind)
            self.framebuffer = device.ctx.framebuffer(color_attachments=[self.texture])
            device.keep(self)

    def with_depth(self, samples: int = 0) -> moderngl.Framebuffer | None:
        """A framebuffer with a depth buffer, created on first use; `None` where there is no OpenGL.

        Without `samples` it draws into this very image; with them its colours are to be copied here.
        """
        ctx = self._device.ctx
        if ctx is None or self.texture is None:
            return None
        if samples not in self._layered:
            depth = ctx.depth_renderbuffer(self.size, samples=samples)
            colors = ctx.renderbuffer(self.size, 4, samples=samples) if samples else None
            made = ctx.framebuffer([self.texture if colors is None else colors], depth)
            self._layered[samples] = (made, [depth] if colors is None else [depth, colors])
        return self._layered[samples][0]

    def clear(self, rgba: tuple[int, int, int, int]) -> None:
        """Fill with one colour, channels from 0 to 255."""
        if self.framebuffer is not None:
            self._device.bind(self.framebuffer, moderngl.NOTHING)
            red, green, blue, alpha = (value / 255 for value in rgba)
            self.framebuffer.clear(red, green, blue, alpha)

    def read(self) -> np.ndarray:
        """Read the image as (height, width, 3) uint8, row 0 on top. Waits for the GPU."""
        if self.framebuffer is None:
            return np.zeros((self.size[1], self.size[0], 3), np.uint8)
        data = self.framebuffer.read(components=3, alignment=1)
        return np.frombuffer(data, np.uint8).reshape(self.size[1], self.size[0], 3)[::-1].copy()

    def release(self) -> None:
        """Free the GPU memory."""
        for framebuffer, attachments in self._layered.values():
            framebuffer.release()
            for attachment in attachments:
                attachment.release()
        self._layered.clear()
        if self.framebuffer is not None and self.texture is not None:
            self.framebuffer.release()
            self.texture.release()
            self.framebuffer = self.texture = None
        self._device.forget(self)


class Effect:
    """A fragment shader that runs over a whole image.

    The shader (GLSL 3.30) reads `uniform sampler2D source` at `in vec2 uv`, (0, 0) at the bottom left, and
    writes `out vec4 color`. Further uniforms are given by name to `apply`, images among them.
    """

    def __init__(self, device: GraphicsDevice, fragment: str) -> None:
        self._device = device
        self._program: moderngl.Program | None = None
        self._triangle: moderngl.VertexArray | None = None
        if device.ctx is not None:
            self._program = device.program(FULLSCREEN_VERTEX, fragment)
            self._triangle = device.ctx.vertex_array(self._program, [])
            if "source" in self._program:
                self._program["source"] = 0
            device.keep(self)

    def __contains__(self, name: str) -> bool:
        """True if the shader uses a uniform of that name; where nothing is drawn, none."""
        return self._program is not None and name in self._program

    def apply(
        self,
        source: RenderTarget | Texture,
        destination: RenderTarget | moderngl.Framebuffer,
        uniforms: Mapping[str, object] | None = None,
    ) -> None:
        """Write every pixel of `destination` from `source`."""
        ctx, program, triangle = self._device.ctx, self._program, self._triangle
        target = destination.framebuffer if isinstance(destination, RenderTarget) else destination
        if ctx is None or program is None or triangle is None or target is None or source.texture is None:
            return
        pictures: list[tuple[str, Texture | RenderTarget]] = []
        for name, value in (uniforms or {}).items():
            if name not in program:
                known = ", ".join(sorted(n for n in program if not n.startswith("gl_"))) or "none"
                raise GraphicsError(f"this effect has no uniform {name!r}; it has: {known}")
            if isinstance(value, Texture | RenderTarget):
                pictures.append((name, value))
            else:
                program[name] = value
        self._device.bind(target, moderngl.NOTHING)
        ctx.clear_samplers(0, 1 + len(pictures))
        for unit, (name, picture) in enumerate(pictures, start=1):
            program[name] = unit
            if picture.texture is not None:
                picture.texture.use(unit)
        source.texture.use(0)
        triangle.render(moderngl.TRIANGLES, vertices=3)

    def release(self) -> None:
        """Free the program."""
        if self._program is not None and self._triangle is not None:
            self._triangle.release()
            self._program.release()
            self._program = self._triangle = None
        self._device.forget(self)
