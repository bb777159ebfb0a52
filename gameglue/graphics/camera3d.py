"""3D components: `Camera3D` and `MeshRenderer`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from math import inf
from typing import Annotated, Any, Literal

import numpy as np
from pyglm import glm

from gameglue.errors import GraphicsError
from gameglue.graphics.batch import Picture
from gameglue.graphics.camera import Camera
from gameglue.graphics.colors import Color
from gameglue.graphics.mesh import Mesh
from gameglue.scene.vector import Vec3
from gameglue.scripting.behaviour import MonoBehaviour
from gameglue.scripting.fields import Range


class Camera3D(Camera):
    """Looks from its object along `forward` (-z, with y up) and draws the scene's meshes."""

    projection: Literal["perspective", "orthographic"] = "perspective"
    """With vanishing points, or with parallel lines."""
    field_of_view: Annotated[float, Range(0.0, 180.0, "degrees", exclusive=True)] = 60.0
    """Angle from the bottom to the top of a perspective image."""
    height: Annotated[float, Range(0.0, inf, "units", exclusive=True)] = 10.0
    """World units from the bottom to the top of an orthographic image."""
    near: Annotated[float, Range(unit="units")] = 0.1
    """What is nearer than this is not drawn; above 0 for perspective."""
    far: Annotated[float, Range(unit="units")] = 1000.0
    """What is farther than this is not drawn; above `near`."""
    multisampling: bool | None = None
    """Draw with four samples a pixel where the driver can; `None` does so where a graphics card draws."""

    def view_matrix(self) -> np.ndarray:
        """World to camera matrix, (4, 4) float64 for column vectors; the object's scale is ignored."""
        return np.array(self._view())

    def projection_matrix(self) -> np.ndarray:
        """Camera to clip space matrix, (4, 4) float64; depth from -1 to 1."""
        return np.array(self._projection())

    def world_to_screen(self, point: Iterable[float]) -> tuple[float, float] | None:
        """The pixel, from the top left, that shows a point; `None` if it is behind the camera."""
        x, y, z = Vec3.of(point)
        clip = self._projection() * self._view() * glm.dvec4(x, y, z, 1.0)
        if clip.w <= 0.0:
            return None
        width, height = self.size
        return (clip.x / clip.w + 1) / 2 * width, (1 - clip.y / clip.w) / 2 * height

    def screen_to_ray(self, x: float, y: float) -> tuple[Vec3, Vec3]:
        """The ray through a pixel: its origin on the near plane, and its direction."""
        width, height = self.size
        across, up = x / width * 2 - 1, 1 - y / height * 2
        back: Any = glm.inverse(self._projection() * self._view())
        ends: list[Any] = [back * glm.dvec4(across, up, depth, 1.0) for depth in (-1.0, 1.0)]
        near, far = (Vec3(end.x / end.w, end.y / end.w, end.z / end.w) for end in ends)
        return near, (far - near).normalized()

    def shader_uniforms(self) -> tuple[np.ndarray, tuple[float, float, float, float]]:
        """Uniforms for shaders: world to clip space, (4, 4) float64, and the homogeneous eye position.

        The eye of an orthographic camera is the direction towards it.

        Raises:
            GraphicsError: The fields make no projection.
        """
        eye, towards = self.transform.position, -self.transform.forward
        seen_from = (*eye, 1.0) if self.projection == "perspective" else (*towards, 0.0)
        return np.array(self._projection() * self._view()), seen_from

    # PyGLM's stubs take products of matrices for smaller ones, hence `Any`.
    def _view(self) -> Any:
        transform = self.transform
        placed = glm.translate(glm.dvec3(*transform.position))
        return glm.inverse(placed * glm.mat4_cast(glm.dquat(*transform.rotation)))

    def _projection(self) -> Any:
        width, height = self.size
        aspect = width / height
        if self.projection == "orthographic":
            if not (self.height > 0.0 and self.far > self.near):
                raise GraphicsError(
                    f"an orthographic camera needs height > 0 and far > near, got height={self.height}, "
                    f"near={self.near}, far={self.far}"
                )
            up = self.height / 2
            return glm.dmat4(glm.orthoRH_NO(-up * aspect, up * aspect, -up, up, self.near, self.far))
        if not (0.0 < self.field_of_view < 180.0 and 0.0 < self.near < self.far):
            raise GraphicsError(
                "a perspective camera needs 0 < field_of_view < 180 degrees and 0 < near < far, got "
                f"field_of_view={self.field_of_view}, near={self.near}, far={self.far}"
            )
        angle = math.radians(self.field_of_view)
        return glm.dmat4(glm.perspectiveRH_NO(angle, aspect, self.near, self.far))


class MeshRenderer(MonoBehaviour):
    """Shows a mesh at the object's position, in the scene's light.

    Objects with the same mesh and texture are drawn in one call.
    """

    mesh: Mesh
    """The surface; by name, too: `"crate.obj"`, `"plane(8, 8)"`."""
    color: Color = "white"
    """Multiplies the texture; an alpha below 1 shows what is behind."""
    texture: Picture | None = None
    """The image on the surface."""
    emission: Color = "black"
    """Light that the surface emits, independent of the light that falls on it."""
    specular: Annotated[float, Range(0.0, 1.0)] = 0.0
    """Strength of highlights."""
    double_sided: bool = False
    """Also draw the backs of triangles."""
