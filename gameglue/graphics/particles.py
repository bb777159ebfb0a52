"""`ParticleSystem`: many short-lived points, as arrays that are moved and drawn at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import inf
from typing import Annotated

import numpy as np

from gameglue.errors import GraphicsError
from gameglue.graphics.batch import Picture
from gameglue.graphics.camera import Renderer
from gameglue.graphics.canvas import Canvas
from gameglue.graphics.colors import Color, parse_color
from gameglue.scripting.fields import Range

Span = tuple[float, float] | float
"""One number, or a range of which each particle gets some."""

_PER_PARTICLE = (("position", 3), ("velocity", 3), ("age", 1), ("life", 1), ("angle", 1), ("spin", 1))


class Particles:
    """The live particles as arrays: positions and velocities (n, 3), ages and lifetimes in seconds (n,).

    Particles beyond `capacity` are not added.

    Attributes:
        capacity: Most particles that live at a time.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = max(1, capacity)
        self._count = 0
        self._table = {
            name: np.zeros((self.capacity, width) if width > 1 else self.capacity, np.float32)
            for name, width in _PER_PARTICLE
        }

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, name: str) -> np.ndarray:
        """One of the arrays: "position", "velocity", "age", "life", "angle" or "spin" (degrees); a view."""
        return self._table[name][: self._count]

    def add(self, count: int) -> slice:
        """Add `count` uninitialized particles; returns their indices."""
        first = self._count
        self._count = min(self.capacity, first + count)
        for array in self._table.values():
            array[first : self._count] = 0.0
        return slice(first, self._count)

    def step(self, seconds: float, gravity: float, drag: float) -> None:
        """Advance all; gravity is an acceleration along -y, drag the fraction of speed lost per second."""
        velocity = self["velocity"]
        velocity[:, 1] -= gravity * seconds
        velocity *= math.exp(-drag * seconds)
        self["position"][:] += velocity * np.float32(seconds)
        self["angle"][:] += self["spin"] * np.float32(seconds)
        self["age"][:] += np.float32(seconds)
        alive = self["age"] < self["life"]
        left = int(np.count_nonzero(alive))
        if left < self._count:
            for array in self._table.values():
                array[:left] = array[: self._count][alive]
            self._count = left

    def clear(self) -> None:
        """Remove all particles."""
        self._count = 0


