"""3D particles on the GPU: one upload and one draw per system."""

from __future__ import annotations

from typing import Final

import moderngl
import numpy as np

from gameglue.graphics.camera3d import Camera3D
from gameglue.graphics.device import GraphicsDevice, RenderTarget
from gameglue.graphics.particles import ParticleSystem3D
from gameglue.graphics.shaders import PARTICLE_FRAGMENT, PARTICLE_VERTEX

_PARTICLE: Final = np.dtype([("place", "<f4", 3), ("form", "<f4", 2), ("color", "u1", 4)])
_LAYOUT: Final = "3f4 2f4 4f1 /i"
_FIRST_CAPACITY: Final = 1024


class Billboards:
    """Draws particle systems as squares that face the camera."""

    def __init__(self, device: GraphicsDevice) -> None:
        self._device = device
        self._program: moderngl.Program | None = None
        self._buffer: moderngl.Buffer | None = None
        self._array: moderngl.VertexArray | None = None
        self._capacity = _FIRST_CAPACITY

    def draw(
        self, system: ParticleSystem3D, clip: np.ndarray, camera: Camera3D, target: RenderTarget
    ) -> None:
        """Draw a system into the framebuffer that is bound; what does not add is drawn from back to front."""
        ctx = self._device.ctx
        count = len(system.particles)
        if ctx is None or not count:
            return
        program = self.prepare(ctx)
        self._write(system, camera)
        picture = system.texture
        texture = picture.texture if picture is not None and picture is not target else None
        program["textured"], program["adds"] = texture is not None, system.additive
        program["softness"] = min(max(system.softness, 0.0), 1.0)
        program["proportion"], program["flipped"] = 1.0, False
        if texture is not None and picture is not None:
            texture.use(0)
            program["proportion"], program["flipped"] = (
                picture.size[1] / picture.size[0],
                not picture.bottom_up,
            )
        program["world_to_clip"].write(np.ascontiguousarray(clip.T, np.float32))  # type: ignore[union-attr]
        program["right"], program["up"] = tuple(camera.transform.right), tuple(camera.transform.up)
        assert self._array is not None
        self._array.render(moderngl.TRIANGLE_STRIP, vertices=4, instances=count)

    def _write(self, system: ParticleSystem3D, camera: Camera3D) -> None:
        places, sizes, colors = system.instance_data()
        table = np.zeros(len(places), _PARTICLE)
        table["place"], table["form"][:, 0] = places, sizes
        table["form"][:, 1] = np.radians(system.particles["angle"])
        table["color"] = np.clip(np.rint(colors * 255.0), 0, 255)
        if not system.additive:
            ahead = np.array(camera.transform.forward, np.float32)
            table = table[np.argsort(-(places @ ahead), kind="stable")]
        while len(table) > self._capacity:
            self._capacity *= 2
        assert self._buffer is not None
        # Orphaned, so that the write does not wait for the GPU to finish drawing from the old content.
        self._buffer.orphan(self._capacity * _PARTICLE.itemsize)
        self._buffer.write(table)

    def prepare(self, ctx: moderngl.Context) -> moderngl.Program:
        """The program, which is created with its buffer on first use."""
        if self._program is None:
            self._program = self._device.program(PARTICLE_VERTEX, PARTICLE_FRAGMENT)
            self._program["picture"] = 0
            self._buffer = ctx.buffer(reserve=self._capacity * _PARTICLE.itemsize, dynamic=True)
            content = [(self._buffer, _LAYOUT, "in_place", "in_form", "in_color")]
            self._array = ctx.vertex_array(self._program, content)
            self._device.keep(self)
        return self._program

    def release(self) -> None:
        """Free the program and the buffer."""
        for part in (self._array, self._buffer, self._program):
            if part is not None:
                part.release()
        self._array = self._buffer = self._program = None
        self._device.forget(self)
