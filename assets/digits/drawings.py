"""Digits as a mouse draws them, made from the pen strokes in `templates`.

Every drawing starts from one way of writing the digit. Its points are moved, the whole is slanted, stretched
and bent, the hand trembles, and a round brush of varying thickness draws it on the game's own canvas.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from assets.digits.templates import WAYS, Way
from demos.digits.canvas import Canvas
from gameglue import Route

Path = npt.NDArray[np.float64]
"""Points along a path: (n, 2), x to the right and y downwards."""

CANVAS_SIDE = 56  # smaller than the game's, as `prepare` scales the digit anyway, and three times as fast


def _bend(points: Path, rng: np.random.Generator) -> Path:
    """Move points by a smooth random field: two waves per axis, each shorter than the digit is tall."""
    frequency = rng.uniform(0.4, 1.6, (2, 2, 2)) * np.pi
    phase = rng.uniform(0.0, 2.0 * np.pi, (2, 2))
    strength = rng.uniform(0.0, 0.05) * rng.uniform(-1.0, 1.0, (2, 2))
    angle = np.einsum("awk,nk->naw", frequency, points) + phase
    return np.asarray(points + (strength * np.sin(angle)).sum(axis=2))


def _tremble(points: Path, rng: np.random.Generator) -> Path:
    """Add the noise of a hand on a mouse, smoothed over neighbouring points; the ends stay attached."""
    noise = rng.normal(0.0, rng.uniform(0.0, 0.02), points.shape)
    padded = np.pad(noise, ((1, 1), (0, 0)), mode="edge")
    return np.asarray(points + (padded[:-2] + padded[1:-1] + padded[2:]) / 3.0)


def _transform(rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """A random 2 x 2 matrix: slant, width and rotation."""
    angle = np.radians(np.clip(rng.normal(0.0, 7.0), -18.0, 18.0))
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    slant = np.array([[rng.uniform(0.6, 1.3), -np.clip(rng.normal(0.08, 0.15), -0.25, 0.45)], [0.0, 1.0]])
    return np.asarray(turn @ slant)


def _write(way: Way, rng: np.random.Generator) -> list[Path]:
    """One writing of a digit: its strokes as curves around the origin."""
    matrix = _transform(rng)
    spread = rng.uniform(0.0, 0.035)
    strokes: list[Path] = []
    for stroke in way:
        points = np.asarray(stroke, dtype=np.float64)
        # Repeated points are corners and must move together.
        moves = {point: rng.normal(0.0, spread, 2) for point in dict.fromkeys(stroke)}
        points = points + np.array([moves[point] for point in stroke])
        strokes.append(Route.smooth(points - 0.5, 4).points)
    field_seed = int(rng.integers(2**32))  # one field for all strokes, or they would come apart
    bent = [_bend(path, np.random.default_rng(field_seed)) for path in strokes]
    return [_tremble(path @ matrix.T, rng) for path in bent]


def draw(digit: int, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """A drawing of `digit` as the network sees it: (28, 28) float32 from 0 to 1."""
    ways = WAYS[digit]
    strokes = _write(ways[int(rng.integers(len(ways)))], rng)
    size = rng.uniform(0.45, 0.8)
    # The brush's diameter, so that after scaling a stroke is 1.8 to 5.5 pixels wide.
    radius = 0.5 * size * rng.uniform(1.8, 5.5) / 20.0
    canvas = Canvas(CANVAS_SIDE, brush_radius=radius, softness=rng.uniform(0.2, 0.8))
    for path in strokes:
        placed = (path * size + 0.5).tolist()
        for start, end in pairwise(placed):
            canvas.stroke(tuple(start), tuple(end))
    return canvas.to_input()[0, 0]


def draw_many(count: int, seed: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """`count` drawings, the ten digits in turn: (count, 1, 28, 28) float32 and labels (count,) int64."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count, dtype=np.int64) % 10
    pictures = np.stack([draw(int(label), rng) for label in labels])[:, None]
    return pictures, labels
