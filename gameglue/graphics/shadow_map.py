"""Shadow mapping: depths from the light, sampled by the mesh shader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import moderngl
import numpy as np
from pyglm import glm

from gameglue.graphics.camera3d import Camera3D
from gameglue.graphics.device import GraphicsDevice
from gameglue.graphics.mesh_list import Batch
from gameglue.graphics.mesh_store import MeshStore
from gameglue.graphics.shaders import SHADOW_FRAGMENT, SHADOW_VERTEX

SIZE: Final = 1024
UNIT: Final = 1
_DEEP: Final = 4.0
"""How many times as deep as it is wide the space is from which shadows may come."""


class ShadowMap:
    """The scene's depths along a light, as a texture; redrawn for each camera."""

    def __init__(self, device: GraphicsDevice) -> None:
        self._device = device
        self._program: moderngl.Program | None = None
        self._depths: moderngl.Texture | None = None
        self._framebuffer: moderngl.Framebuffer | None = None
        self._matrix = np.identity(4)
        self._step = 0.0

    def draw(
        self, store: MeshStore, batches: Sequence[Batch], camera: Camera3D, towards: np.ndarray, reach: float
    ) -> None:
        """Draw `batches` as seen along a light, around the point `reach` ahead of the camera."""
        ctx = self._device.ctx
        if ctx is None:
            return
        program = self._prepared(ctx)
        assert self._framebuffer is not None
        center = camera.transform.position + camera.transform.forward * float(reach)
        self._matrix, self._step = light_matrix(towards, center, reach), 2.0 * reach / SIZE
        ctx.depth_func, ctx.wireframe = "<=", False
        self._device.bind(self._framebuffer, moderngl.DEPTH_TEST)
        self._framebuffer.clear(depth=1.0)
        program["world_to_shadow"].write(np.ascontiguousarray(self._matrix.T, np.float32))  # type: ignore[union-attr]
        for batch in batches:
            store.draw(ctx, program, batch.kind.mesh, batch.instances)

    def use(self, program: moderngl.Program, light: int) -> None:
        """Bind the map and its uniforms for the mesh program."""
        if self._depths is None or self._device.ctx is None:
            return
        self._device.ctx.clear_samplers(UNIT, UNIT + 1)
        self._depths.use(UNIT)
        program["shadow_light"], program["shadow_step"] = light, self._step
        program["world_to_shadow"].write(np.ascontiguousarray(self._matrix.T, np.float32))  # type: ignore[union-attr]

    def _prepared(self, ctx: moderngl.Context) -> moderngl.Program:
        if self._program is None:
            self._program = self._device.program(SHADOW_VERTEX, SHADOW_FRAGMENT)
            self._depths = ctx.depth_texture((SIZE, SIZE))
            self._depths.compare_func = "<="
            self._depths.filter = (moderngl.LINEAR, moderngl.LINEAR)
            self._depths.repeat_x = self._depths.repeat_y = False
            self._framebuffer = ctx.framebuffer(depth_attachment=self._depths)
            self._device.keep(self)
        return self._program

    def release(self) -> None:
        """Free the texture and the program."""
        for part in (self._framebuffer, self._depths, self._program):
            if part is not None:
                part.release()
        self._framebuffer = self._depths = self._program = None
        self._device.forget(self)


def light_matrix(towards: np.ndarray, center: Sequence[float], reach: float) -> np.ndarray:
    """World to shadow map matrix, (4, 4): a box of size `reach` around `center`, seen from the light.

    It moves in whole texels only, so that the edges of shadows do not crawl when the camera moves.
    """
    direction = glm.dvec3(*(float(value) for value in towards))
    above = glm.dvec3(0, 0, 1) if abs(direction.y) > 0.99 else glm.dvec3(0, 1, 0)
    rotated: Any = glm.lookAt(glm.dvec3(0), -direction, above)
    middle: Any = rotated * glm.dvec3(*center)
    texel = 2.0 * reach / SIZE
    middle.x, middle.y = round(middle.x / texel) * texel, round(middle.y / texel) * texel
    deep = _DEEP * reach
    box = glm.dmat4(glm.orthoRH_NO(-reach, reach, -reach, reach, -deep, deep))
    return np.array(box * glm.translate(-middle) * rotated)
