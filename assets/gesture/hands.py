"""Parametric hands: strokes as people of different pace, slant and steadiness would draw them.

A stroke is (n, 3): seconds since it began, and x and y in units of its own size, y down.
"""

from __future__ import annotations

import math

import numpy as np

from demos.gesture.strokes import corners, ring

SAMPLE_RATE = 90.0  # pointer positions a second


def path_of(gesture: str, random: np.random.Generator) -> np.ndarray:
    """One of the ways in which a gesture is drawn, (n, 2)."""
    uniform = random.uniform
    if gesture == "swipe":
        return corners((-0.5, 0.0), (0.5, 0.0)) @ _rotation(uniform(-math.pi, math.pi))
    if gesture == "circle":
        return ring(uniform(0.88, 1.15), uniform(-2.6, -0.5))
    if gesture == "triangle":
        a, b, c = (-0.5, 0.42), (0.0, -0.45), (0.5, 0.42)
        first = int(random.integers(3))
        points = [a, b, c] * 2
        return corners(*points[first : first + 3], points[first]) @ _rotation(uniform(-0.25, 0.25))
    if gesture == "zigzag":
        count = int(random.integers(3, 6))
        tall = uniform(0.5, 1.0)
        points = [(i / count - 0.5, tall * (0.5 - i % 2)) for i in range(count + 1)]
        return corners(*points) @ _rotation(uniform(-math.pi, math.pi))
    if gesture == "spiral":
        path = ring(uniform(1.9, 3.0), uniform(-math.pi, math.pi), uniform(0.02, 0.15), 160)
        return path if random.random() < 0.7 else path[::-1]
    return _meaningless(random)


def _meaningless(random: np.random.Generator) -> np.ndarray:
    """Something that is no gesture."""
    kind = int(random.integers(6))
    if kind == 0:  # half a circle or less
        return ring(random.uniform(0.25, 0.62), random.uniform(-math.pi, math.pi))
    if kind == 1:  # a corner
        return corners(
            (-0.5, random.uniform(-0.3, 0.3)),
            (0.0, random.uniform(0.3, 0.5)),
            (0.5, random.uniform(-0.5, 0.1)),
        )
    if kind == 2:  # a box
        return corners((-0.5, -0.4), (0.5, -0.4), (0.5, 0.4), (-0.5, 0.4), (-0.5, -0.4))
    if kind == 3:  # an eight
        t = np.linspace(0.0, 2.0 * math.pi, 120)
        return np.stack((np.sin(t) / 2, np.sin(2 * t) / 3), axis=1) @ _rotation(random.uniform(-3.0, 3.0))
    t = np.linspace(0.0, 1.0, 120)  # a wander, or an S
    waves = random.normal(size=(2, 4, 2)) / np.arange(1, 5)[:, None]
    angles = 2.0 * math.pi * t[:, None] * np.arange(1, 5) * (0.5 if kind == 4 else 0.8)
    path = np.sin(angles) @ waves[0] + np.cos(angles) @ waves[1]
    return (path - path.mean(axis=0)) / max(float(np.ptp(path, axis=0).max()), 1e-6)


def _rotation(angle: float) -> np.ndarray:
    return np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])


class Hand:
    """One person's way of moving: pace, slant, tremor, how round corners get, which way round."""

    def __init__(self, seed: int) -> None:
        random = np.random.default_rng([71, seed])
        self.pace = random.uniform(0.75, 1.35)
        self.shear = random.normal(0.0, 0.14)
        self.aspect = math.exp(random.normal(0.0, 0.14))
        self.tilt = random.normal(0.0, 0.1)
        self.tremor = abs(random.normal(0.0, 0.004))
        self.wobble = random.uniform(0.005, 0.035)
        self.roundness = random.uniform(0.0, 0.07)
        self.backwards = random.random() < 0.3

    def draw(self, gesture: str, random: np.random.Generator) -> np.ndarray:
        """The gesture as this hand draws it this time."""
        path = path_of(gesture, random)
        mirrored = self.backwards != (random.random() < 0.1)
        path = (
            path
            * ((-1.0 if mirrored else 1.0) * self.aspect, 1.0)
            @ np.array([[1.0, 0.0], [self.shear, 1.0]])
        )
        path = path @ _rotation(self.tilt + random.normal(0.0, 0.06))
        far = np.r_[0.0, np.cumsum(np.hypot(*np.diff(path, axis=0).T))]
        seconds = self.pace * (0.22 + 0.26 * far[-1]) * random.uniform(0.8, 1.25)
        seconds = min(max(seconds, 0.16), 1.45)
        count = max(int(seconds * SAMPLE_RATE), 8)
        # Slow at both ends, and never quite even.
        share = np.linspace(0.0, 1.0, count)
        slow = random.uniform(0.0, 0.12)
        share = (
            share
            - slow * np.sin(2.0 * math.pi * share) / math.pi
            + 0.02 * np.sin(random.uniform(4, 12) * share)
        )
        share = np.maximum.accumulate((share - share[0]) / (share[-1] - share[0]))
        path = np.stack([np.interp(share * far[-1], far, path[:, axis]) for axis in (0, 1)], axis=1)
        wide = max(int(self.roundness / max(far[-1], 0.5) * count * 1.5), 1)
        padded = np.pad(path, ((wide, wide), (0, 0)), mode="edge")
        kernel = np.ones(2 * wide + 1) / (2 * wide + 1)
        path = np.stack([np.convolve(padded[:, axis], kernel, "valid") for axis in (0, 1)], axis=1)
        angles = 2.0 * math.pi * np.linspace(0.0, 1.0, count)[:, None] * random.uniform(0.5, 2.5, 3)
        path += self.wobble * np.sin(angles + random.uniform(0.0, 6.3, 3)) @ random.normal(size=(3, 2))
        path += self.tremor * random.normal(size=path.shape)
        return np.column_stack((np.linspace(0.0, seconds, count), path))
