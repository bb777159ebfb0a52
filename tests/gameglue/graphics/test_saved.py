"""What draws can be saved in a scene's file, and read from it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pygame

from gameglue import (
    AmbientLight,
    AnimationClip,
    App,
    Camera2D,
    Camera3D,
    Color,
    DirectionalLight,
    ImageEffect,
    LineRenderer,
    Mesh,
    MeshRenderer,
    ParticleSystem,
    ParticleSystem3D,
    SpriteAnimator,
    SpriteRenderer,
    SpriteSheet,
    TileMap,
)


class Tint(ImageEffect):
    """With a field of each kind that files know."""

    tint: Color = "#ff0000"
    place: tuple[float, float] = (0.5, 0.5)
    shader = "vec4 effect(vec2 uv) { return picture(uv) * tint * place.x; }"


def test_a_scene_with_everything_that_draws_comes_back(app: App, tmp_path: Path) -> None:
    app.resources.roots.insert(0, tmp_path)
    pygame.image.save(pygame.Surface((8, 4)), str(tmp_path / "sheet.png"))
    (tmp_path / "flag.obj").write_text("v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3\n")
    scene = app.new_scene("space")
    scene.create("eye").add_component(Camera3D, field_of_view=40.0, layers=(0, 2), background=None)
    scene.create("flat").add_component(Camera2D, height=5.0)
    scene.create("sun").add_component(DirectionalLight, color=(1.0, 0.5, 0.25))
    scene.create("sky").add_component(AmbientLight, ground="#302010")
    scene.create("made").add_component(MeshRenderer, mesh=Mesh.torus(1.0, tube=0.3), specular=0.5)
    scene.create("read").add_component(MeshRenderer, mesh="flag.obj", texture="sheet.png")
    scene.create("named").add_component(MeshRenderer, mesh="box(2.0)", emission="#101010")
    scene.create("sparks").add_component(
        ParticleSystem3D, speed=(1.0, 3.0), colors=("white", (1.0, 0.0, 0.0))
    )
    scene.create("rain").add_component(ParticleSystem, bursts=((0.0, 10), (1.0, 5)), lifetime=2.0)
    scene.create("tint").add_component(Tint, strength=0.5, place=(0.25, 1.0))
    scene.create("line").add_component(LineRenderer, points=((0.0, 0.0), (1.0, 2.0)))
    clips = {"run": AnimationClip(range(3), 12), "fall": AnimationClip([3], loop=False)}
    scene.create("hero").add_component(SpriteAnimator, clips=clips, playing="fall")
    path = scene.save(tmp_path / "space")
    loaded = app.load_scene(path)
    app.run(frames=2)
    assert not app.errors
    for name, source in (("made", "torus(1.0, tube=0.3)"), ("read", None), ("named", "box(2.0)")):
        owner = loaded.find(name)
        assert owner is not None
        renderer = owner.get_component(MeshRenderer)
        assert renderer is not None
        expected = Mesh.named(source) if source else Mesh.load(tmp_path / "flag.obj")
        assert expected is not None
        assert np.array_equal(renderer.mesh.vertices, expected.vertices)
    animator, rain = loaded.find_component(SpriteAnimator), loaded.find_component(ParticleSystem)
    assert animator is not None
    assert animator.clips == clips
    assert animator.playing == "fall"
    assert rain is not None
    assert app.scene is loaded


def test_sheets_and_maps_are_written_by_hand(app: App, tmp_path: Path) -> None:
    app.resources.roots.insert(0, tmp_path)
    pygame.image.save(pygame.Surface((8, 4)), str(tmp_path / "sheet.png"))
    (tmp_path / "level.scene").write_text(
        """\
scene: level
version: 1
objects:
- name: hero
  components:
  - SpriteRenderer:
      sheet: {texture: sheet.png, columns: 4, rows: 2}
      frame: 5
- name: ground
  components:
  - TileMap:
      sheet: {texture: sheet.png, columns: 4, rows: 2}
      tiles: [[0, 1, 2], [3, -1, 5]]
"""
    )
    loaded = app.load_scene("level.scene")
    app.step()
    assert not app.errors
    hero, ground = loaded.find_component(SpriteRenderer), loaded.find_component(TileMap)
    assert hero is not None
    assert isinstance(hero.sheet, SpriteSheet)
    assert hero.sheet.frame_size == (2.0, 2.0)
    assert ground is not None
    assert ground.tile_at((-1.2, 0.5)) == (0, 0)
    assert loaded.save(tmp_path / "again").read_text().count("sheet.png") == 2
