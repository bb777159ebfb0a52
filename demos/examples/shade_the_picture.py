"""An image effect by a shader: the component's fields are its uniforms."""

from gameglue import App, ImageEffect, SpriteRenderer


class Vignette(ImageEffect):
    """Darkens the picture towards its corners."""

    amount: float = 1.5
    shader = """
        vec4 effect(vec2 uv) {
            vec2 away = uv - 0.5;
            return vec4(picture(uv).rgb * max(0.0, 1.0 - amount * dot(away, away)), 1.0);
        }"""


def main() -> Vignette:
    """A village at dusk."""
    with App("vignette", size=(480, 320), headless=True) as app:
        app.scene.create("village").add_component(SpriteRenderer, texture="chatter/village.png", width=15.0)
        effect = app.scene.create("effect").add_component(Vignette, amount=2.0)
        app.run(frames=3)
        print(f"amount {effect.amount}, strength {effect.strength}")
    return effect


if __name__ == "__main__":
    main()
