"""Makes space.png: a temple with a fire and a fountain, and the same seen from above in a corner."""

from __future__ import annotations

import math
import sys

import numpy as np

from gameglue import (
    AmbientLight,
    App,
    Camera3D,
    Color,
    DirectionalLight,
    ImageEffect,
    Mesh,
    MeshRenderer,
    MonoBehaviour,
    ParticleSystem3D,
    Quaternion,
    RenderTarget,
)


class Vignette(ImageEffect):
    """Darkens the corners, and warms what is bright."""

    tint: Color = "#ffb070"
    shader = """
    vec4 effect(vec2 uv) {
        float edge = smoothstep(0.35, 0.95, length(uv - 0.5) * 1.3);
        return picture(uv) * mix(mix(vec4(1.0), tint * 1.15, 0.2), tint * 0.2, edge);
    }"""


class Map(MonoBehaviour):
    """Shows the picture of the camera above."""

    picture: RenderTarget

    def on_gui(self) -> None:
        gui = self.app.gui
        gui.panel(gui.width - 216, 16, 200, 228, "from above")
        gui.image(self.picture, gui.width - 204, 52, 176, 176, radius=8)


def build(app: App) -> None:
    """Fill the scene."""
    scene, stone = app.scene, "#b9b2a6"
    eye = scene.create("camera", position=(5.2, 4.2, 9.4))
    eye.add_component(Camera3D, background="#141b2e", field_of_view=43.0, smooth_edges=True)
    eye.transform.look_at((0.7, 0.75, 0.0), up=(0, 1, 0))
    picture = app.graphics.render_target((352, 352))
    above = scene.create("above", position=(0, 14, 0), rotation=Quaternion.from_axis(-90, (1, 0, 0)))
    above.add_component(
        Camera3D,
        target=picture,
        projection="orthographic",
        height=10.5,
        background="#141b2e",
        smooth_edges=True,
    )
    scene.create("map").add_component(Map, picture=picture)

    tiles = (np.indices((2, 2)).sum(0) % 2 * 70 + 150).astype(np.uint8)
    floor = Mesh.cylinder(5.0, 0.3, segments=96)
    floor.uvs[:] *= 8.0
    texture = app.graphics.texture(np.kron(tiles, np.ones((64, 64), np.uint8)), repeat=True, mipmaps=True)
    scene.create("floor", position=(0, -0.15)).add_component(
        MeshRenderer, mesh=floor, texture=texture, color="#7383a8", shine=0.15
    )
    column, cap = Mesh.cylinder(0.28, 2.6, top=0.22), Mesh.box((0.75, 0.18, 0.75))
    for k in range(9):
        turn = math.radians(k * 40 + 10)
        place = (3.9 * math.sin(turn), 0.0, 3.9 * math.cos(turn))
        pillar = scene.create("pillar", position=place, rotation=Quaternion.from_axis(k * 40 + 10, (0, 1, 0)))
        for mesh, height in ((column, 1.3), (cap, 2.6), (cap, 0.09)):
            scene.create("stone", position=(0, height), parent=pillar).add_component(
                MeshRenderer, mesh=mesh, color=stone
            )
    ring = scene.create("ring", position=(0, 2.0), rotation=Quaternion.from_euler((66, 0, 20)))
    ring.add_component(MeshRenderer, mesh=Mesh.torus(0.95, 0.13), color="#e8b64c", shine=0.9)
    scene.create("pearl", position=(0, 2.0)).add_component(
        MeshRenderer, mesh=Mesh.sphere(0.42), color="#7fd4ff60", emission="#0a3850", shine=1.0
    )
    scene.create("bowl", position=(0, 0.2)).add_component(
        MeshRenderer, mesh=Mesh.cylinder(0.55, 0.4, top=0.75), color=stone
    )
    for k, color in enumerate(("red", "teal", "purple", "green", "orange")):
        turn = math.radians(k * 72 + 30)
        scene.create("ball", position=(2.3 * math.sin(turn), 0.32, 2.3 * math.cos(turn))).add_component(
            MeshRenderer, mesh=Mesh.sphere(0.32), color=color, shine=0.6
        )
    scene.create("fire", position=(0, 0.42)).add_component(
        ParticleSystem3D, rate=160.0, spread=50.0, speed=(0.4, 1.1), lifetime=(0.5, 1.1), radius=0.4,
        gravity=-0.8, sizes=(0.2, 0.35, 0.05), colors=("#ffd06080", "#ff6a2050", "#40101000"),
        additive=True, softness=1.0,
    )  # fmt: skip
    scene.create("sparks", position=(0, 0.6)).add_component(
        ParticleSystem3D, rate=40.0, spread=70.0, speed=(1.0, 2.4), lifetime=(0.8, 1.6), gravity=0.6,
        sizes=(0.05, 0.02), colors=("#fff0c0", "#ff9040", "#ff400000"), additive=True,
    )  # fmt: skip
    scene.create("sun", rotation=Quaternion.from_euler((-42, -35, 0))).add_component(
        DirectionalLight, intensity=1.0, color="#ffe9c8", shadows=True
    )
    scene.create("sky").add_component(AmbientLight, color="#8fb0ff", ground="#8a5028", intensity=0.6)
    scene.create("vignette").add_component(Vignette)


if __name__ == "__main__":
    with App("space", size=(960, 640), headless=True, seed=1, on_error="raise") as game:
        build(game)
        game.run(frames=100)
        game.screenshot(sys.argv[1])
