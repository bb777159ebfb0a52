"""Shadows against geometry: where a box's shadow falls follows from similar triangles."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gameglue import AmbientLight, App, Camera3D, DirectionalLight, MeshRenderer, Quaternion
from gameglue.graphics.shadow_map import SIZE, light_matrix

MakeApp = Callable[..., App]


@pytest.mark.gl
def test_a_box_shades_the_ground_beside_it(make_drawing_app: MakeApp) -> None:
    app = make_drawing_app()
    scene = app.scene
    scene.create("dark").add_component(AmbientLight, intensity=0.0)
    above = scene.create("above", position=(0, 10, 0), rotation=Quaternion.from_axis(-90, (1, 0, 0)))
    above.add_component(
        Camera3D, projection="orthographic", height=10.0, background="black", multisampling=False
    )
    sun = scene.create("sun").add_component(DirectionalLight, shadows=True)
    sun.transform.look_at((1, -1, 0), up=(0, 1, 0))
    ground = scene.create("ground").add_component(MeshRenderer, mesh="plane(12, 12)")
    box = scene.create("box", position=(0, 1.5, 0)).add_component(MeshRenderer, mesh="box")
    app.step()
    lit = app.graphics.read_pixels()[..., 0].astype(float)
    # 24 pixels a unit. The box reaches from 1 to 2 above the ground, its shadow falls 1 to 2 further right.
    expected = np.full((240, 320), 255 / np.sqrt(2))
    expected[108:132, 172:220] = 0.0
    inner = np.zeros((240, 320), bool)
    for top, bottom, left, right in ((110, 130, 174, 218), (20, 100, 20, 300), (140, 220, 20, 300)):
        inner[top:bottom, left:right] = True
    assert np.abs(lit - expected)[inner].max() <= 1.0
    assert (lit[100:140, 172:240] < 90).sum() == pytest.approx(24 * 48, rel=0.05)
    sun.shadows = False
    app.step()
    assert app.graphics.read_pixels()[120, 200, 0] == pytest.approx(255 / np.sqrt(2), abs=1.0)
    sun.shadows, box.color = True, "#ffffff80"
    app.step()
    assert app.graphics.read_pixels()[120, 200, 0] > 170, "what lets light through throws no shadow"
    box.color, sun.shadow_range = "white", 0.25
    app.step()
    assert app.graphics.read_pixels()[120, 200, 0] > 170, "beyond its range there is none"
    assert ground.enabled


@pytest.mark.gl
def test_a_curved_surface_does_not_shade_its_lit_side(make_drawing_app: MakeApp) -> None:
    app = make_drawing_app()
    scene = app.scene
    scene.create("dark").add_component(AmbientLight, intensity=0.0)
    scene.create("eye", position=(0, 0, 5)).add_component(
        Camera3D, projection="orthographic", height=4.0, background="black", multisampling=False
    )
    sun = scene.create("sun", rotation=Quaternion.from_euler((-30, 40, 0))).add_component(DirectionalLight)
    scene.create("ball").add_component(MeshRenderer, mesh="sphere(1.0, segments=96, rings=48)")
    app.step()
    plain = app.graphics.read_pixels()[..., 0].astype(int)
    sun.shadows = True
    app.step()
    shaded = app.graphics.read_pixels()[..., 0].astype(int)
    assert plain.max() > 240
    bright = plain > 40
    assert np.abs(shaded - plain)[bright].max() <= 2


def test_the_map_moves_by_whole_texels() -> None:
    towards, point, reach = np.array([0.3, 0.8, 0.52]), np.array([0.7, 0.2, -1.3, 1.0]), 12.0
    towards /= np.linalg.norm(towards)
    first = light_matrix(towards, (1.0, 2.0, 3.0), reach) @ point
    for step in (0.01, 0.123, 2.9):
        moved = light_matrix(towards, (1.0 + step, 2.0 - step, 3.0), reach) @ point
        texels = (moved - first)[:2] * SIZE / 2
        assert texels == pytest.approx(np.round(texels), abs=1e-3)
    straight = light_matrix(np.array([0.0, 1.0, 0.0]), (0.0, 0.0, 0.0), reach)
    assert np.isfinite(straight).all()
    assert abs(np.linalg.det(straight[:3, :3])) > 0
