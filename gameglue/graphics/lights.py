"""Light components of a scene."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Annotated, Final

import numpy as np

from gameglue.graphics.colors import Color, parse_color
from gameglue.scripting.behaviour import MonoBehaviour
from gameglue.scripting.fields import Range

MAX_LIGHTS: Final = 4
_WHITE = (1.0, 1.0, 1.0)


class DirectionalLight(MonoBehaviour):
    """A light from one direction, like the sun: it shines along its object's `forward`.

    The first four that are enabled count; of those with `shadows`, the first one casts them.
    """

    color: Color = "white"
    """The light's colour."""
    intensity: Annotated[float, Range(0.0, inf)] = 1.0
    """Multiplies the colour."""
    shadows: bool = False
    """Let opaque meshes cast shadows."""
    shadow_range: Annotated[float, Range(0.0, inf, "units")] = 12.0
    """Shadows reach this far around a point that is this far ahead of the camera."""


class AmbientLight(MonoBehaviour):
    """Uniform light from all directions.

    A scene without one has a little of it; an `intensity` of 0 takes that away.
    """

    color: Color = "white"
    """Light from above."""
    ground: Color | None = None
    """Light from below; `None` is `color`."""
    intensity: Annotated[float, Range(0.0, inf)] = 0.3
    """Multiplies both colours."""


@dataclass(frozen=True)
class Shadow:
    """The index of the shadow-casting light, and the shadow distance."""

    light: int
    reach: float


@dataclass(frozen=True)
class Lights:
    """All light of a scene, as numbers that a shader takes; colours from 0 to 1 times the intensity.

    sky, ground: (3,) light from above and from below. towards: (n, 3) unit vectors to each directional light;
    colors: (n, 3).
    """

    sky: np.ndarray
    ground: np.ndarray
    towards: np.ndarray
    colors: np.ndarray
    shadow: Shadow | None = None

    @classmethod
    def of(cls, suns: Iterable[DirectionalLight], ambients: Iterable[AmbientLight]) -> Lights:
        """Sum up a scene's lights.

        A scene that has none gets daylight from above, left and in front; one with directional lights only
        gets daylight's share from everywhere, as shadows are nowhere black.
        """
        sun, glow = list(suns)[:MAX_LIGHTS], list(ambients)
        if not sun and not glow:
            return DAYLIGHT
        sky, ground = np.zeros(3, np.float32), np.zeros(3, np.float32)
        if not glow:
            sky, ground = DAYLIGHT.sky, DAYLIGHT.ground
        for light in glow:
            sky += _rgb(light.color, light.intensity)
            ground += _rgb(light.color if light.ground is None else light.ground, light.intensity)
        towards = np.array([-light.transform.forward for light in sun], np.float32).reshape(-1, 3)
        colors = np.array([_rgb(light.color, light.intensity) for light in sun], np.float32).reshape(-1, 3)
        throwing = ((k, light) for k, light in enumerate(sun) if light.shadows and light.shadow_range > 0.0)
        shadow = next((Shadow(k, light.shadow_range) for k, light in throwing), None)
        return cls(sky, ground, towards, colors, shadow)


def _rgb(color: Color, intensity: float) -> np.ndarray:
    return np.array(parse_color(color)[:3], np.float32) / 255.0 * np.float32(intensity)


DAYLIGHT: Final = Lights(
    np.array(_WHITE, np.float32) * 0.35,
    np.array(_WHITE, np.float32) * 0.2,
    np.array([[-0.4, 0.8, 0.447]], np.float32) / np.linalg.norm([-0.4, 0.8, 0.447]).astype(np.float32),
    np.array([_WHITE], np.float32) * 0.75,
)
