"""`CameraRenderer`: draws a scene with its cameras, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gameglue.graphics.camera import Camera, Camera2D, Renderer, world_view
from gameglue.graphics.camera3d import Camera3D, MeshRenderer
from gameglue.graphics.canvas import Canvas
from gameglue.graphics.colors import parse_color
from gameglue.graphics.device import RenderTarget
from gameglue.graphics.lights import AmbientLight, DirectionalLight, Lights
from gameglue.graphics.mesh_pipeline import MeshList, MeshPipeline
from gameglue.graphics.particles import ParticleSystem3D
from gameglue.host.lifecycle import Lifecycle
from gameglue.scripting.behaviour import MonoBehaviour
from gameglue.scripting.dispatch import Wrap

Guard = Callable[..., bool]
"""Calls a component's function with arguments; reports what it raises, and returns whether it did not."""


class CameraRenderer:
    """Draws what lives in the frame loop: meshes for each `Camera3D`, renderers for each `Camera2D`."""

    def __init__(self, canvas: Canvas, meshes: MeshPipeline, lifecycle: Lifecycle, guarded: Guard) -> None:
        self._canvas = canvas
        self._pipeline = meshes
        self._guarded = guarded
        self._cameras = lifecycle.watch(Camera)
        self._renderers = lifecycle.watch(Renderer)
        self._meshes = lifecycle.watch(MeshRenderer)
        self._particles = lifecycle.watch(ParticleSystem3D)
        self._suns = lifecycle.watch(DirectionalLight)
        self._ambients = lifecycle.watch(AmbientLight)

    def draw(self, picture: RenderTarget, wrap: Wrap | None) -> None:
        """Draw the cameras with own targets first, then those of `picture`, by depth.

        At equal depth three dimensions come before two.
        """
        renderers = sorted(self._renderers.values(), key=lambda renderer: renderer.order)
        cameras = sorted(
            self._cameras.values(), key=lambda c: (c.target is None, c.depth, isinstance(c, Camera2D))
        )
        lights: Lights | None = None
        for camera in cameras:
            target = picture if camera.target is None else camera.target
            if isinstance(camera, Camera2D):
                self._draw_flat(camera, target, renderers, wrap)
            elif isinstance(camera, Camera3D):
                lights = lights or Lights.of(self._suns.values(), self._ambients.values())
                self._draw_deep(camera, target, lights, wrap)
        if not any(isinstance(camera, Camera2D) for camera in cameras):
            self._canvas.size = picture.size
            self._canvas.view = world_view((0.0, 0.0), 10.0, 0.0, picture.size)
            self._draw_renderers(renderers, picture, wrap)

    def _draw_flat(
        self, camera: Camera2D, target: RenderTarget, renderers: Sequence[Renderer], wrap: Wrap | None
    ) -> None:
        if camera.background is not None and not self._guarded(camera, "draw", _clear, camera, target):
            return
        self._canvas.size = target.size
        self._canvas.view = camera.view(target.size)
        self._draw_renderers([r for r in renderers if _shows(camera, r)], target, wrap)

    def _draw_renderers(self, renderers: Sequence[Renderer], target: RenderTarget, wrap: Wrap | None) -> None:
        for renderer in renderers:
            if renderer.is_active_and_enabled:
                draw = renderer.draw if wrap is None else wrap(renderer, "draw", renderer.draw)
                self._guarded(renderer, "draw", draw, self._canvas)
        self._canvas.flush(target)

    def _draw_deep(self, camera: Camera3D, target: RenderTarget, lights: Lights, wrap: Wrap | None) -> None:
        meshes = MeshList()
        for renderer in tuple(self._meshes.values()):
            if _shows(camera, renderer):
                self._guarded(renderer, "draw", meshes.add, renderer)
        draw: Callable[..., object] = self._pipeline.draw
        if wrap is not None:
            draw = wrap(camera, "draw", draw)
        particles = [p for p in self._particles.values() if _shows(camera, p)]
        particles.sort(key=lambda system: system.order)
        self._guarded(camera, "draw", draw, meshes, particles, target, camera, lights)


def _clear(camera: Camera, target: RenderTarget) -> None:
    assert camera.background is not None
    target.clear(parse_color(camera.background))


def _shows(camera: Camera, component: MonoBehaviour) -> bool:
    return camera.layers is None or component.game_object.layer in camera.layers
