"""`ImageEffect`: a full-screen fragment shader, with its uniforms as fields of a component."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar

from gameglue.errors import GraphicsError
from gameglue.graphics.colors import Color, parse_color
from gameglue.graphics.device import Effect, RenderTarget, Texture
from gameglue.scripting.behaviour import MonoBehaviour
from gameglue.scripting.fields import Range, fields_of

_BASE_FIELDS = ("strength",)


class ImageEffect(MonoBehaviour):
    """Changes the image after the cameras have drawn: subclass it, and write `effect` in GLSL.

        class Tint(ImageEffect):
            tint: Color = "#ffcc88"
            amount: float = 0.5
            shader = "vec4 effect(vec2 uv) { return mix(picture(uv), tint, amount * uv.y); }"

        app.scene.create("tint").add_component(Tint, strength=0.8)

    `picture(uv)` is the image so far, (0, 0) at its bottom left. Fields are there under their names:
    numbers as `float`, `int` and `bool`, tuples of two to four as `vec2` to `vec4`, colours as `vec4`,
    images as `sampler2D`; besides `time`, seconds of game time, and `size`, pixels across and down.
    Effects run in the order of `execution_order`, each on the previous one's result.
    """

    shader: ClassVar[str] = ""
    """GLSL with a function `vec4 effect(vec2 uv)`."""
    strength: Annotated[float, Range(0.0, 1.0)] = 1.0
    """From the image as it was (0, which costs nothing) to the effect (1)."""

    _effect: Effect | None = None

    def on_render_image(self, source: RenderTarget, destination: RenderTarget) -> None:
        """Draw `source` through the shader."""
        values = self._values()
        if self._effect is None:
            self._effect = self.app.graphics.effect(self._source(values))
        values |= {"strength": min(max(float(self.strength), 0.0), 1.0), "time": self.time.time}
        values["size"] = (float(destination.size[0]), float(destination.size[1]))
        # Drivers leave out what the shader does not use.
        self._effect.apply(source, destination, {k: v for k, v in values.items() if k in self._effect})

    def on_destroy(self) -> None:
        """Free the shader."""
        if self._effect is not None:
            self._effect.release()
            self._effect = None

    def _values(self) -> dict[str, Any]:
        """The fields as uniforms: of the types that their annotations say, colours as four numbers."""
        found: dict[str, Any] = {}
        for name, field in fields_of(type(self)).items():
            value = getattr(self, name)
            if name in _BASE_FIELDS:
                continue
            if field.annotation is float:
                value = float(value)
            elif field.annotation == Color or isinstance(value, str):
                value = tuple(channel / 255 for channel in parse_color(value))
            found[name] = value
        return found

    def _source(self, values: dict[str, Any]) -> str:
        kind = type(self).__name__
        if not re.search(r"\bvec4\s+effect\s*\(\s*vec2\b", self.shader):
            raise GraphicsError(f"{kind}.shader must hold a function `vec4 effect(vec2 uv)`")
        uniforms = [f"uniform {_glsl_type(kind, name, value)} {name};" for name, value in values.items()]
        return "\n".join(
            (
                "#version 330 core",
                "in vec2 uv;",
                "out vec4 color;",
                "uniform sampler2D source;",
                "uniform float strength, time;",
                "uniform vec2 size;",
                *uniforms,
                "vec4 picture(vec2 place) { return texture(source, place); }",
                self.shader.strip(),
                "void main() { color = vec4(mix(picture(uv).rgb, effect(uv).rgb, strength), 1.0); }",
            )
        )


def _glsl_type(kind: str, name: str, value: object) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int"
    if isinstance(value, float):
        return "float"
    if isinstance(value, Texture | RenderTarget):
        return "sampler2D"
    if isinstance(value, tuple) and 2 <= len(value) <= 4:
        return f"vec{len(value)}"
    raise GraphicsError(
        f"{kind}.{name} cannot be given to a shader: {value!r}; use numbers, colours, tuples of 2 to 4 "
        "numbers and pictures, and begin the names of other attributes with an underscore"
    )
