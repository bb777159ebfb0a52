"""Effects as components, against what their shaders compute."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gameglue import App, Color, GraphicsError, ImageEffect, RenderTarget, Texture

MakeApp = Callable[..., App]
pytestmark = pytest.mark.gl


class Gain(ImageEffect):
    """Multiplies by `factor`."""

    factor: float = 2.0
    shader = "vec4 effect(vec2 uv) { return picture(uv) * factor; }"


class Lift(ImageEffect):
    """Adds a colour, after all others."""

    execution_order = 5
    tint: Color = "#000000"
    shader = "vec4 effect(vec2 uv) { return picture(uv) + tint; }"


class Everything(ImageEffect):
    """Uses each kind of field."""

    count: int = 2
    on: bool = True
    place: tuple[float, float] = (0.25, 0.5)
    map: Texture | RenderTarget
    shader = """
    vec4 effect(vec2 uv) {
        float steps = on ? float(count) * 0.1 : 0.0;
        return vec4(texture(map, place).r, steps, (uv.y > 0.5 && size.x == 320.0) ? 1.0 : 0.0, time * 0.0);
    }
    """


def middle(app: App) -> list[int]:
    app.step()
    found: list[int] = app.graphics.read_pixels()[100, 100].tolist()
    return found


def test_strength_blends_from_the_picture_to_the_effect(make_drawing_app: MakeApp) -> None:
    app = make_drawing_app()
    app.graphics.background = "#402010"
    gain = app.scene.create("gain").add_component(Gain)
    assert middle(app) == [128, 64, 32]
    gain.strength = 0.5
    assert middle(app) == [96, 48, 24]
    gain.strength = 0.0
    assert middle(app) == [64, 32, 16]
    gain.strength, gain.factor = 1.0, 3  # a whole number is a float here too
    assert middle(app) == [192, 96, 48]


def test_effects_run_in_their_order(make_drawing_app: MakeApp) -> None:
    app = make_drawing_app()
    app.graphics.background = "#101010"
    app.scene.create("lift").add_component(Lift, tint="#080000")
    app.scene.create("gain").add_component(Gain, factor=4.0)
    assert middle(app) == [72, 64, 64], "the gain comes first, though it was added later"


def test_fields_of_every_kind_reach_the_shader(make_drawing_app: MakeApp) -> None:
    app = make_drawing_app()
    texture = app.graphics.texture(np.array([[50, 200]], np.uint8), smooth=False)
    app.scene.create("all").add_component(Everything, map=texture)
    app.step()
    pixels = app.graphics.read_pixels()
    assert pixels[10, 10].tolist() == [50, 51, 255]
    assert pixels[230, 10].tolist() == [50, 51, 0]


def test_faults_name_the_effect(make_drawing_app: MakeApp) -> None:
    class Nothing(ImageEffect):
        shader = "void main() {}"

    class Wrong(ImageEffect):
        name_of_it: list[int] = [1]
        shader = "vec4 effect(vec2 uv) { return picture(uv); }"

    class Broken(ImageEffect):
        shader = "vec4 effect(vec2 uv) { return colour; }"

    for kind, fault in (
        (Nothing, "Nothing.shader must hold a function `vec4 effect"),
        (Wrong, "Wrong.name_of_it cannot be given to a shader"),
        (Broken, r"  \d+  vec4 effect\(vec2 uv\) \{ return colour; \}"),
    ):
        app = make_drawing_app(on_error="log")
        app.graphics.background = "#402010"
        app.scene.create("effect").add_component(kind)
        assert middle(app) == [64, 32, 16], "the picture before it stands"
        with pytest.raises(GraphicsError, match=fault):
            raise app.errors[0].error


def test_effects_free_their_shaders(make_drawing_app: MakeApp) -> None:
    app = make_drawing_app()
    app.step()
    before = app.graphics.device.live_objects
    effects = [app.scene.create("gain").add_component(Gain) for _ in range(2)]
    app.step()
    for effect in effects:
        effect.game_object.destroy()
    app.step()
    assert app.graphics.device.live_objects <= before + 1, "the second picture of the chain stays"


def test_without_opengl_nothing_happens(make_app: MakeApp) -> None:
    app = make_app(on_error="raise")
    app.scene.create("gain").add_component(Gain)
    app.run(frames=2)
