"""Meshes as cameras see them, pixel by pixel against projections worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import moderngl
import numpy as np
import pytest

from engine.device.gl.counting import CountingLoader
from engine.device.gl.functions import GL, GLFunctions
from gameglue import (
    AmbientLight,
    App,
    Camera2D,
    Camera3D,
    DirectionalLight,
    ImageEffect,
    Mesh,
    MeshRenderer,
    MonoBehaviour,
    ParticleSystem,
    ParticleSystem3D,
    Quaternion,
    SpriteRenderer,
    Vec3,
)

MakeApp = Callable[..., App]
BLACK, RED, GREEN, BLUE = [0, 0, 0], [255, 0, 0], [0, 255, 0], [0, 0, 255]
pytestmark = pytest.mark.gl


@pytest.fixture
def space(make_drawing_app: MakeApp) -> App:
    """An app in which only what glows is seen: a dark `AmbientLight` takes the place of daylight."""
    app = make_drawing_app()
    app.scene.create("dark").add_component(AmbientLight, intensity=0.0)
    return app


def camera(app: App, **fields: object) -> Camera3D:
    owner = app.scene.create("camera", position=(0, 0, 5))
    return owner.add_component(Camera3D, **{"background": "black", "multisampling": False, **fields})


def glowing(app: App, mesh: Mesh, light: str, position: tuple[float, ...] = (0, 0, 0), **fields: Any) -> Any:
    owner = app.scene.create("thing", position=position)
    return owner.add_component(MeshRenderer, mesh=mesh, emission=light, **{"color": "black", **fields})


def picture(app: App) -> np.ndarray:
    app.step()
    return app.graphics.read_pixels()


def ink(pixels: np.ndarray) -> tuple[int, int, int, int]:
    """Left, top, right and bottom (exclusive) of what is not black."""
    lit: np.ndarray = pixels.max(axis=2) > 0
    columns, rows = np.flatnonzero(lit.any(axis=0)), np.flatnonzero(lit.any(axis=1))
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def test_perspective_makes_things_smaller_with_their_distance(space: App) -> None:
    camera(space, field_of_view=90.0)
    thing = glowing(space, Mesh.quad(2, 2), "white")
    # At 5 units half the picture's height (120 pixels) is 5 units: 24 pixels a unit.
    assert ink(picture(space)) == (136, 96, 184, 144)
    thing.transform.position = (0, 0, -5)
    assert ink(picture(space)) == (148, 108, 172, 132)
    thing.transform.position = (1, 2, 0)
    assert ink(picture(space)) == (160, 48, 208, 96)


def test_without_perspective_the_distance_changes_nothing(space: App) -> None:
    camera(space, projection="orthographic", height=10.0)
    thing = glowing(space, Mesh.quad(2, 2), "white", (1, 1, 0))
    near = picture(space)
    assert ink(near) == (160, 72, 208, 120)
    thing.transform.position = (1, 1, -50)
    assert np.array_equal(picture(space), near)
    thing.transform.position = (1, 1, 6)
    assert not picture(space).any(), "what lies behind the camera is not seen"


def test_the_nearer_hides_the_farther_in_either_order(space: App) -> None:
    camera(space)
    glowing(space, Mesh.quad(1, 1), "#ff0000", (0, 0, 1))
    glowing(space, Mesh.quad(4, 4), "#00ff00")
    pixels = picture(space)
    assert pixels[120, 160].tolist() == RED
    assert pixels[120, 190].tolist() == GREEN


def test_the_back_of_a_triangle_is_left_out_unless_asked_for(space: App) -> None:
    camera(space)
    thing = glowing(space, Mesh.quad(), "white")
    thing.transform.rotate(180, (0, 1, 0))
    assert not picture(space).any()
    thing.double_sided = True
    assert picture(space)[120, 160].tolist() == [255] * 3
    thing.double_sided = False
    thing.transform.local_scale = (-1, 1, -1)
    assert picture(space)[120, 160].tolist() == [255] * 3, "turned twice it faces the camera again"
    thing.transform.local_scale = (1, 1, -1)
    assert picture(space)[120, 160].tolist() == [255] * 3, "a mirrored mesh keeps its outside"


def test_light_falls_by_the_cosine_of_its_angle(space: App) -> None:
    camera(space)
    sun = space.scene.create("sun").add_component(DirectionalLight, color="#ff8000", intensity=0.9)
    thing = glowing(space, Mesh.quad(8, 8), "black", color="white")
    for degrees in (0, 30, 60, 89):
        sun.transform.rotation = Quaternion.from_axis(degrees, (0, 1, 0))
        expected = np.array([255, 128, 0]) * 0.9 * math.cos(math.radians(degrees))
        assert picture(space)[120, 160] == pytest.approx(expected, abs=1.0)
    sun.transform.rotation = Quaternion.from_axis(120, (0, 1, 0))
    assert picture(space)[120, 160].tolist() == BLACK, "light from behind"
    sun.transform.rotation = Quaternion()
    thing.color = "#808080"
    thing.emission = "#000040"
    assert picture(space)[120, 160] == pytest.approx([115, 58, 64], abs=1.0)


def test_uneven_scale_bends_normals_as_the_surface(space: App) -> None:
    """A slope scaled along z: its normal follows from the plane's equation, not from the matrix."""
    camera(space, projection="orthographic")
    space.scene.create("sun").add_component(DirectionalLight)
    slope = np.array([[-4, -4, 0], [4, -4, 8], [4, 4, 8], [-4, -4, 0], [4, 4, 8], [-4, 4, 0]], np.float64)
    slope[:, 2] -= 4.0
    thing = glowing(space, Mesh(slope), "black", color="white")
    thing.transform.local_scale = (1.0, 1.0, 0.25)
    # z = x / 4 there, so the normal is (-1/4, 0, 1) and the light comes from z.
    assert picture(space)[120, 160, 0] == pytest.approx(255 / math.hypot(0.25, 1.0), abs=1.0)


