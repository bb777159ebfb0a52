"""Frames of the game itself, each drawn twice: with all its pixels, and with a quarter of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from demos.upscale.city import City
from gameglue import App

SIZE = (640, 480)
HALF = (320, 240)
Pixels = npt.NDArray[np.uint8]


def frames(seeds: range, each: int) -> tuple[Pixels, Pixels]:
    """`each` moments of the city of each seed: (n, 3, 240, 320) and (n, 3, 480, 640), uint8.

    Raises RuntimeError where there is no OpenGL to draw with (Mesa's software renderer is enough).
    """
    pairs = []
    for size in (HALF, SIZE):
        with App("frames", size=size, headless=True, seed=0) as app:
            if app.ctx is None:
                raise RuntimeError("there is no OpenGL here; the frames are drawn by the game itself")
            pairs.append([picture for seed in seeds for picture in _city(app, seed, each)])
    low, high = (np.stack(many) for many in pairs)
    return low, high


def _city(app: App, seed: int, each: int) -> list[Pixels]:
    rng = np.random.default_rng(seed)
    scene = app.new_scene()
    app.load_scene(scene)
    city = scene.create("city").add_component(City, seed=seed, moves=False)
    seen = []
    for _ in range(each):
        city.clock = float(rng.uniform(0.0, 120.0))
        city.height, city.fare_height = (float(h) for h in rng.uniform(-2.0, 4.0, 2))
        city.fare_at, city.fares = float(rng.uniform(-2.0, 6.0)), int(rng.integers(100))
        app.step()
        seen.append(np.ascontiguousarray(app.graphics.read_pixels().transpose(2, 0, 1)))
    return seen
