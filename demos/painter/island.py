"""The 3D scene: an island with a lighthouse, trees, houses and balloons, and an orbiting camera."""

from __future__ import annotations

import math

import numpy as np

from gameglue import (
    AmbientLight,
    App,
    Camera3D,
    DirectionalLight,
    GameObject,
    Mesh,
    MeshRenderer,
    MonoBehaviour,
    Texture,
)

Place = tuple[float, float, float]
Parent = GameObject | None


class Orbit(MonoBehaviour):
    """Moves its object around the island at a height; `looks` turns it to the middle."""

    away: float = 11.0
    height: float = 4.0
    speed: float = 12.0
    """Degrees a second."""
    angle: float = 0.0
    bob: float = 0.0
    looks: bool = False

    def update(self) -> None:
        """Move on."""
        turn = math.radians(self.angle + self.speed * self.time.time)
        lift = self.bob * math.sin(1.3 * self.time.time + self.angle)
        self.transform.position = (self.away * math.sin(turn), self.height + lift, self.away * math.cos(turn))
        if self.looks:
            self.transform.look_at((0.0, 1.5, 0.0), up=(0.0, 1.0, 0.0))


def _blotches(app: App, rng: np.random.Generator) -> Texture:
    """A texture of soft light and dark patches, in which the network finds brush strokes."""
    coarse = rng.uniform(0.0, 1.0, (12, 12, 1)).repeat(8, axis=0).repeat(8, axis=1)
    for axis in (0, 1):
        coarse = np.mean([np.roll(coarse, shift, axis) for shift in range(-3, 4)], axis=0)
    return app.graphics.texture(np.repeat(0.62 + 0.38 * coarse, 3, axis=2))


class _Builder:
    """Adds coloured meshes to the scene."""

    def __init__(self, app: App) -> None:
        self.scene = app.scene
        self.rough = _blotches(app, app.random)
        self.ball, self.box = Mesh.sphere(0.5, segments=20, rings=12), Mesh.box()
        self.tube, self.cone = Mesh.cylinder(segments=20), Mesh.cylinder(top=0.0, segments=20)

    def put(
        self, mesh: Mesh, at: Place, size: Place | float, color: str, on: Parent = None, glow: str = "black"
    ) -> GameObject:
        """Add a mesh, as a child of `on` if given."""
        made = self.scene.create("thing", position=at, scale=size, parent=on)
        made.add_component(MeshRenderer, mesh=mesh, color=color, texture=self.rough, emission=glow)
        return made

    def tree(self, x: float, z: float, size: float, color: str) -> None:
        self.put(self.tube, (x, 0.5 * size, z), (0.22 * size, size, 0.22 * size), "#7a4a2b")
        self.put(self.ball, (x, 1.35 * size, z), 1.25 * size, color)
        self.put(self.ball, (x + 0.35 * size, 1.0 * size, z + 0.2), 0.8 * size, color)

    def house(self, x: float, z: float, turn: float, wall: str, roof: str) -> None:
        home = self.scene.create("house", position=(x, 0.3, z))
        home.transform.rotate(turn, (0.0, 1.0, 0.0))
        self.put(self.box, (0, 0.45, 0), (1.3, 0.9, 1.0), wall, home)
        peak = Mesh.cylinder(0.72, 0.7, top=0.0, segments=4)
        top = self.put(peak, (0, 1.25, 0), (1.35, 1.0, 1.1), roof, home)
        top.transform.rotate(45.0, (0.0, 1.0, 0.0))
        self.put(self.box, (0, 0.3, 0.5), (0.28, 0.6, 0.08), "#5a3320", home)
        for side in (-0.42, 0.42):
            self.put(self.box, (side, 0.55, 0.5), (0.26, 0.26, 0.06), "#ffe9a0", home, "#806020")

    def balloon(self, angle: float, color: str, belt: str, height: float) -> None:
        basket = self.scene.create("balloon")
        basket.add_component(Orbit, angle=angle, away=4.6, height=height, speed=-9.0, bob=0.35)
        self.put(self.ball, (0, 1.2, 0), (1.5, 1.7, 1.5), color, basket)
        self.put(Mesh.torus(0.74, 0.09, segments=24, sides=8), (0, 1.2, 0), 1.0, belt, basket)
        self.put(self.box, (0, 0, 0), (0.36, 0.3, 0.36), "#8a5a30", basket)


def build_island(app: App) -> Camera3D:
    """Create the scene and return its camera."""
    build, rng = _Builder(app), app.random
    build.put(Mesh.plane(140.0, 140.0), (0, -0.55, 0), 1.0, "#2f86c9")
    build.put(build.ball, (0, -0.5, 0), (11.0, 1.9, 11.0), "#e9cf8c")
    build.put(build.ball, (0, -0.35, 0), (9.0, 1.9, 9.0), "#6fbf4b")
    for floor in range(5):
        wide = 1.5 - 0.16 * floor
        color = ("#f6f1e6", "#d8433b")[floor % 2]
        build.put(build.tube, (0, 0.9 + 0.75 * floor, 0), (wide, 0.75, wide), color)
    build.put(build.tube, (0, 4.4, 0), (1.15, 0.12, 1.15), "#33363f")
    build.put(build.tube, (0, 4.75, 0), (0.6, 0.6, 0.6), "#ffe27a", glow="#c09030")
    build.put(build.cone, (0, 5.35, 0), (1.0, 0.6, 1.0), "#b9322e")
    for tree in range(11):
        turn, away = 2 * math.pi * (tree + rng.uniform(-0.2, 0.2)) / 11, rng.uniform(2.9, 3.9)
        color = ("#3f9a45", "#77b53a", "#e08a2e", "#2f8a64")[tree % 4]
        build.tree(away * math.sin(turn), away * math.cos(turn), float(rng.uniform(0.6, 1.05)), color)
    build.house(-1.9, 1.5, -35.0, "#f4e3c3", "#c4502f")
    build.house(1.9, 1.7, 30.0, "#f7d9d0", "#4467a8")
    build.house(0.4, -2.2, 190.0, "#e3efd9", "#8a4a9c")
    build.balloon(20.0, "#e8503a", "#ffd34d", 2.4)
    build.balloon(150.0, "#8a4fd0", "#7fe3d0", 3.0)
    build.balloon(265.0, "#f2a92e", "#d0407a", 1.9)
    for cloud in range(9):
        turn = 2 * math.pi * cloud / 9
        at = (24 * math.sin(turn), 5.5 + 3.2 * (cloud % 3), 24 * math.cos(turn))
        for puff in range(3):
            size = float(rng.uniform(2.5, 4.5))
            place = (at[0] + 1.6 * puff, at[1], at[2] - 1.2 * puff)
            build.put(build.ball, place, (size, 0.6 * size, size), "#ffffff", None, "#303038")
    sun = app.scene.create("sun", position=(4.5, 8.0, 6.0))
    sun.transform.look_at((0.0, 0.0, 0.0), up=(0.0, 1.0, 0.0))
    sun.add_component(DirectionalLight, color="#fff0d0", intensity=0.85)
    app.scene.create("sky").add_component(AmbientLight, color="#b8d4ff", ground="#8a7a70", intensity=0.45)
    eye = app.scene.create("camera")
    eye.add_component(Orbit, looks=True, away=10.5, height=4.2)
    # Multisampling is expensive where the processor draws.
    smooth = not app.graphics.is_software
    return eye.add_component(Camera3D, background="#8ecbf2", field_of_view=48.0, multisampling=smooth)