def test_ambient_light_comes_from_above_and_below(make_drawing_app: MakeApp) -> None:
    app = make_drawing_app()
    camera(app)
    app.scene.create("sky").add_component(AmbientLight, color="#0000ff", ground="#ff0000", intensity=0.5)
    thing = app.scene.create("thing").add_component(MeshRenderer, mesh=Mesh.quad(8, 8))
    assert picture(app)[120, 160] == pytest.approx([64, 0, 64], abs=1.0)
    thing.transform.rotation = Quaternion.from_axis(-60, (1, 0, 0))
    above = (math.sin(math.radians(60)) + 1) / 2
    expected = [127.5 * (1 - above), 0, 127.5 * above]
    assert picture(app)[120, 160] == pytest.approx(expected, abs=1.0)


def test_highlights_lie_where_the_half_vector_is_the_normal(space: App) -> None:
    camera(space, projection="orthographic", height=4.0)
    space.scene.create("sun", rotation=Quaternion.from_axis(-60, (0, 1, 0))).add_component(DirectionalLight)
    glowing(space, Mesh.sphere(1.0, segments=128, rings=64), "black", specular=1.0)
    pixels = picture(space)[..., 0].astype(float)
    assert pixels.max() > 240
    rows, columns = np.nonzero(pixels > 200)
    # The light stands 60 degrees to the side (-60 around y turns -z to +x), so half way is 30 degrees: -x.
    assert (columns.mean() + 0.5 - 160) / 60 == pytest.approx(-math.sin(math.radians(30)), abs=0.02)
    assert rows.mean() + 0.5 == pytest.approx(120, abs=1.0)


def test_daylight_where_a_scene_has_no_light(make_drawing_app: MakeApp) -> None:
    app = make_drawing_app()
    camera(app)
    app.scene.create("thing").add_component(MeshRenderer, mesh=Mesh.sphere(2.0))
    pixels = picture(app)[..., 0]
    assert pixels[75, 140] > pixels[165, 180] > 40
    sun = app.scene.create("sun").add_component(DirectionalLight, intensity=0.0)
    lit = picture(app)[120, 160, 0]
    assert 40 < lit < 100, "a scene with a sun only has some light from everywhere"
    sun.intensity = 0.5
    assert picture(app)[120, 160, 0] == pytest.approx(lit + 127.5, abs=2)