class ParticleSystem(Renderer):
    """Emits particles from its object: sparks, smoke, rain, trails; thousands in one draw.

    Of a field that takes a number or a pair, each particle gets the number, or one between the two.
    """

    rate: Annotated[float, Range(0.0, inf, "per second")] = 30.0
    """Particles that are emitted continuously."""
    bursts: tuple[tuple[float, int], ...] = ()
    """Particles emitted at once: pairs of seconds after the start, and how many."""
    lifetime: Annotated[Span, Range(0.0, inf, "seconds")] = 1.0
    """How long a particle lives."""
    speed: Annotated[Span, Range(unit="units per second")] = (1.0, 2.0)
    """Speed at which a particle leaves."""
    spread: Annotated[float, Range(0.0, 360.0, "degrees")] = 360.0
    """Angle around the object's `up` into which particles leave."""
    radius: Annotated[float, Range(0.0, inf, "units")] = 0.0
    """Particles begin within this distance of the object."""
    gravity: Annotated[float, Range(unit="units per second squared")] = 0.0
    """Acceleration along -y."""
    drag: Annotated[float, Range(0.0, inf, "per second")] = 0.0
    """Rate at which speed decays."""
    spin: Annotated[Span, Range(unit="degrees per second")] = 0.0
    """Rotation of textured particles."""
    sizes: Annotated[tuple[float, ...], Range(0.0, inf, "units")] = (0.2, 0.0)
    """Diameters over a particle's life, evenly spaced."""
    colors: tuple[Color, ...] = ("white", "#ffffff00")
    """Colours over a particle's life, evenly spaced."""
    texture: Picture | None = None
    """A particle's image; `None` draws discs."""
    softness: Annotated[float, Range(0.0, 1.0)] = 0.5
    """Share of a disc's radius over which its edge fades."""
    additive: bool = False
    """Add the particles' light to the image, for what glows."""
    local: bool = False
    """Let living particles move with the object."""
    emitting: bool = True
    """Whether particles are emitted at `rate`; bursts and `emit` do not depend on it."""
    capacity: Annotated[int, Range(1, inf, "particles")] = 4096
    """How many live at a time; more are not emitted."""
    destroy_when_done: bool = False
    """Destroy the object after the last particle."""

    _particles: Particles | None = None
    _owed: float = 0.0
    _seconds: float = 0.0
    _rng: np.random.Generator | None = None

    @property
    def particles(self) -> Particles:
        """The living particles, as arrays that a game may read and change."""
        if self._particles is None:
            self._particles = Particles(self.capacity)
        return self._particles

    def update(self) -> None:
        """Move the living particles, and emit new ones."""
        seconds = self.time.delta_time
        self.particles.step(seconds, self.gravity, self.drag)
        before, self._seconds = self._seconds, self._seconds + seconds
        for when, count in self.bursts:
            if before <= when < self._seconds:
                self.emit(count)
        if self.emitting:
            self._owed += max(self.rate, 0.0) * seconds
            due, self._owed = int(self._owed), self._owed % 1.0
            if due:
                self._emit(due, seconds)
        if self.destroy_when_done and not len(self.particles) and self._is_done():
            self.game_object.destroy()

    def emit(self, count: int) -> None:
        """Emit `count` particles now."""
        self._emit(count, 0.0)

    def _is_done(self) -> bool:
        still_due = any(when >= self._seconds for when, _ in self.bursts)
        return not still_due and (self.rate <= 0.0 or not self.emitting)

    def _emit(self, count: int, seconds: float) -> None:
        """Particles that left at even times during the last `seconds`."""
        if self._rng is None:
            # Of its own, so that a game's random numbers do not depend on how many particles there are.
            self._rng = np.random.default_rng(int(self.app.random.integers(1 << 62)))
        random, particles = self._rng, self.particles
        places = particles.add(count)
        made = places.stop - places.start
        if made <= 0:
            return
        around = self._directions(random, made)
        velocity = around * _drawn(random, self.speed, made)[:, None]
        position = self._directions(random, made, full=True)
        position *= (self.radius * np.sqrt(random.random(made)))[:, None]
        if not self.local:
            matrix = self.transform.matrix
            rotation = self.transform.rotation.matrix()
            position = position @ matrix[:3, :3].T + matrix[:3, 3]
            velocity = velocity @ rotation.T
        age = np.linspace(0.0, seconds, made, endpoint=False)
        particles["age"][places] = age
        particles["position"][places] = position + velocity * age[:, None]
        particles["velocity"][places] = velocity
        particles["life"][places] = _drawn(random, self.lifetime, made)
        particles["spin"][places] = _drawn(random, self.spin, made)
        particles["angle"][places] = random.random(made) * 360.0 if self.spin != 0.0 else 0.0

    def _directions(self, random: np.random.Generator, count: int, *, full: bool = False) -> np.ndarray:
        """(count, 3) unit vectors in the object's x-y plane, within `spread` around y, or all round."""
        half = math.radians(360.0 if full else min(max(self.spread, 0.0), 360.0)) / 2
        angles = random.uniform(-half, half, count)
        return np.stack((-np.sin(angles), np.cos(angles), np.zeros(count)), axis=1)

    def instance_data(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """World positions (n, 3), sizes (n,) and colours (n, 4), 0 to 1, of the live particles.

        Raises:
            GraphicsError: There are no sizes or no colours.
        """
        particles = self.particles
        share = particles["age"] / np.maximum(particles["life"], 1e-9)
        places = particles["position"]
        if self.local:
            matrix = self.transform.matrix
            places = places @ matrix[:3, :3].T + matrix[:3, 3]
        if not self.sizes or not self.colors:
            raise GraphicsError(f"particles need sizes and colours, got {self.sizes} and {self.colors}")
        table = np.array([parse_color(color) for color in self.colors], np.float64) / 255.0
        colors = np.stack([_over_life(share, table[:, k]) for k in range(4)], axis=1)
        return places, _over_life(share, np.asarray(self.sizes, np.float64)), colors

    def draw(self, canvas: Canvas) -> None:
        """Draw all of them."""
        if not len(self.particles):
            return
        places, sizes, colors = self.instance_data()
        if self.texture is None:
            canvas.circles(places[:, :2], sizes / 2, colors, softness=self.softness, additive=self.additive)
            return
        across, down = self.texture.size
        box = np.stack((sizes, sizes * down / across), axis=1)
        angles = self.particles["angle"]
        canvas.sprites(
            self.texture, places[:, :2], box, rotations=angles, colors=colors, additive=self.additive
        )


class ParticleSystem3D(ParticleSystem):
    """Particles for `Camera3D`: rotated to face the camera, and depth-tested.

    They leave in a cone of `spread` degrees around the object's `up`, from a ball of `radius`.
    """

    def _directions(self, random: np.random.Generator, count: int, *, full: bool = False) -> np.ndarray:
        """(count, 3) unit vectors in a cone around y, evenly over the sphere, or all round."""
        half = math.radians(360.0 if full else min(max(self.spread, 0.0), 360.0)) / 2
        along = random.uniform(math.cos(half), 1.0, count)
        across, angles = np.sqrt(1.0 - along**2), random.uniform(0.0, 2 * math.pi, count)
        return np.stack((across * np.cos(angles), along, across * np.sin(angles)), axis=1)

    def draw(self, canvas: Canvas) -> None:
        """Do nothing: 2D cameras do not draw 3D particles."""


def _drawn(random: np.random.Generator, span: Span, count: int) -> np.ndarray:
    """(count,) numbers: all the same, or evenly from a range."""
    return random.uniform(*span, count) if isinstance(span, tuple) else np.full(count, float(span))


def _over_life(share: np.ndarray, values: Sequence[float] | np.ndarray) -> np.ndarray:
    """The value at each share (0 to 1) of a life, between values that are evenly spaced over it."""
    return np.interp(share, np.linspace(0.0, 1.0, len(values)), values)
