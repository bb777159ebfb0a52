"""Instanced mesh rendering: copies of each mesh are drawn in one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import moderngl
import numpy as np

from gameglue.graphics.batch import OVER
from gameglue.graphics.camera3d import Camera3D
from gameglue.graphics.colors import parse_color
from gameglue.graphics.device import GraphicsDevice, RenderTarget
from gameglue.graphics.lights import MAX_LIGHTS, Lights
from gameglue.graphics.mesh_list import Batch, MeshList
from gameglue.graphics.mesh_store import MeshStore
from gameglue.graphics.particle_pipeline import Billboards
from gameglue.graphics.particles import ParticleSystem3D
from gameglue.graphics.shaders import MESH_VERTEX, mesh_fragment
from gameglue.graphics.shadow_map import UNIT, ShadowMap


class MeshPipeline:
    """Draws lists of meshes into render targets, and keeps the meshes on the GPU."""

    def __init__(self, device: GraphicsDevice) -> None:
        self._device = device
        self.store = MeshStore()
        self._programs: dict[tuple[bool, bool], moderngl.Program] = {}
        """By whether they draw shadows and highlights."""
        self._billboards = Billboards(device)
        self._shadows = ShadowMap(device)

    def _prepared(self, ctx: moderngl.Context, shadows: bool, highlights: bool) -> moderngl.Program:
        """The program; compiled for the first `Camera3D`, as a game in two dimensions needs none.

        A graphics card has one for all, so that none is compiled in the midst of a game.
        """
        kind = (shadows, highlights) if self._device.is_software else (True, True)
        if kind not in self._programs:
            if not self._programs:
                self._device.keep(self)
                # Now too, not in the midst of a game with its first sparks.
                self._billboards.prepare(ctx)
            fragment = mesh_fragment(shadows=kind[0], highlights=kind[1])
            program = self._programs[kind] = self._device.program(MESH_VERTEX, fragment)
            program["picture"] = 0
            if kind[0]:
                program["shadow_map"] = UNIT
        return self._programs[kind]

    def draw(
        self,
        meshes: MeshList,
        particles: Sequence[ParticleSystem3D],
        target: RenderTarget,
        camera: Camera3D,
        lights: Lights,
    ) -> None:
        """Draw `meshes` and `particles` as `camera` sees them, on its background, if it has one."""
        clip, eye = camera.shader_uniforms()
        ctx = self._device.ctx
        smooth = camera.multisampling if camera.multisampling is not None else not self._device.is_software
        samples = self._device.smooth_samples if smooth else 0
        layered = target.with_depth(samples)
        if ctx is None or layered is None:
            return
        self.store.drop_gone()
        opaque, translucent = meshes.opaque(), meshes.translucent(clip)
        shadow = lights.shadow
        is_shiny = any(batch.instances["glow"][:, 3].any() for batch in (*opaque, *translucent))
        program = self._prepared(ctx, shadow is not None, is_shiny)
        if shadow is None:
            if "shadow_light" in program:
                program["shadow_light"] = -1
        else:
            towards = lights.towards[shadow.light]
            self._shadows.draw(self.store, opaque, camera, towards, shadow.reach)
            self._shadows.use(program, shadow.light)
        self._begin(ctx, target, layered, camera)
        self._set_uniforms(program, clip, eye, lights)
        program["blended"] = False
        for batch in opaque:
            self._draw_batch(ctx, program, batch, target)
        if translucent or particles:
            program["blended"] = True
            layered.depth_mask = False
            self._device.bind(layered, moderngl.DEPTH_TEST | moderngl.BLEND)
            for batch in translucent:
                self._draw_batch(ctx, program, batch, target)
            ctx.disable(moderngl.CULL_FACE)
            for system in particles:
                self._billboards.draw(system, clip, camera, target)
            layered.depth_mask = True
        ctx.cull_face, ctx.front_face = "back", "ccw"
        assert target.framebuffer is not None
        if samples:
            self._device.resolve(layered, target.framebuffer)
        # As drawing in two dimensions leaves it.
        self._device.bind(target.framebuffer, moderngl.BLEND)

    def _begin(
        self, ctx: moderngl.Context, target: RenderTarget, layered: moderngl.Framebuffer, camera: Camera3D
    ) -> None:
        blending: Any = ctx  # moderngl's stubs know only the forms with two values.
        blending.blend_equation = moderngl.FUNC_ADD
        blending.blend_func = OVER
        ctx.depth_func, ctx.wireframe = "<=", False
        ctx.clear_samplers(0, 1)
        if camera.background is None and layered.samples and target.framebuffer is not None:
            self._device.resolve(target.framebuffer, layered)
        self._device.bind(layered, moderngl.DEPTH_TEST)
        if camera.background is None:
            layered.color_mask = (False, False, False, False)
            layered.clear(depth=1.0)
            layered.color_mask = (True, True, True, True)
        else:
            red, green, blue, alpha = (value / 255 for value in parse_color(camera.background))
            layered.clear(red, green, blue, alpha, depth=1.0)

    def _set_uniforms(
        self,
        program: moderngl.Program,
        clip: np.ndarray,
        eye: tuple[float, float, float, float],
        lights: Lights,
    ) -> None:
        """Everything that is the same for all objects of this camera."""
        table = np.zeros((2, MAX_LIGHTS, 3), np.float32)
        count = len(lights.towards)
        table[0, :count], table[1, :count] = lights.towards, lights.colors
        program["world_to_clip"].write(np.ascontiguousarray(clip.T, np.float32))  # type: ignore[union-attr]
        program["light_towards"].write(table[0])  # type: ignore[union-attr]
        program["light_color"].write(table[1])  # type: ignore[union-attr]
        program["light_count"] = count
        program["sky"], program["ground"] = tuple(lights.sky), tuple(lights.ground)
        if "eye" in program:  # only highlights need it
            program["eye"] = eye

    def _draw_batch(
        self, ctx: moderngl.Context, program: moderngl.Program, batch: Batch, target: RenderTarget
    ) -> None:
        kind = batch.kind
        picture = kind.picture
        # An image cannot be looked at while it is drawn into: a mirror is plain in its own image.
        texture = picture.texture if picture is not None and picture is not target else None
        program["textured"] = texture is not None
        if texture is not None:
            texture.use(0)
            program["flipped"] = not (picture is not None and picture.bottom_up)
        instances = batch.instances
        # Where a scale is negative, the triangles turn the other way round.
        mirrored: np.ndarray = np.linalg.det(instances["rows"][:, :, :3]) < 0.0
        if kind.double_sided:
            ctx.disable(moderngl.CULL_FACE)
        else:
            ctx.enable(moderngl.CULL_FACE)
            ctx.cull_face = "back"
        for winding, chosen in (("ccw", ~mirrored), ("cw", mirrored)):
            if chosen.any():
                ctx.front_face = winding
                self.store.draw(ctx, program, kind.mesh, instances[chosen])

    def release(self) -> None:
        """Free the programs and every mesh."""
        self.store.release()
        for program in self._programs.values():
            program.release()
        self._programs.clear()
        self._device.forget(self)
