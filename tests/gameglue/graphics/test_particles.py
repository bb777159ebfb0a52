"""Particles against the formulas of throwing, and their pictures against counting."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from gameglue import (
    AmbientLight,
    App,
    Camera2D,
    Camera3D,
    GraphicsError,
    Mesh,
    MeshRenderer,
    Particles,
    ParticleSystem,
    ParticleSystem3D,
    Quaternion,
)

MakeApp = Callable[..., App]


def system(app: App, kind: type[ParticleSystem] = ParticleSystem, **fields: object) -> ParticleSystem:
    return app.scene.create("source").add_component(kind, **{"rate": 0.0, **fields})


def test_a_throw_follows_its_parabola() -> None:
    particles = Particles(10)
    places = particles.add(1)
    particles["velocity"][places] = (3.0, 4.0, 0.0)
    particles["life"][places] = 10.0
    for _ in range(1000):
        particles.step(0.001, gravity=9.81, drag=0.0)
    assert particles["position"][0] == pytest.approx((3.0, 4.0 - 9.81 / 2, 0.0), abs=0.01)
    drag = Particles(1)
    drag.add(1)
    drag["velocity"][0], drag["life"][0] = (1.0, 0.0, 0.0), 9.0
    for _ in range(20):
        drag.step(0.05, 0.0, drag=2.0)
    assert drag["velocity"][0, 0] == pytest.approx(math.exp(-2.0))


def test_lives_end_and_room_is_used_again() -> None:
    particles = Particles(5)
    places = particles.add(4)
    particles["life"][places] = [0.5, 2.0, 0.5, 2.0]
    particles["spin"][places] = [1, 2, 3, 4]
    particles.step(1.0, 0.0, 0.0)
    assert len(particles) == 2
    assert particles["spin"].tolist() == [2, 4]
    assert particles["angle"].tolist() == [2, 4]
    places = particles.add(9)
    assert places == slice(2, 5), "beyond the capacity nothing comes to life"
    assert not particles["spin"][2:].any()
    particles.clear()
    assert len(particles) == 0


def test_rate_and_bursts_in_game_time(app: App) -> None:
    source = system(app, rate=50.0, lifetime=10.0, bursts=((0.5, 7), (1.0, 3)))
    for _ in range(4):
        app.step(0.1)
    assert len(source.particles) == 20
    app.step(0.1)
    assert len(source.particles) == 25, "0.5 s after the start is the beginning of the next frame"
    app.step(0.1)
    assert len(source.particles) == 30 + 7
    source.emitting = False
    app.run(frames=0)
    for _ in range(6):
        app.step(0.1)
    assert len(source.particles) == 30 + 7 + 3
    source.emit(5)
    assert len(source.particles) == 45


def test_particles_leave_in_the_directions_and_speeds_asked_for(app: App) -> None:
    source = system(app, speed=(2.0, 3.0), spread=60.0, radius=0.5, lifetime=(1.0, 2.0))
    source.transform.position, source.transform.angle = (5, 1), 90
    app.step(0.1)
    source.emit(2000)
    velocity, position = source.particles["velocity"], source.particles["position"] - (5, 1, 0)
    speed = np.linalg.norm(velocity, axis=1)
    assert 2.0 <= speed.min() < 2.1
    assert 2.9 < speed.max() <= 3.0
    # Up is -x after a quarter turn; 30 degrees to each side.
    off = np.degrees(np.arccos(np.clip(-velocity[:, 0] / speed, -1, 1)))
    assert 28 < off.max() <= 30.001
    assert 0.45 < np.linalg.norm(position, axis=1).max() <= 0.5
    # Evenly over the disc: half of them within 1 / sqrt(2) of the radius.
    assert (np.linalg.norm(position, axis=1) < 0.5 / math.sqrt(2)).mean() == pytest.approx(0.5, abs=0.05)
    assert 1.0 <= source.particles["life"].min() < source.particles["life"].max() <= 2.0


def test_a_cone_in_space_is_filled_evenly(app: App) -> None:
    source = system(app, ParticleSystem3D, speed=1.0, spread=180.0)
    app.step(0.1)
    source.emit(4000)
    height = source.particles["velocity"][:, 1]
    assert height.min() >= -1e-6
    assert height.mean() == pytest.approx(0.5, abs=0.03), "a half sphere: heights are even"
    source.transform.rotation = Quaternion.from_axis(90, (1, 0, 0))
    source.particles.clear()
    source.emit(10)
    assert source.particles["velocity"][:, 2].min() >= -1e-6


def test_local_particles_move_with_their_object(app: App) -> None:
    stays, goes = system(app, speed=0.0), system(app, speed=0.0, local=True)
    app.step(0.1)
    for source in (stays, goes):
        source.emit(1)
        source.transform.position = (3, 0)
    assert stays.instance_data()[0][0] == pytest.approx((0, 0, 0))
    assert goes.instance_data()[0][0] == pytest.approx((3, 0, 0))


def test_sizes_and_colours_change_over_a_life(app: App) -> None:
    source = system(app, lifetime=1.0, sizes=(1.0, 3.0, 0.0), colors=("#ff0000", "#0000ff00"))
    app.step(0.1)
    source.emit(1)
    app.step(0.25)
    _, sizes, colors = source.instance_data()
    assert sizes[0] == pytest.approx(2.0)
    assert colors[0] == pytest.approx((0.75, 0.0, 0.25, 0.75), abs=1e-6)
    source.sizes = ()
    with pytest.raises(GraphicsError, match="need sizes and colours"):
        source.instance_data()


def test_an_explosion_takes_itself_away_and_repeats_with_the_seed(make_app: MakeApp) -> None:
    places = []
    for _ in range(2):
        app = make_app(seed=4, on_error="raise")
        source = system(app, bursts=((0.0, 20),), lifetime=0.3, destroy_when_done=True)
        app.step(0.1)
        app.step(0.1)
        places.append(source.particles["velocity"].copy())
        app.random.random()
        for _ in range(4):
            app.step(0.1)
        assert source.is_destroyed
        assert len(places[-1]) == 20
    assert np.array_equal(places[0], places[1])


@pytest.mark.gl
def test_they_are_drawn_where_they_are(make_drawing_app: MakeApp) -> None:
    app = make_drawing_app()
    app.scene.create("camera").add_component(Camera2D, height=24.0, background="black")
    source = system(app, speed=0.0, lifetime=99.0, sizes=(2.0,), colors=("#804000",), softness=0.0)
    app.step()
    source.emit(2)
    source.particles["position"][:] = [[4, 2, 0], [-4, 0, 0]]
    app.step()
    pixels = app.graphics.read_pixels()
    assert pixels[100, 200].tolist() == pixels[120, 120].tolist() == [128, 64, 0]
    area = (pixels[..., 0] / 128.0).sum()
    assert area == pytest.approx(2 * math.pi * 10**2, rel=0.03)
    source.additive = True
    source.particles["position"][:] = 0.0
    app.step()
    assert app.graphics.read_pixels()[120, 160].tolist() == [255, 128, 0], "light adds up"
    source.texture = app.graphics.white
    app.step()
    pixels = app.graphics.read_pixels()
    assert pixels[111, 151].tolist() == [255, 128, 0]
    source.softness, source.texture = 1.0, None
    source.particles["position"][1] = 99.0
    app.step()
    row = app.graphics.read_pixels()[120, 160:171, 0].astype(int)
    assert row[0] == pytest.approx(128, abs=6)
    assert np.all(np.diff(row) <= 0)
    assert row[10] < 6


@pytest.mark.gl
def test_particles_in_space_face_the_camera_and_hide_behind_things(make_drawing_app: MakeApp) -> None:
    app = make_drawing_app()
    app.scene.create("dark").add_component(AmbientLight, intensity=0.0)
    eye = app.scene.create("camera", position=(5, 0, 0))
    eye.transform.look_at((0, 0, 0), up=(0, 1, 0))
    eye.add_component(Camera3D, background="black", field_of_view=90.0, multisampling=False)
    source = system(app, ParticleSystem3D, speed=0.0, lifetime=99.0, sizes=(2.0,), colors=("#00ff00",))
    source.softness = 0.0
    app.step()
    source.emit(1)
    app.step()
    pixels = app.graphics.read_pixels()
    # 2 units across at 5 units' distance, where 10 units fill 240 pixels.
    assert (pixels[..., 1] / 255.0).sum() == pytest.approx(math.pi * 24**2, rel=0.03)
    wall = app.scene.create("wall", position=(1, 0, 0), scale=(0.1, 1, 1))
    wall.add_component(MeshRenderer, mesh=Mesh.box(), emission="#ff0000", color="black")
    app.step()
    pixels = app.graphics.read_pixels()
    assert pixels[120, 160].tolist() == [255, 0, 0]
    assert pixels[120, 180].tolist() == [0, 255, 0]
    source.emit(1)
    source.particles["position"][1] = (2, 0, 0)
    source.colors, source.texture = ("#0000ff80",), app.graphics.texture(np.full((2, 1), 255, np.uint8))
    app.step()
    pixels = app.graphics.read_pixels()
    assert pixels[120, 160] == pytest.approx([127, 0, 128], abs=2), "nearer than the wall, and half clear"
    lit = np.flatnonzero(pixels[:, 160].max(axis=1) > 0)
    assert len(lit) == pytest.approx(4 * 240 / 6, abs=2), "twice as tall as wide, like its picture"


@pytest.mark.gl
def test_thousands_in_one_draw(make_drawing_app: MakeApp) -> None:
    app = make_drawing_app()
    app.scene.create("camera").add_component(Camera2D, height=120.0, background="black")
    source = system(app, speed=0.0, lifetime=99.0, sizes=(0.5,), capacity=10_000, softness=0.0)
    app.step()
    source.emit(20_000)
    assert len(source.particles) == 10_000
    x, y = np.meshgrid(np.arange(100) - 49.5, np.arange(100) - 49.5)
    source.particles["position"][:, 0], source.particles["position"][:, 1] = x.ravel(), y.ravel()
    app.step()
    pixels = app.graphics.read_pixels()[..., 0]
    columns = 160 + (np.arange(100) - 49.5) * 2
    spots = pixels[np.ix_((columns - 40).astype(int), columns.astype(int))]
    assert spots.min() > 0
