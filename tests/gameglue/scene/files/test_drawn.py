"""A scene that was saved and loaded again looks as it did: to the pixel, with every kind of renderer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pygame
import pytest

from gameglue import (
    AmbientLight,
    AnimationClip,
    App,
    Camera2D,
    Camera3D,
    DirectionalLight,
    LineRenderer,
    Mesh,
    MeshRenderer,
    Scene,
    SpriteAnimator,
    SpriteRenderer,
    SpriteSheet,
    TextRenderer,
    Texture,
)

pytestmark = pytest.mark.gl


@pytest.fixture
def drawing_app(make_drawing_app: Callable[..., App], tmp_path: Path) -> App:
    rng = np.random.default_rng(1)
    surface = pygame.surfarray.make_surface(rng.integers(0, 255, (8, 4, 3), np.uint8))
    pygame.image.save(surface, str(tmp_path / "spots.png"))
    return make_drawing_app(folder=tmp_path)


def seen(app: App) -> np.ndarray:
    app.step(0.0)
    return app.graphics.read_pixels()


def filled(app: App) -> Scene:
    scene = app.new_scene("drawn")
    scene.create("camera").add_component(Camera2D, height=6.0)
    scene.create("square", position=(1, 1), rotation=30).add_component(
        SpriteRenderer, color="red", radius=0.1
    )
    scene.create("picture", position=(-2, 0)).add_component(SpriteRenderer, texture="spots.png", width=2.0)
    scene.create("text", position=(0, 2)).add_component(TextRenderer, text="Grüße\nan: alle", size=0.4)
    scene.create("line").add_component(
        LineRenderer, points=[(-3, -2), (0, -1.5), (3, -2)], color=(1.0, 0.5, 0.1)
    )
    return scene


def test_two_dimensions(drawing_app: App) -> None:
    app = drawing_app
    empty = seen(app)
    scene = app.load_scene(filled(app))
    before = seen(app)
    assert (before != empty).any(axis=2).sum() > 2000
    loaded = app.load_scene(scene.save("drawn"))
    assert loaded is not scene
    assert np.array_equal(seen(app), before)


def test_a_prefab_of_several_renderers(drawing_app: App) -> None:
    app = drawing_app
    shelf = app.new_scene("shelf")
    top = shelf.create("top")
    for owner in filled(app).roots:
        owner.transform.set_parent(top.transform)
    shelf.save_prefab(top, "top")
    app.scene.instantiate("top.prefab")
    first = seen(app)
    app.load_scene(app.scene.save("scene"))
    assert np.array_equal(seen(app), first)
    assert "overrides" not in app.resources.read_text("scene.scene")


def test_sheets_meshes_and_lights(drawing_app: App) -> None:
    app = drawing_app
    (app.resources.folder / "drawn.scene").write_text(
        """
        scene: drawn
        version: 1
        objects:
        - name: camera
          position: [0, 0, 6]
          components: [Camera3D]
        - name: sun
          rotation: [-50, 30, 0]
          components: [DirectionalLight]
        - name: ring
          rotation: [40, 20, 0]
          components:
          - MeshRenderer: {mesh: "torus(1.0, tube=0.3)", color: orange}
        - name: picture
          components:
          - Camera2D: {height: 6, background: null, depth: 1}
          - SpriteRenderer: {sheet: {texture: spots.png, columns: 2, rows: 2}, frame: 3, width: 1}
          - SpriteAnimator: {clips: {walk: {frames: [0, 2], frame_rate: 4}}, playing: walk}
        """,
        encoding="utf-8",
    )
    scene = app.load_scene("drawn")
    before = seen(app)
    assert len(np.unique(before.reshape(-1, before.shape[2]), axis=0)) > 30
    sheet = scene.find_components(SpriteRenderer)[0].sheet
    assert isinstance(sheet, SpriteSheet)
    assert isinstance(sheet.texture, Texture)
    assert scene.find_components(SpriteAnimator)[0].clips == {"walk": AnimationClip((0, 2), 4)}
    assert all(scene.find_component(kind) for kind in (Camera3D, DirectionalLight, MeshRenderer))
    scene.create("light").add_component(AmbientLight, intensity=0.0)
    scene.create("box", position=(1, 0)).add_component(MeshRenderer, mesh=Mesh.box(0.5))
    before = seen(app)
    loaded = app.load_scene(scene.save("again"))
    assert loaded.find_components(MeshRenderer)[1].mesh.source == "box(0.5)"
    assert np.array_equal(seen(app), before)