def test_textures_lie_upright(space: App) -> None:
    camera(space, projection="orthographic", height=4.0)
    corners = np.array([[RED, GREEN], [BLUE, BLACK]], np.uint8)
    texture = space.graphics.texture(corners, smooth=False)
    space.scene.create("light").add_component(AmbientLight, intensity=1.0)
    thing = glowing(space, Mesh.quad(2, 2), "black", color="white", texture=texture)
    spots = [(105, 145), (105, 175), (135, 145), (135, 175)]
    assert [picture(space)[spot].tolist() for spot in spots] == [RED, GREEN, BLUE, BLACK]
    for mesh in (Mesh.box(2), Mesh.plane(2, 2)):
        thing.mesh = mesh
        thing.transform.rotation = Quaternion.from_axis(90 if mesh.name == "plane" else 0, (1, 0, 0))
        assert [picture(space)[spot].tolist() for spot in spots] == [RED, GREEN, BLUE, BLACK]


def test_what_lets_through_is_drawn_from_back_to_front(space: App) -> None:
    camera(space, projection="orthographic")
    space.scene.create("light").add_component(AmbientLight, intensity=1.0)
    quad = Mesh.quad(2, 2)
    space.scene.create("near", position=(0, 0, 2)).add_component(
        MeshRenderer, mesh=quad, color=(1, 0, 0, 0.5)
    )
    space.scene.create("far", position=(0, 0, 1)).add_component(MeshRenderer, mesh=quad, color=(0, 0, 1, 0.5))
    space.scene.create("wall").add_component(MeshRenderer, mesh=quad, color="#00ff00")
    assert picture(space)[120, 160] == pytest.approx([128, 64, 64], abs=2)


def test_many_copies_of_a_mesh_lie_where_each_belongs(space: App) -> None:
    camera(space, projection="orthographic", height=24.0)
    quad, expected = Mesh.quad(0.5, 0.5), np.zeros((240, 320), bool)
    for row in range(20):
        for column in range(20):
            glowing(space, quad, "white", (column - 9.75, row - 9.75, -(row * column) / 100))
            left, top = 60 + 10 * column, 215 - 10 * row
            expected[top : top + 5, left : left + 5] = True
    assert np.array_equal(picture(space)[..., 0] > 0, expected)
    space.scene.create("another").add_component(MeshRenderer, mesh=quad)
    space.step()


def test_a_mesh_follows_what_is_written(space: App) -> None:
    camera(space, projection="orthographic")
    mesh = Mesh.quad(2, 2)
    glowing(space, mesh, "white")
    assert ink(picture(space)) == (136, 96, 184, 144)
    mesh.write(mesh.positions * 2)
    assert ink(picture(space)) == (112, 72, 208, 168)


def test_smooth_edges_are_partly_covered(space: App) -> None:
    view = camera(space, projection="orthographic", height=4.0)
    glowing(space, Mesh.sphere(1.0, segments=128, rings=64), "white")
    hard = picture(space)[..., 0]
    view.multisampling = True
    soft = picture(space)[..., 0]
    assert set(np.unique(hard)) == {0, 255}
    if space.graphics.device.smooth_samples:
        assert len(np.unique(soft)) > 2
    assert soft.sum() / 255 == pytest.approx(math.pi * 60**2, rel=0.01)


