"""What is drawn, pixel by pixel: sizes, places and colours that follow from the calls by arithmetic."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import moderngl
import numpy as np
import pygame
import pytest

from engine.device.gl.counting import CountingLoader
from gameglue import (
    App,
    Camera2D,
    MonoBehaviour,
    RenderTarget,
    SpriteRenderer,
)
from gameglue.graphics.canvas import Align
from gameglue.graphics.context import flush_call
from gameglue.graphics.device import GraphicsDevice

pytestmark = pytest.mark.gl

MakeApp = Callable[..., App]
BLACK, WHITE, RED = [0, 0, 0], [255, 255, 255], [255, 0, 0]


def drawn(app: App, draw: Callable[[], object]) -> np.ndarray:
    """The picture of a frame in which `draw` is called in `on_gui`, on black; (height, width, 3)."""

    class Draws(MonoBehaviour):
        def on_gui(self) -> None:
            draw()

    app.graphics.background = "black"
    owner = app.scene.create("draws", Draws)
    app.step()
    app._lifecycle.remove(owner)
    return app.graphics.read_pixels()


def ink(pixels: np.ndarray) -> tuple[int, int, int, int]:
    """Left, top, right and bottom (exclusive) of what is not black."""
    lit: np.ndarray = pixels.max(axis=2) > 0
    columns, rows = np.flatnonzero(lit.any(axis=0)), np.flatnonzero(lit.any(axis=1))
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def test_a_rectangle_fills_exactly_its_pixels(make_drawing_app: MakeApp) -> None:
    app = make_drawing_app()
    pixels = drawn(app, lambda: app.gui.rect(10, 20, 30, 40, "#ff0000"))
    expected = np.zeros((240, 320, 3), np.uint8)
    expected[20:60, 10:40] = RED
    assert np.array_equal(pixels, expected)


@pytest.mark.parametrize("radius", [0.0, 14.0])
def test_a_wide_frame_looks_like_one_that_is_drawn_at_once(make_drawing_app: MakeApp, radius: float) -> None:
    app = make_drawing_app(size=(320, 240))
    wide = drawn(app, lambda: app.gui.rect(20, 30, 240, 160, "#ffffff", radius, border=3))
    # A colour that runs to another one keeps the frame from being drawn as lines; here hardly.
    far = "#fefefe"
    whole = drawn(app, lambda: app.gui.rect(20, 30, 240, 160, "#ffffff", radius, border=3, color2=far))
    difference = np.abs(wide.astype(int) - whole)
    assert difference.max() < 64  # of 255: where two lines meet at the rim
    assert (difference > 10).mean() < 0.002
    assert wide[110, 21].max() == 255
    assert wide[110, 25].max() < 255


def test_a_border_leaves_the_inside_free(make_drawing_app: MakeApp) -> None:
    app = make_drawing_app()
    pixels = drawn(app, lambda: app.gui.rect(10, 20, 30, 40, "#ffffff", border=3))
    expected = np.zeros((240, 320), np.uint8)
    expected[20:60, 10:40] = 255
    expected[23:57, 13:37] = 0
    assert np.array_equal(pixels[..., 0], expected)


def test_a_disc_has_the_area_and_the_smooth_edge_of_a_disc(make_drawing_app: MakeApp) -> None:
    app = make_drawing_app()
    pixels = drawn(app, lambda: app.gui.circle(100.3, 90.8, 30, "white"))[..., 0] / 255.0
    assert pixels.sum() == pytest.approx(np.pi * 30**2, rel=0.005)
    assert ((pixels > 0.1) & (pixels < 0.9)).sum() > 60
    rows, columns = np.mgrid[:240, :320] + 0.5
    assert (pixels * columns).sum() / pixels.sum() == pytest.approx(100.3, abs=0.05)
    assert (pixels * rows).sum() / pixels.sum() == pytest.approx(90.8, abs=0.05)


@pytest.mark.parametrize("width", [0.5, 1.0, 4.0, 9.0])
def test_a_line_has_the_weight_of_its_width(make_drawing_app: MakeApp, width: float) -> None:
    app = make_drawing_app()
    pixels = drawn(app, lambda: app.gui.line(50, 50, 250, 150, "white", width=width))[..., 0] / 255.0
    length = np.hypot(200, 100)
    ends = np.pi * (max(width, 1) / 2) ** 2 * min(width, 1)
    assert pixels.sum() == pytest.approx(length * width + ends, rel=0.06)


def test_blending_and_drawing_order(make_drawing_app: MakeApp) -> None:
    app = make_drawing_app()

    def draw() -> None:
        app.gui.rect(0, 0, 10, 10, "#ff0000")
        app.gui.rect(0, 0, 10, 10, (0.0, 0.0, 1.0, 0.5))
        app.gui.rect(20, 0, 10, 10, "#00f")
        app.gui.rect(20, 0, 10, 10, "#0f0")

    pixels = drawn(app, draw)
    assert pixels[5, 5].tolist() == pytest.approx([127, 0, 128], abs=1)
    assert pixels[5, 25].tolist() == [0, 255, 0]


def test_gradients_and_shadows(make_drawing_app: MakeApp) -> None:
    app = make_drawing_app()
    app.graphics.background = "white"

    def draw() -> None:
        app.gui.rect(0, 0, 320, 240, "white")
        app.gui.rect(100, 80, 50, 50, "#000000", color2="#ff0000", shadow=10)

    pixels = drawn(app, draw)
    column = pixels[80:130, 125, 0].astype(int)
    assert column[0] < 6
    assert column[-1] > 249
    assert np.all(np.diff(column) > 0)
    assert 60 < pixels[131, 125, 0] < 255
    assert pixels[170, 125, 0] == 255


def test_a_texture_shows_its_rows_from_the_top(make_drawing_app: MakeApp) -> None:
    app = make_drawing_app()
    picture = np.zeros((2, 2, 3), np.uint8)
    picture[0, 0], picture[0, 1], picture[1, 0] = (255, 0, 0), (0, 255, 0), (0, 0, 255)
    texture = app.graphics.texture(picture, smooth=False)
    pixels = drawn(app, lambda: app.gui.image(texture, 10, 10, 20, 20))
    assert pixels[12, 12].tolist() == [255, 0, 0]
    assert pixels[12, 27].tolist() == [0, 255, 0]
    assert pixels[27, 12].tolist() == [0, 0, 255]
    assert pixels[27, 27].tolist() == BLACK


def test_the_world_shows_pictures_upright_too(make_drawing_app: MakeApp) -> None:
    app = make_drawing_app()
    picture = np.zeros((2, 2), np.uint8)
    picture[0, 0] = 255
    app.graphics.background = "black"
    texture = app.graphics.texture(picture, smooth=False)
    app.scene.create("camera").add_component(Camera2D, height=24.0, background="black")
    app.scene.create("sprite").add_component(SpriteRenderer, texture=texture, width=4.0)
    app.step()
    assert ink(app.graphics.read_pixels()) == (140, 100, 160, 120)


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.full((1, 1), 0.5, np.float32), [128, 128, 128]),
        (np.full((1, 1), 2.0), WHITE),
        (np.full((1, 1), np.nan), BLACK),
        (np.ones((1, 1), np.bool_), WHITE),
        (np.full((1, 1), 7, np.uint8), [7, 7, 7]),
        (np.array([[[1.0, 0.0, 0.5]]]), [255, 0, 128]),
        (np.array([[[10, 20, 30, 255]]], np.uint8), [10, 20, 30]),
    ],
)
def test_arrays_become_colours(make_drawing_app: MakeApp, array: np.ndarray, expected: list[int]) -> None:
    app = make_drawing_app()
    texture = app.graphics.texture(array)
    pixels = drawn(app, lambda: app.gui.image(texture, 0, 0, 8, 8))
    assert pixels[4, 4].tolist() == expected


def test_a_texture_takes_a_new_picture_every_frame(make_drawing_app: MakeApp) -> None:
    app = make_drawing_app()
    texture = app.graphics.texture(size=(5, 3))
    for value in (10, 200):
        texture.write(np.full((3, 5, 3), value, np.uint8))
        pixels = drawn(app, lambda: app.gui.image(texture, 0, 0))
        assert np.all(pixels[:3, :5] == value)
        assert not pixels[3:].any()
    with pytest.raises(ValueError, match=r"takes pixels of shape \(3, 5, '3 or 4'\), got \(5, 3, 3\)"):
        texture.write(np.zeros((5, 3, 3), np.uint8))
    with pytest.raises(ValueError, match="got"):
        texture.write(np.zeros((3, 5), np.uint8))


def test_parts_of_a_picture_and_many_sprites(make_drawing_app: MakeApp) -> None:
    app = make_drawing_app()
    sheet = app.graphics.texture(np.array([[50, 100, 150, 200]], np.uint8), smooth=False)
    dot = app.graphics.texture(np.full((2, 2), 255, np.uint8))

    def draw() -> None:
        app.gui.sprite(sheet, 10, 10, 10, 10, region=(0.5, 0.0, 0.75, 1.0))
        app.gui.sprites(dot, np.array([[50, 50], [80, 50], [110, 50]]), 4.0, colors=np.eye(3))

    pixels = drawn(app, draw)
    assert pixels[10, 10].tolist() == [150] * 3
    assert [pixels[50, x].tolist() for x in (50, 80, 110)] == (np.eye(3, dtype=int) * 255).tolist()
    assert pixels[50, 65].tolist() == BLACK


def test_far_more_quads_than_one_buffer_holds(make_drawing_app: MakeApp) -> None:
    app = make_drawing_app()
    xs, ys = np.meshgrid(np.arange(0.5, 320), np.arange(0.5, 120))
    centers = np.stack((xs.ravel(), ys.ravel()), axis=1)
    assert len(centers) > 2 * 16384
    pixels = drawn(app, lambda: app.gui.sprites(app.graphics.white, centers, 1.0))
    assert np.all(pixels[:120] == 255)
    assert not pixels[120:].any()


def test_text_is_written_where_it_is_asked_for(make_drawing_app: MakeApp) -> None:
    app = make_drawing_app()
    width, height = app.gui.measure("Hello", size=30)
    places: list[tuple[Align, float]] = [("left", 100.0), ("center", 100 - width / 2), ("right", 100 - width)]
    for align, left in places:
        pixels = drawn(app, functools.partial(app.gui.text, "Hello", 100, 50, size=30, align=align))
        x0, y0, x1, y1 = ink(pixels)
        assert x0 == pytest.approx(left, abs=4)
        assert x1 == pytest.approx(left + width, abs=4)
        assert 50 <= y0 < y1 <= 50 + height


def test_text_is_what_pygame_renders_four_times_larger_averaged(make_drawing_app: MakeApp) -> None:
    app = make_drawing_app()
    pixels = drawn(app, lambda: app.gui.text("Hi", 20, 10, size=24, color="white"))[..., 0]
    font = pygame.font.Font(str(app.graphics.fonts.default), 96)
    large = pygame.surfarray.array_alpha(font.render("Hi", True, "white")).T
    down = round(font.get_ascent() / 4) * 4 - font.get_ascent()
    sheet = np.zeros((160, 160))
    sheet[down + 4 : down + 4 + large.shape[0], : large.shape[1]] = large
    expected = sheet.reshape(40, 4, 40, 4).mean(axis=(1, 3))
    assert np.abs(pixels[9:49, 20:60] - expected).max() <= 1


def test_large_text_is_what_pygame_renders(make_drawing_app: MakeApp) -> None:
    app = make_drawing_app()
    pixels = drawn(app, lambda: app.gui.text("Hi", 20, 10, size=60, color="white"))[..., 0]
    font = pygame.font.Font(str(app.graphics.fonts.default), 60)
    alpha = pygame.surfarray.array_alpha(font.render("Hi", True, "white")).T
    rows, columns = alpha.shape
    assert np.abs(pixels[10 : 10 + rows, 20 : 20 + columns].astype(int) - alpha).max() <= 1


def test_several_lines_and_missing_characters(make_drawing_app: MakeApp) -> None:
    app = make_drawing_app()
    one, two = app.gui.measure("abc", size=20), app.gui.measure("abc\nab", size=20)
    assert two == (one[0], 2 * one[1])
    assert app.gui.measure("", size=20)[0] == 0
    pixels = drawn(app, lambda: app.gui.text("\u4e2d\U0001f600\x00", 10, 10, size=20))
    assert pixels.any(), "a character that the font lacks is shown as a box"


def test_the_atlas_grows_and_starts_over_when_it_is_full(make_drawing_app: MakeApp) -> None:
    app = make_drawing_app()
    reference = drawn(app, lambda: app.gui.text("Wg", 10, 10, size=40))
    letters = "".join(chr(c) for c in range(33, 127))
    for size in range(60, 200, 10):
        drawn(app, functools.partial(app.gui.text, letters, 0, 0, size=size))
    for _ in range(2):
        after = drawn(app, lambda: app.gui.text("Wg", 10, 10, size=40))
    assert np.array_equal(after, reference)


def test_a_plot_draws_its_values(make_drawing_app: MakeApp) -> None:
    app = make_drawing_app()
    values = np.array([0.0, 0.0, 1.0, 1.0, np.nan, 0.5, 0.5])
    plot = lambda: app.gui.plot(10, 20, 120, 100, values, low=0, high=1, color="white", fill=False)  # noqa: E731
    pixels = drawn(app, plot)[..., 0]
    assert pixels[20, 60] > 200
    assert pixels[70, 120] > 200
    assert pixels[60:80, 75:105].max() == 0, "a value that is not a number leaves a gap"
    app.gui.plot(0, 0, 10, 10, [])
    app.gui.plot(0, 0, 10, 10, [np.nan, np.nan])
    app.gui.bars(0, 0, 10, 10, [])


def test_bars_and_meter_have_the_heights_of_their_values(make_drawing_app: MakeApp) -> None:
    app = make_drawing_app()

    def draw() -> None:
        app.gui.bars(
            0,
            0,
            100,
            100,
            [0.25, 1.0],
            high=1.0,
            color="#fff",
            highlight=1,
            highlight_color="#f00",
            back="#00000000",
        )
        app.gui.progress_bar(0, 150, 200, 10, 0.5, color="#ff0000")

    pixels = drawn(app, draw)
    assert pixels[70, 25].tolist() == BLACK
    assert pixels[80, 25].tolist() == WHITE
    assert pixels[5, 75].tolist() == RED
    assert pixels[155, 90].tolist() == RED
    assert pixels[155, 110].tolist() != RED


def test_a_screenshot_is_the_picture(make_drawing_app: MakeApp, tmp_path: Path) -> None:
    class Shoots(MonoBehaviour):
        def update(self) -> None:
            if self.time.frame_count == 2:
                self.app.screenshot(tmp_path / "during.png")

        def on_gui(self) -> None:
            self.app.gui.rect(0, 0, self.time.frame_count * 10, 10, "#ffffff")
            self.app.gui.rect(300, 220, 20, 20, "#0080ff")

    app = make_drawing_app()
    app.graphics.background = "black"
    app.scene.create("shoots", Shoots)
    app.run(frames=3)
    app.screenshot(tmp_path / "sub" / "after.png")
    after = pygame.image.load(str(tmp_path / "sub" / "after.png"))
    assert after.get_size() == (320, 240)
    pixels = pygame.surfarray.array3d(after).transpose(1, 0, 2)
    assert np.array_equal(pixels, app.graphics.read_pixels())
    assert pixels[5, 29].tolist() == WHITE
    assert pixels[5, 30].tolist() == BLACK
    assert pixels[239, 319].tolist() == [0, 128, 255]
    during = pygame.image.load(str(tmp_path / "during.png"))
    assert during.get_at((19, 5))[:3] == (255, 255, 255)
    assert during.get_at((20, 5))[:3] == (0, 0, 0), "asked for in update, it still shows its own frame"


def test_drawing_is_right_under_hostile_state(make_drawing_app: MakeApp, game: moderngl.Context) -> None:
    app = make_drawing_app()

    def draw() -> None:
        app.gui.rect(10, 20, 30, 40, (1.0, 0.0, 0.0, 0.5), radius=6)
        app.gui.text("abc", 100, 100, size=30)

    expected = drawn(app, draw)
    state: Any = game  # The stubs know only some forms of these attributes.
    other = game.simple_framebuffer((16, 16))
    sampler = game.sampler(filter=(moderngl.NEAREST, moderngl.NEAREST))
    other.use()
    game.enable(moderngl.DEPTH_TEST | moderngl.CULL_FACE | moderngl.RASTERIZER_DISCARD)
    game.scissor = (0, 0, 3, 3)
    game.viewport = (0, 0, 5, 5)
    game.blend_func = moderngl.ONE, moderngl.ONE
    state.blend_equation = moderngl.FUNC_REVERSE_SUBTRACT
    sampler.use(0)
    try:
        assert np.array_equal(drawn(app, draw), expected)
    finally:
        game.enable_only(moderngl.NOTHING)
        game.clear_samplers()
        state.scissor = None
        state.blend_equation = moderngl.FUNC_ADD
        sampler.release()
        other.release()


def test_everything_is_released_with_the_app(make_drawing_app: MakeApp, game: moderngl.Context) -> None:
    app = make_drawing_app()
    app.scene.create("invert", Invert)
    texture = app.graphics.texture(np.zeros((4, 4), np.uint8))
    app.run(frames=2)
    device: GraphicsDevice = app.graphics.device
    assert device.live_objects > 5
    picture = app.graphics.picture.texture
    assert picture is not None
    app.dispose()
    assert device.live_objects == 0
    assert texture.texture is None
    assert isinstance(picture.mglo, moderngl.InvalidObject)
    assert not isinstance(game.mglo, moderngl.InvalidObject), "a context that was given stays the caller's"


def test_releasing_a_texture_early(make_drawing_app: MakeApp) -> None:
    app = make_drawing_app()
    texture = app.graphics.texture(np.zeros((4, 4), np.uint8))
    count = app.graphics.device.live_objects
    texture.release()
    texture.release()
    assert app.graphics.device.live_objects == count - 1
    texture.write(np.zeros((4, 4), np.uint8))


INVERT = """
#version 330 core
in vec2 uv;
uniform sampler2D source;
uniform float strength;
out vec4 color;
void main() {
    vec3 old = texture(source, uv).rgb;
    color = vec4(mix(old, 1.0 - old, strength), 1.0);
}
"""


class Invert(MonoBehaviour):
    """An image effect."""

    strength: float = 1.0

    def start(self) -> None:
        self.effect = self.app.graphics.effect(INVERT)

    def on_render_image(self, source: RenderTarget, destination: RenderTarget) -> None:
        self.effect.apply(source, destination, {"strength": self.strength})

    def on_gui(self) -> None:
        self.app.gui.rect(0, 0, 10, 10, "#ff0000")


class Busy(MonoBehaviour):
    """Draws something of every kind in every frame."""

    def start(self) -> None:
        self.texture = self.app.graphics.texture(size=(64, 64))

    def update(self) -> None:
        self.texture.write(self.app.random.random((64, 64, 3), np.float32))

    def on_gui(self) -> None:
        gui = self.app.gui
        gui.text(f"frame {self.time.frame_count}", 10, 10)
        gui.text(chr(33 + self.time.frame_count), 200, 10, size=20 + self.time.frame_count)
        gui.image(self.texture, 10, 40)
        gui.panel(100, 40, 100, 100, "panel")
        gui.plot(110, 70, 80, 60, self.app.profiler.work.latest(50))
        gui.image(self.app.graphics.white, 210, 40, 20, 20)


def test_a_frame_makes_no_blocking_opengl_call(game: moderngl.Context) -> None:
    """Calls that wait, counted between the context and moderngl, while one of everything is drawn."""
    loader = CountingLoader(game.mglo._context)
    watched = moderngl.create_context(context=loader)  # type: ignore[arg-type]
    app = App("test", context=watched, size=(320, 240), on_error="raise")
    try:
        app.overlay.visible = True
        app.scene.create("busy", Busy)
        app.scene.create("sprite", SpriteRenderer)
        app.scene.create("invert", Invert)
        app.run(frames=2)
        with loader.watching() as seen:
            app.run(frames=30)
        assert not seen, f"blocking calls in 30 frames: {dict(seen)}"
        with loader.watching() as seen:
            app.graphics.read_pixels()
        assert seen, "the counter must be able to see a blocking call"
    finally:
        app.dispose()


def test_flush_is_found(game: moderngl.Context) -> None:
    flush_call(game)()
    assert game.error == "GL_NO_ERROR"
