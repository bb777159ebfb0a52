"""On a software renderer, scenes without shadows or highlights have a smaller program and look the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gameglue import App, Camera3D, DirectionalLight, MeshRenderer, Quaternion

MakeApp = Callable[..., App]


@pytest.mark.gl
@pytest.mark.parametrize(("shadows", "shine"), [(False, 0.0), (True, 0.0), (False, 0.8), (True, 0.8)])
def test_a_program_for_what_a_scene_has_draws_the_same_picture(
    make_drawing_app: MakeApp, monkeypatch: pytest.MonkeyPatch, shadows: bool, shine: float
) -> None:
    app = make_drawing_app()
    scene = app.scene
    scene.create("eye", position=(0, 1, 5)).add_component(Camera3D, background="black", multisampling=False)
    sun = scene.create("sun", rotation=Quaternion.from_euler((-40, 30, 0)))
    sun.add_component(DirectionalLight, shadows=shadows)
    scene.create("ground", position=(0, -1, 0)).add_component(MeshRenderer, mesh="plane(8, 8)")
    scene.create("ball").add_component(MeshRenderer, mesh="sphere(0.9)", color="orange", specular=shine)

    def drawn(is_software: bool) -> tuple[np.ndarray, set[tuple[bool, bool]]]:
        monkeypatch.setattr(app.graphics.device, "is_software", is_software)
        app.step()
        programs = app.graphics._stage._pipeline._programs
        return app.graphics.read_pixels().astype(int), set(programs)

    whole, programs = drawn(is_software=False)
    assert programs == {(True, True)}
    own, programs = drawn(is_software=True)
    assert (shadows, shine > 0.0) in programs
    assert whole.std() > 20.0
    assert np.abs(whole - own).max() <= 1
