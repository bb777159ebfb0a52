"""Pictures to learn from: lit spheres, boxes and pillars on a ground under a sky, cast ray by ray.

Everything is random: how many things there are, where, how large, in which colours, how blotchy, and where
the light comes from. They look like the demo's scene without being it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
WIDTH, HEIGHT = 240, 160


def _unit(v: npt.ArrayLike) -> Floats:
    a = np.asarray(v, np.float32)
    return np.asarray(a / np.linalg.norm(a, axis=-1, keepdims=True), np.float32)


def _color(rng: np.random.Generator) -> Floats:
    """A colour with some strength: full ones are as likely as pale ones."""
    base = rng.random(3)
    base = (base - base.min()) / max(float(np.ptp(base)), 1e-3)
    full = rng.uniform(0.25, 1.0)
    return np.asarray(
        (base * full + (1.0 - full) * rng.uniform(0.3, 1.0)) * rng.uniform(0.65, 1.1), np.float32
    )


def _blotches(points: Floats, rng: np.random.Generator) -> Floats:
    """Smooth noise at points (n, 3), about -1 to 1: a few waves in random directions."""
    waves = rng.normal(0.0, 1.0, (3, 8)) * rng.uniform(1.0, 5.0, 8)
    phases = rng.uniform(0.0, 2 * np.pi, 8)
    return np.asarray(np.sin(points @ waves.astype(np.float32) + phases).mean(axis=1) * 2.0, np.float32)


def _sphere(origin: Floats, rays: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Distance along each ray (inf where it misses) and normals."""
    radius = rng.uniform(0.4, 1.5)
    center = np.array([rng.uniform(-4, 4), radius * rng.uniform(0.6, 2.5), rng.uniform(-3, 5)], np.float32)
    off = origin - center
    b = rays @ off
    square = b * b - (off @ off - radius * radius)
    t = -b - np.sqrt(np.maximum(square, 0.0))
    t = np.where((square > 0.0) & (t > 0.1), t, np.inf)
    hit = origin + rays * np.where(np.isfinite(t), t, 0.0)[:, None]
    return t.astype(np.float32), ((hit - center) / radius).astype(np.float32)


def _box(origin: Floats, rays: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """The same of a box that is turned about the upright axis; a third of them are tall, as pillars."""
    half = rng.uniform(0.25, 0.9, 3)
    if rng.random() < 0.33:
        half *= (0.6, 3.0, 0.6)
    angle = rng.uniform(0.0, np.pi)
    turn = np.array([[np.cos(angle), 0, np.sin(angle)], [0, 1, 0], [-np.sin(angle), 0, np.cos(angle)]])
    center = np.array([rng.uniform(-4, 4), half[1] * rng.uniform(0.9, 1.6), rng.uniform(-3, 5)])
    o = (turn @ (origin - center)).astype(np.float32)
    d = (rays @ turn.T).astype(np.float32)
    inverse = 1.0 / np.where(np.abs(d) < 1e-6, np.float32(1e-6), d)
    near, far = (-np.sign(inverse) * half - o) * inverse, (np.sign(inverse) * half - o) * inverse
    t, out = near.max(axis=1), far.min(axis=1)
    axis = near.argmax(axis=1)
    local = np.zeros_like(d)
    rows = np.arange(len(d))
    local[rows, axis] = -np.sign(d[rows, axis])
    t = np.where((t < out) & (t > 0.1), t, np.inf)
    return t.astype(np.float32), (local @ turn).astype(np.float32)


def _camera(rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Where the eye is, and a ray through each pixel: (HEIGHT * WIDTH, 3), top row first."""
    angle, away = rng.uniform(0.0, 2 * np.pi), rng.uniform(4.0, 9.0)
    eye = np.array([away * np.sin(angle), rng.uniform(1.0, 4.5), 1.0 - away * np.cos(angle)], np.float32)
    forward = _unit(np.array([rng.uniform(-1, 1), rng.uniform(0.3, 1.8), rng.uniform(0, 2)]) - eye)
    right = _unit(np.cross(forward, (0.0, 1.0, 0.0)))
    up = np.cross(right, forward)
    zoom = np.tan(np.radians(rng.uniform(20.0, 32.0)))
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH].astype(np.float32)
    across = (2.0 * (x + 0.5) / WIDTH - 1.0) * zoom * WIDTH / HEIGHT
    upward = (1.0 - 2.0 * (y + 0.5) / HEIGHT) * zoom
    rays = forward + across[..., None] * right + upward[..., None] * up
    return eye, _unit(rays.reshape(-1, 3))


def picture(rng: np.random.Generator) -> Floats:
    """One picture, (3, HEIGHT, WIDTH) float32 from 0 to 1."""
    eye, rays = _camera(rng)
    sun = _unit([rng.uniform(-1, 1), rng.uniform(0.5, 1.2), rng.uniform(-1, 1)])
    ambient = rng.uniform(0.2, 0.5)
    low, high = _color(rng), _color(rng)
    upward = np.clip(rays[:, 1] * rng.uniform(1.0, 3.0), 0.0, 1.0)[:, None]
    colors = low * (1 - upward) + high * upward
    nearest = np.full(len(rays), np.inf, np.float32)

    def put(t: Floats, normals: Floats, color: Floats, check: float) -> None:
        seen = t < nearest
        nearest[seen] = t[seen]
        points = eye + rays[seen] * t[seen, None]
        shade = ambient + (1.0 - ambient) * np.clip(normals[seen] @ sun, 0.0, 1.0)
        tint = 1.0 + rng.uniform(0.0, 0.35) * _blotches(points, rng)
        if check > 0.0:
            tint = tint * np.where((np.floor(points / check).sum(axis=1) % 2) > 0, 1.0, rng.uniform(0.5, 0.9))
        colors[seen] = color * (shade * tint)[:, None]

    with np.errstate(divide="ignore", invalid="ignore"):
        down = -eye[1] / rays[:, 1]
        ground = np.where((down > 0.0) & (down < 60.0), down, np.inf).astype(np.float32)
        flat = np.broadcast_to(np.array([0.0, 1.0, 0.0], np.float32), rays.shape)
        put(ground, flat, _color(rng), rng.choice([0.0, 0.0, 1.0, 2.0]))
        for _ in range(rng.integers(5, 14)):
            make = _sphere if rng.random() < 0.55 else _box
            put(*make(eye, rays, rng), _color(rng), rng.choice([0.0, 0.0, 0.0, 0.4]))
    mist = np.clip(np.where(np.isfinite(nearest), nearest, 0.0) / 60.0, 0.0, 1.0)[:, None]
    colors = colors * (1 - mist) + low * mist
    return np.ascontiguousarray(
        np.clip(colors, 0.0, 1.0).reshape(HEIGHT, WIDTH, 3).transpose(2, 0, 1), np.float32
    )


def pictures(count: int, seed: int) -> Floats:
    """`count` pictures, (count, 3, HEIGHT, WIDTH)."""
    rng = np.random.default_rng(seed)
    return np.stack([picture(rng) for _ in range(count)])
