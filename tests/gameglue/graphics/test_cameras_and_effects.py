"""Cameras, renderers and image effects, drawn by an app."""

from __future__ import annotations

import pytest

from gameglue import (
    Camera2D,
    Canvas,
    GraphicsError,
    LineRenderer,
    MonoBehaviour,
    Renderer,
    RenderTarget,
    SpriteRenderer,
    TextRenderer,
)
from tests.gameglue.graphics.test_graphics import BLACK, INVERT, RED, WHITE, Invert, MakeApp, ink

pytestmark = pytest.mark.gl


class Square(Renderer):
    """Draws one world unit square."""

    color: str = "#ffffff"

    def draw(self, canvas: Canvas) -> None:
        x, y, _ = self.transform.position
        canvas.rect(x - 0.5, y - 0.5, 1, 1, self.color)


def test_a_camera_maps_world_units_to_pixels(make_drawing_app: MakeApp) -> None:
    app = make_drawing_app()
    camera = app.scene.create("camera", position=(2, 1)).add_component(
        Camera2D, height=12.0, background="#000"
    )
    app.scene.create("square", Square, position=(4, 2))
    app.step()
    # 240 pixels for 12 units: 20 a unit. The square is 2 right of and 1 above the centre (160, 120).
    assert ink(app.graphics.read_pixels()) == (190, 90, 210, 110)
    assert camera.world_to_screen(4, 2) == pytest.approx((200, 100))
    assert camera.screen_to_world(200, 100) == pytest.approx((4, 2))
    camera.transform.angle = 90
    app.step()
    # Turned left, the camera sees what was right of it below.
    assert ink(app.graphics.read_pixels()) == (170, 150, 190, 170)
    assert camera.world_to_screen(4, 2) == pytest.approx((180, 160))
    assert camera.screen_to_world(180, 160) == pytest.approx((4, 2))


def test_order_of_renderers_and_cameras(make_drawing_app: MakeApp) -> None:
    app = make_drawing_app()
    app.graphics.background = "black"
    app.scene.create("red").add_component(Square, color="#ff0000", order=1)
    app.scene.create("white").add_component(Square, color="#ffffff")
    app.step()
    assert app.graphics.read_pixels()[120, 160].tolist() == RED
    app.scene.create("over").add_component(Camera2D, background="#0000ff", depth=2, height=1000.0)
    app.scene.create("under").add_component(Camera2D, background="#00ff00", depth=1)
    app.step()
    assert app.graphics.read_pixels()[10, 10].tolist() == [0, 0, 255]


def test_all_renderers_draw_in_the_default_view(make_drawing_app: MakeApp) -> None:
    app = make_drawing_app()
    app.graphics.background = "black"
    app.scene.create("text", position=(-3, 2)).add_component(TextRenderer, text="left", size=1.0)
    app.scene.create("line").add_component(LineRenderer, points=[(0, 0), (3, -2)], width=0.2)
    app.scene.create("sprite", position=(4, 3), rotation=45).add_component(SpriteRenderer, color="#ffffff")
    app.step()
    pixels = app.graphics.read_pixels()
    assert pixels[48:96, 40:136].any()
    assert pixels[144, 196].any()
    assert pixels[48, 256].tolist() == WHITE
    assert pixels[38, 246].tolist() == BLACK, "the corner of a square that is turned by 45 degrees"


def test_a_raising_renderer_is_disabled(make_drawing_app: MakeApp) -> None:
    class Broken(Renderer):
        def draw(self, canvas: Canvas) -> None:
            raise ValueError("no picture")

    app = make_drawing_app(on_error="log")
    app.graphics.background = "black"
    broken = app.scene.create("broken").add_component(Broken)
    app.scene.create("white", Square)
    app.step()
    assert not broken.enabled
    assert app.errors[0].where == "draw"
    assert app.graphics.read_pixels()[120, 160].tolist() == WHITE


def test_image_effects_chain_and_spare_the_gui(make_drawing_app: MakeApp) -> None:
    app = make_drawing_app()
    app.graphics.background = "#ff0000"
    first = app.scene.create("invert").add_component(Invert)
    app.step()
    assert app.graphics.read_pixels()[100, 100].tolist() == [0, 255, 255]
    assert app.graphics.read_pixels()[5, 5].tolist() == RED
    app.scene.create("invert").add_component(Invert)
    app.step()
    assert app.graphics.read_pixels()[100, 100].tolist() == RED
    first.enabled = False
    app.step()
    assert app.graphics.read_pixels()[100, 100].tolist() == [0, 255, 255]


def test_a_raising_effect_leaves_the_picture_before_it(make_drawing_app: MakeApp) -> None:
    class Broken(MonoBehaviour):
        def on_render_image(self, source: RenderTarget, destination: RenderTarget) -> None:
            destination.clear((1, 2, 3, 255))
            raise ValueError("half done")

    app = make_drawing_app(on_error="log")
    app.graphics.background = "#ff0000"
    app.scene.create("broken", Broken)
    app.step()
    assert app.graphics.read_pixels()[100, 100].tolist() == RED


def test_a_shader_that_does_not_compile_is_shown_with_line_numbers(make_drawing_app: MakeApp) -> None:
    app = make_drawing_app()
    with pytest.raises(GraphicsError, match=r"   5  void main\(\) \{ colour = 1.0; \}"):
        app.graphics.effect(
            "#version 330 core\nin vec2 uv;\nout vec4 color;\n\nvoid main() { colour = 1.0; }"
        )
    effect = app.graphics.effect(INVERT)
    with pytest.raises(GraphicsError, match="no uniform 'strenght'; it has: source, strength"):
        effect.apply(app.graphics.picture, app.graphics.render_target((4, 4)), {"strenght": 1.0})
