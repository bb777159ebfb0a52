"""Meshes on the GPU: copies of each are collected and drawn in one call, with one write of their places."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import moderngl
import numpy as np
from pyglm import glm

from gameglue.graphics.batch import OVER, Picture
from gameglue.graphics.camera3d import Camera3D, MeshRenderer
from gameglue.graphics.colors import parse_color
from gameglue.graphics.device import GraphicsDevice, RenderTarget
from gameglue.graphics.lights import MAX_LIGHTS, Lights
from gameglue.graphics.mesh import Mesh
from gameglue.graphics.particle_pipeline import Billboards
from gameglue.graphics.particles import ParticleSystem3D
from gameglue.graphics.shaders import MESH_FRAGMENT, MESH_VERTEX

_INSTANCE: Final = np.dtype(
    [
        ("rows", "<f4", (3, 4)),  # of the matrix from the mesh to the world
        ("color", "u1", 4),
        ("glow", "u1", 4),  # emission, and the strength of highlights
    ]
)
_VERTEX_LAYOUT: Final = "3f4 3f4 2f4"
_INSTANCE_LAYOUT: Final = "4f4 4f4 4f4 4f1 4f1 /i"
_FIRST_CAPACITY: Final = 16


@dataclass(frozen=True)
class _Kind:
    """What objects must share to be drawn in one call."""

    mesh: Mesh
    picture: Picture | None
    double_sided: bool


@dataclass
class _Batch:
    """Objects of one kind: their matrices (PyGLM's), and colour and glow as eight bytes."""

    kind: _Kind
    matrices: list[Any] = field(default_factory=list)
    colors: list[tuple[int, ...]] = field(default_factory=list)

    def instances(self) -> np.ndarray:
        """(n,) of dtype `_INSTANCE`."""
        made = np.zeros(len(self.matrices), _INSTANCE)
        made["rows"] = np.array(glm.array(self.matrices))[:, :3]
        colors = np.array(self.colors, np.uint8)
        made["color"], made["glow"] = colors[:, :4], colors[:, 4:]
        return made


class MeshList:
    """The meshes that one camera is to draw."""

    def __init__(self) -> None:
        self._opaque: dict[tuple[int, int, bool], _Batch] = {}
        self._clear: list[tuple[_Kind, Any, tuple[int, ...]]] = []

    def __len__(self) -> int:
        return len(self._opaque) + len(self._clear)

    def add(self, renderer: MeshRenderer) -> None:
        """Append what `renderer` shows."""
        mesh, picture, double_sided = renderer.mesh, renderer.texture, renderer.double_sided
        color, glow = parse_color(renderer.color), parse_color(renderer.emission)
        shine = min(round(renderer.shine * 255), 255) if renderer.shine > 0.0 else 0
        matrix, values = renderer.transform.world_matrix(), (*color, *glow[:3], shine)
        if color[3] < 255:
            self._clear.append((_Kind(mesh, picture, double_sided), matrix, values))
            return
        key = (id(mesh), id(picture), double_sided)
        batch = self._opaque.get(key)
        if batch is None:
            batch = self._opaque[key] = _Batch(_Kind(mesh, picture, double_sided))
        batch.matrices.append(matrix)
        batch.colors.append(values)

    def opaque(self) -> list[_Batch]:
        """What hides what lies behind it, in any order."""
        return list(self._opaque.values())

    def translucent(self, clip: np.ndarray) -> list[_Batch]:
        """What lets others through, the farthest first; `clip` is the map from the world to clip space."""
        batches: list[_Batch] = []
        # In perspective w grows with the distance, without it z does; behind each other both do.
        away = clip[3] if np.abs(clip[3, :3]).any() else clip[2]
        for kind, matrix, values in sorted(self._clear, key=lambda item: -float(away @ item[1][3])):
            if not batches or batches[-1].kind != kind:
                batches.append(_Batch(kind))
            batches[-1].matrices.append(matrix)
            batches[-1].colors.append(values)
        return batches


class _Stored:
    """One mesh on the GPU, with room for the instances of one call."""

    def __init__(self, ctx: moderngl.Context, program: moderngl.Program, mesh: Mesh) -> None:
        self.version = mesh.version
        self.capacity = _FIRST_CAPACITY
        self.vertices = ctx.buffer(mesh.vertices)
        self.indices = ctx.buffer(mesh.triangles) if len(mesh.triangles) else None
        self.instances = ctx.buffer(reserve=self.capacity * _INSTANCE.itemsize, dynamic=True)
        content = [
            (self.vertices, _VERTEX_LAYOUT, "in_position", "in_normal", "in_uv"),
            (self.instances, _INSTANCE_LAYOUT, "in_x", "in_y", "in_z", "in_color", "in_glow"),
        ]
        self.array = ctx.vertex_array(program, content, self.indices)

    def follow(self, mesh: Mesh) -> None:
        """Take up vertices that were moved."""
        if self.version != mesh.version:
            self.version = mesh.version
            self.vertices.orphan()
            self.vertices.write(mesh.vertices)

    def draw(self, instances: np.ndarray) -> None:
        """One call for all `instances`."""
        if self.indices is None:
            return
        while len(instances) > self.capacity:
            self.capacity *= 2
        # Orphaned, so that the write does not wait for the GPU to finish drawing from the old content.
        self.instances.orphan(self.capacity * _INSTANCE.itemsize)
        self.instances.write(instances)
        self.array.render(moderngl.TRIANGLES, instances=len(instances))

    def release(self) -> None:
        """Free the buffers."""
        for part in (self.array, self.vertices, self.instances, self.indices):
            if part is not None:
                part.release()


class MeshPipeline:
    """Draws lists of meshes into render targets, and keeps the meshes on the GPU."""

    def __init__(self, device: GraphicsDevice) -> None:
        self._device = device
        self._stored: dict[int, _Stored] = {}
        self._alive: dict[int, weakref.ref[Mesh]] = {}
        self._gone: list[int] = []
        self._program: moderngl.Program | None = None
        self._billboards = Billboards(device)

    def _prepared(self, ctx: moderngl.Context) -> moderngl.Program:
        """The program; compiled for the first `Camera3D`, as a game in two dimensions needs none."""
        if self._program is None:
            self._program = self._device.program(MESH_VERTEX, MESH_FRAGMENT)
            self._program["picture"] = 0
            self._device.keep(self)
            # Now too, not in the midst of a game with its first sparks.
            self._billboards.prepare(ctx)
        return self._program

    def draw(
        self,
        meshes: MeshList,
        particles: Sequence[ParticleSystem3D],
        target: RenderTarget,
        camera: Camera3D,
        lights: Lights,
    ) -> None:
        """Draw `meshes` and `particles` as `camera` sees them, on its background, if it has one."""
        clip, eye = camera.look()
        ctx = self._device.ctx
        samples = self._device.smooth_samples if camera.smooth_edges else 0
        layered = target.with_depth(samples)
        if ctx is None or layered is None:
            return
        program = self._prepared(ctx)
        self._drop_gone()
        self._begin(ctx, target, layered, camera)
        self._set_uniforms(program, clip, eye, lights)
        program["blended"] = False
        for batch in meshes.opaque():
            self._draw_batch(ctx, program, batch, target)
        translucent = meshes.translucent(clip)
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
        program["eye"] = eye

    def _draw_batch(
        self, ctx: moderngl.Context, program: moderngl.Program, batch: _Batch, target: RenderTarget
    ) -> None:
        kind = batch.kind
        picture = kind.picture
        # A picture cannot be looked at while it is drawn into: a mirror is plain in its own picture.
        texture = picture.texture if picture is not None and picture is not target else None
        program["textured"] = texture is not None
        if texture is not None:
            texture.use(0)
            program["flipped"] = not (picture is not None and picture.bottom_up)
        stored = self._store(ctx, program, kind.mesh)
        instances = batch.instances()
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
                stored.draw(instances[chosen])

    def _store(self, ctx: moderngl.Context, program: moderngl.Program, mesh: Mesh) -> _Stored:
        key = id(mesh)
        if key not in self._stored:
            self._stored[key] = _Stored(ctx, program, mesh)
            self._alive[key] = weakref.ref(mesh, lambda _, key=key: self._gone.append(key))  # type: ignore[misc]
        stored = self._stored[key]
        stored.follow(mesh)
        return stored

    def _drop_gone(self) -> None:
        """Free what belonged to meshes that nobody holds any more."""
        while self._gone:
            key = self._gone.pop()
            self._alive.pop(key, None)
            stored = self._stored.pop(key, None)
            if stored is not None:
                stored.release()

    def release(self) -> None:
        """Free the program and every mesh."""
        for stored in self._stored.values():
            stored.release()
        self._stored.clear()
        self._alive.clear()
        if self._program is not None:
            self._program.release()
            self._program = None
        self._device.forget(self)
