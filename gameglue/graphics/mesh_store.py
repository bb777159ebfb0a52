"""GPU copies of meshes, kept while the game references them."""

from __future__ import annotations

import weakref
from typing import Final

import moderngl
import numpy as np

from gameglue.graphics.mesh import Mesh
from gameglue.graphics.mesh_list import INSTANCE

_WHOLE: Final = (("3f4 3f4 2f4", "in_position", "in_normal", "in_uv"), (
    "4f4 4f4 4f4 4f1 4f1 /i", "in_x", "in_y", "in_z", "in_color", "in_glow",
))  # fmt: skip
_PLACES: Final = (("3f4 5x4", "in_position"), ("4f4 4f4 4f4 8x1 /i", "in_x", "in_y", "in_z"))
_FIRST_CAPACITY: Final = 16


class _Stored:
    """One mesh, with room for the instances of one call."""

    def __init__(self, ctx: moderngl.Context, mesh: Mesh) -> None:
        self.version = mesh.version
        self.capacity = _FIRST_CAPACITY
        self.vertices = ctx.buffer(mesh.vertices)
        self.indices = ctx.buffer(mesh.triangles) if len(mesh.triangles) else None
        self.instances = ctx.buffer(reserve=self.capacity * INSTANCE.itemsize, dynamic=True)
        self.arrays: dict[int, moderngl.VertexArray] = {}

    def follow(self, mesh: Mesh) -> None:
        """Upload changed vertices."""
        if self.version != mesh.version:
            self.version = mesh.version
            self.vertices.orphan()
            self.vertices.write(mesh.vertices)

    def array(self, ctx: moderngl.Context, program: moderngl.Program) -> moderngl.VertexArray:
        """The vertex array for a program: all attributes, or positions only."""
        if program.glo not in self.arrays:
            vertex, instance = _WHOLE if "in_color" in program else _PLACES
            content = [(self.vertices, *vertex), (self.instances, *instance)]
            self.arrays[program.glo] = ctx.vertex_array(program, content, self.indices)
        return self.arrays[program.glo]

    def release(self) -> None:
        """Free the buffers."""
        for part in (*self.arrays.values(), self.vertices, self.instances, self.indices):
            if part is not None:
                part.release()


class MeshStore:
    """The meshes of one context."""

    def __init__(self) -> None:
        self._stored: dict[int, _Stored] = {}
        self._alive: dict[int, weakref.ref[Mesh]] = {}
        self._gone: list[int] = []

    def __len__(self) -> int:
        return len(self._stored)

    def draw(
        self, ctx: moderngl.Context, program: moderngl.Program, mesh: Mesh, instances: np.ndarray
    ) -> None:
        """Draw all `instances`, of dtype `INSTANCE`, in one call."""
        key = id(mesh)
        if key not in self._stored:
            self._stored[key] = _Stored(ctx, mesh)
            self._alive[key] = weakref.ref(mesh, lambda _, key=key: self._gone.append(key))  # type: ignore[misc]
        stored = self._stored[key]
        if stored.indices is None:
            return
        stored.follow(mesh)
        while len(instances) > stored.capacity:
            stored.capacity *= 2
        # Orphaned, so that the write does not wait for the GPU to finish drawing from the old content.
        stored.instances.orphan(stored.capacity * INSTANCE.itemsize)
        stored.instances.write(instances)
        stored.array(ctx, program).render(moderngl.TRIANGLES, instances=len(instances))

    def drop_gone(self) -> None:
        """Free the GPU memory of meshes that were dropped."""
        while self._gone:
            key = self._gone.pop()
            self._alive.pop(key, None)
            stored = self._stored.pop(key, None)
            if stored is not None:
                stored.release()

    def release(self) -> None:
        """Free all."""
        for stored in self._stored.values():
            stored.release()
        self._stored.clear()
        self._alive.clear()