def test_a_camera_tells_where_points_are_seen(space: App) -> None:
    view = camera(space, field_of_view=90.0)
    space.step()
    assert view.world_to_screen((1, 2, 0)) == pytest.approx((184, 72))
    assert view.world_to_screen((0, 0, 6)) is None
    view.transform.rotation = Quaternion.from_euler((10, 20, 30))
    view.transform.position = (3, -2, 1)
    for point in ((0, 1, -9), (2, -4, -5)):
        seen = view.world_to_screen(point)
        assert seen is not None
        begin, direction = view.screen_to_ray(*seen)
        offset = Vec3.of(point) - begin
        assert offset.normalized() == pytest.approx(direction, abs=1e-5)
    matrix = view.view_matrix()
    assert matrix[:3, :3] @ np.array(view.transform.forward) == pytest.approx((0, 0, -1), abs=1e-12)
    assert view.projection_matrix().shape == (4, 4)


def test_cameras_draw_by_depth_and_two_dimensions_over_three(space: App) -> None:
    camera(space, background="#000040", depth=1)
    glowing(space, Mesh.quad(4, 4), "#ff0000")
    space.scene.create("flat").add_component(SpriteRenderer, width=1.0, color="#00ff00")
    pixels = picture(space)
    assert pixels[120, 160].tolist() == GREEN
    assert pixels[120, 185].tolist() == RED
    assert pixels[5, 5].tolist() == [0, 0, 64]
    space.scene.create("back").add_component(Camera2D, depth=0, background="#00ffff")
    pixels = picture(space)
    assert pixels[120, 160].tolist() == RED, "the camera of higher depth draws later, and clears"
    near = camera(space, background=None, depth=2)
    near.transform.position = (0, 0, 2.5)
    near.multisampling = True
    pixels = picture(space)
    assert pixels[120, 205].tolist() == RED
    assert pixels[5, 5].tolist() == [0, 0, 64], "a camera without a background leaves what is there"


def test_layers_choose_what_a_camera_shows(space: App) -> None:
    view = camera(space, layers=(1,))
    glowing(space, Mesh.quad(), "white")
    assert not picture(space).any()
    view.layers = (0, 1)
    assert picture(space).any()


def test_a_camera_draws_into_a_picture_that_others_show(space: App) -> None:
    target = space.graphics.render_target((64, 64))
    camera(space, target=target, background="#0000ff", projection="orthographic", height=4.0, layers=(1,))
    thing = glowing(space, Mesh.quad(2, 2), "#ff0000")
    thing.game_object.layer = 1
    camera(space, projection="orthographic", height=4.0, layers=(2,))
    space.scene.create("light").add_component(AmbientLight, intensity=1.0)
    screen = glowing(space, Mesh.quad(4, 4), "black", color="white", texture=target)
    screen.game_object.layer = 2
    pixels = picture(space)
    inner = target.read()
    assert (inner[32, 32].tolist(), inner[4, 4].tolist()) == (RED, BLUE)
    assert (pixels[120, 160].tolist(), pixels[10, 60].tolist()) == (RED, BLUE)
    thing.transform.position = (0, 1, 0)
    pixels = picture(space)
    assert (pixels[60, 160].tolist(), pixels[180, 160].tolist()) == (RED, BLUE), "upright"


def test_a_picture_that_shows_itself_is_no_error(space: App, game_gl: GLFunctions) -> None:
    target = space.graphics.render_target((64, 64))
    camera(space, target=target)
    glowing(space, Mesh.quad(2, 2), "#400000", texture=target)
    space.scene.create("flat").add_component(SpriteRenderer, texture=target)
    space.scene.create("flat camera").add_component(Camera2D, target=target, background=None, depth=1)
    space.run(frames=2)
    assert game_gl.glGetError() == GL.NO_ERROR


def test_a_faulty_component_does_not_take_others_with_it(make_drawing_app: MakeApp) -> None:
    app = make_drawing_app(on_error="log")
    view = camera(app, near=0.0)
    app.step()
    assert "0 < near < far" in str(app.errors[0].error)
    assert not view.enabled
    camera(app)
    broken = app.scene.create("broken").add_component(MeshRenderer)
    app.scene.create("whole").add_component(MeshRenderer, mesh=Mesh.quad(9, 9))
    assert picture(app)[120, 160].any()
    assert "mesh has no value" in str(app.errors[1].error)
    assert not broken.enabled


def test_drawing_is_right_under_hostile_state_and_leaves_it_as_two_dimensions_do(
    space: App, game: moderngl.Context, game_gl: GLFunctions
) -> None:
    camera(space, multisampling=True)
    glowing(space, Mesh.torus(), "#ff0000")
    space.scene.create("glass", position=(0, 0, 1)).add_component(
        MeshRenderer, mesh=Mesh.quad(), color=(0, 0, 1, 0.5)
    )
    space.scene.create("sun").add_component(DirectionalLight, shadows=True)
    expected = picture(space)
    flags = [GL.DEPTH_TEST, GL.CULL_FACE, GL.BLEND, GL.SCISSOR_TEST, GL.RASTERIZER_DISCARD]
    state: Any = game  # The stubs know only some forms of these attributes.

    class Hostile(MonoBehaviour):
        def late_update(self) -> None:
            game.enable(moderngl.CULL_FACE | moderngl.RASTERIZER_DISCARD)
            game.scissor = (0, 0, 3, 3)
            game.front_face, game.cull_face = "cw", "front"
            game.depth_func = ">"
            state.blend_func = moderngl.ZERO, moderngl.ONE
            state.blend_equation = moderngl.FUNC_REVERSE_SUBTRACT

        def on_gui(self) -> None:
            self.left = [bool(game_gl.glIsEnabled(flag)) for flag in flags]

    hostile = space.scene.create("hostile").add_component(Hostile)
    assert np.array_equal(picture(space), expected)
    assert hostile.left == [False, False, True, False, False]
    assert (game.front_face, game.cull_face) == ("ccw", "back")


class Darken(ImageEffect):
    """Halves the light."""

    shader = "vec4 effect(vec2 uv) { return picture(uv) * 0.5; }"


def test_frames_in_space_make_no_blocking_call(game: moderngl.Context) -> None:
    """Calls that wait, counted between the context and moderngl, while one of everything is drawn."""
    watched = moderngl.create_context(context=CountingLoader(game.mglo._context))  # type: ignore[arg-type]
    app = App("test", context=watched, size=(320, 240), on_error="raise")
    try:
        camera(app, multisampling=True)
        camera(app, depth=1, background=None)
        texture = app.graphics.texture(np.zeros((4, 4), np.uint8))
        for x in range(40):
            glowing(app, Mesh.box() if x % 2 else Mesh.sphere(), "white", (x, 0, 0), texture=texture)
        glowing(app, Mesh.box(), "white", color=(1.0, 1.0, 1.0, 0.5))
        for kind in (ParticleSystem, ParticleSystem3D):
            app.scene.create("particles").add_component(kind, rate=5000.0, texture=texture)
        app.scene.create("effect").add_component(Darken)
        app.scene.create("sun").add_component(DirectionalLight, shadows=True)
        app.run(frames=2)
        loader: CountingLoader = watched.mglo._context
        with loader.watching() as seen:
            app.run(frames=10)
        assert not seen, f"blocking calls in 10 frames: {dict(seen)}"
    finally:
        app.dispose()


def test_meshes_are_freed_with_whoever_holds_them(space: App) -> None:
    camera(space)
    thing = glowing(space, Mesh.box(), "white")
    space.scene.create("sun").add_component(DirectionalLight, shadows=True)
    space.scene.create("sparks").add_component(ParticleSystem3D)
    space.step()
    store = space.graphics._stage._pipeline.store
    stored = store._stored
    assert len(stored) == 1
    thing.mesh = Mesh.sphere()
    space.run(frames=2)
    assert len(stored) == 1
    assert next(iter(stored.values())).version == thing.mesh.version
    space.dispose()
    assert space.graphics.device.live_objects == 0
    assert not stored


def test_without_opengl_everything_may_be_called(make_app: MakeApp) -> None:
    app = make_app(on_error="raise")
    target = app.graphics.render_target((8, 8))
    view = camera(app, target=target)
    glowing(app, Mesh.box(), "white", texture=target)
    app.run(frames=2)
    assert view.world_to_screen((0, 0, 0)) == pytest.approx((4, 4))
