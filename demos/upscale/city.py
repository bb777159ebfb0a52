"""The game: a flying taxi in a city at night, drawn as shapes with sharp edges and small letters."""

from __future__ import annotations

import math

import numpy as np

from gameglue import Canvas, Palette, Renderer

SPEED = 1.6  # units a second, of the nearest houses
_SIGNS = ("NOODLES", "HOTEL", "BAR 24H", "CINEMA", "TAXI", "ARCADE", "CAFE 7", "BOOKS", "PIZZA", "RADIO 98.2")
_NEON = ("#ff5d8f", "#4cd9ff", "#ffd866", "#8dff9a", "#c79bff", "#ff9b54")
_LIT = np.array([(1, 0.85, 0.5), (1, 0.7, 0.4), (0.65, 0.85, 1), (0.16, 0.18, 0.28), (0.13, 0.15, 0.24)])
_HALF = 7.7  # half the picture's width in world units, and a margin; the height is 10
_CAR = (  # left, low, width, height, colour, radius of the taxi's parts
    (-0.95, -0.3, 1.9, 0.5, "#ffc933", 0.2),
    (-0.5, 0.08, 1.0, 0.42, "#ffc933", 0.16),
    (-0.4, 0.12, 0.36, 0.28, "#1c2a46", 0.06),
    (0.04, 0.12, 0.36, 0.28, "#1c2a46", 0.06),
    (-0.22, 0.5, 0.44, 0.16, "#fff3c4", 0.04),
    *((-0.9 + 0.15 * k, -0.1 - 0.07 * (k % 2), 0.15, 0.07, "#14161f", 0.0) for k in range(12)),
)


class Houses:
    """A repeating row of houses. unit: the distance between windows, in world units."""

    def __init__(self, rng: np.random.Generator, low: float, high: float, unit: float, color: str) -> None:
        self.color, self.length = color, 0.0
        self.boxes: list[tuple[float, float, float, str, str]] = []
        """Left edge, width and top of each house, the text and the colour of its sign."""
        places, lights = [], []
        while self.length < 26.0:
            columns, top = int(rng.integers(4, 9)), rng.uniform(low, high) - 5.0
            sign = str(rng.choice(_SIGNS)) if unit > 0.3 and rng.random() < 0.6 else ""
            self.boxes.append((self.length, (columns + 1) * unit, top, sign, str(rng.choice(_NEON))))
            for column in range(columns):
                for row in range(int((top + 5.0) / (1.4 * unit)) - 1):
                    places.append((self.length + (column + 1) * unit, top - (row + 1) * 1.4 * unit))
                    lights.append(_LIT[rng.choice(5, p=(0.2, 0.15, 0.1, 0.25, 0.3))])
            self.length += (columns + 1 + rng.uniform(0.0, 1.2)) * unit
        self.windows, self.lights = np.array(places), np.array(lights)
        self.pane = np.array([(0.52 * unit, 0.7 * unit)])

    def draw(self, canvas: Canvas, city: City, shift: float) -> None:
        """Draw the visible part, moved to the left by `shift` units."""
        for turn in range(2):
            left = turn * self.length - shift % self.length - _HALF
            for x, width, top, _, _ in self.boxes:
                if left + x < _HALF and left + x + width > -_HALF:
                    canvas.rect(left + x, -5.0, width, top + 5.0, self.color)
                    canvas.rect(left + x, top - 0.05, width, 0.05, "#3a4468")
            seen = np.abs(self.windows[:, 0] + left) < _HALF
            places = self.windows[seen] + (left, 0.0)
            canvas.sprites(city.app.graphics.white, places, self.pane, colors=self.lights[seen])
            for x, width, top, sign, neon in self.boxes:
                middle = left + x + width / 2
                if sign and abs(middle) < _HALF + 1.0:
                    wide = canvas.measure(sign, size=0.34)[0] + 0.3
                    canvas.rect(middle - wide / 2, top + 0.02, wide, 0.52, "#0b0e18")
                    canvas.rect(middle - wide / 2, top + 0.02, wide, 0.52, neon, border=0.04, radius=0.08)
                    city.say(canvas, sign, middle, top + 0.28, 0.34, neon)


class City(Renderer):
    """Draws the game. `seed` determines the city; `clock` is the game's time in seconds."""

    seed: int = 0
    clock: float = 0.0
    height: float = 1.0
    """Of the taxi."""
    fares: int = 0
    fare_at: float = 8.0
    fare_height: float = 1.0
    moves: bool = True

    def awake(self) -> None:
        """Create the houses and the stars."""
        rng = np.random.default_rng(self.seed)
        self.far = Houses(rng, 3.0, 6.6, 0.19, "#1a2140")
        self.near = Houses(rng, 1.6, 4.6, 0.34, "#10142a")
        self.stars = rng.uniform((-7, -1), (7, 5), (90, 2))

    def update(self) -> None:
        """Move the taxi, by W and S or by itself, and collect fares."""
        if not self.moves:
            return
        seconds = self.time.delta_time
        self.clock += seconds
        steered = 4.0 * self.input.get_axis("s", "w")
        self.height += seconds * (steered or 0.9 * (self.fare_height - self.height))
        self.height = min(max(self.height, -2.2), 4.2)
        self.fare_at -= SPEED * 1.4 * seconds
        if self.fare_at < -2.5:
            self.fares += abs(self.fare_height - self.height) < 0.9
            self.fare_at, self.fare_height = 8.0, float(self.app.random.uniform(-1.5, 3.4))

    def say(self, canvas: Canvas, text: str, x: float, y: float, size: float, color: str) -> None:
        """Draw centred text."""
        canvas.text(text, x, y, size=size, color=color, align="center", valign="center")

    def draw(self, canvas: Canvas) -> None:
        """Draw everything from back to front."""
        t = self.clock
        canvas.rect(-7, -5, 14, 10, "#3d2a5c", color2="#0a0d20")
        canvas.sprites(self.app.graphics.white, self.stars, 0.04, colors="#cfd6ff")
        canvas.circle(4.2, 3.0, 0.9, "#ffe9c4")
        for x, y, r in ((3.9, 3.2, 0.22), (4.5, 2.7, 0.16), (4.4, 3.4, 0.1)):
            canvas.circle(x, y, r, "#e2c79a")
        self.far.draw(canvas, self, 0.35 * SPEED * t)
        self._draw_train(canvas, 16.0 - (4.2 * t) % 34.0)
        self.near.draw(canvas, self, SPEED * t)
        self._draw_wires(canvas, SPEED * 1.4 * t)
        y = self.fare_height + 0.1 * math.sin(3 * t)
        canvas.circle(self.fare_at, y, 0.34, "#ffd866")
        canvas.circle(self.fare_at, y, 0.34, "#8a5a10", border=0.05)
        self.say(canvas, "$", self.fare_at, y, 0.42, "#8a5a10")
        self._draw_taxi(canvas, -2.5, self.height + 0.08 * math.sin(2.2 * t), t)
        canvas.text(f"FARES {self.fares}", -6.4, 4.75, size=0.65, color="#ffffff")
        canvas.text(f"TIME {t:.0f}", 6.4, 4.75, size=0.65, color="#ffffff", align="right")

    def _draw_train(self, canvas: Canvas, x: float) -> None:
        canvas.rect(-7, -1.36, 14, 0.1, "#4a5478")
        for pillar in range(-7, 8, 2):
            canvas.rect(pillar, -5, 0.14, 3.7, "#2b3358")
        for left in (x, x + 3.1, x + 6.2):
            canvas.rect(left, -1.26, 3.0, 0.85, "#d9dfee", radius=0.14)
            canvas.rect(left, -1.12, 3.0, 0.12, "#e2445c")
            for window in range(6):
                canvas.rect(left + 0.22 + 0.45 * window, -0.86, 0.32, 0.3, "#20304f", radius=0.05)
            self.say(canvas, "CITY LINE 7", left + 1.5, -1.2, 0.15, "#20304f")

    def _draw_wires(self, canvas: Canvas, shift: float) -> None:
        x = np.linspace(-7.0, 7.0, 57)
        sag = 0.9 * ((x + shift) % 3.5 / 3.5 - 0.5) ** 2
        canvas.polyline(np.stack((x, sag - 3.1), axis=1), "#5b668c", width=0.03)
        canvas.polyline(np.stack((x, sag - 3.35), axis=1), "#46507a", width=0.03)
        for pole in range(5):
            place = pole * 3.5 - 7.0 - shift % 3.5
            canvas.rect(place - 0.05, -5.0, 0.1, 2.3, "#5b668c")
            canvas.rect(place - 0.3, -3.0, 0.6, 0.06, "#5b668c")

    def _draw_taxi(self, canvas: Canvas, x: float, y: float, t: float) -> None:
        for left, low, width, height, color, radius in _CAR:
            canvas.rect(x + left, y + low, width, height, color, radius=radius)
        self.say(canvas, "TAXI", x, y + 0.58, 0.14, "#14161f")
        for jet in (-0.6, 0.6):
            canvas.circle(x + jet, y - 0.36, 0.15, "#2a3150")
            canvas.circle(x + jet, y - 0.36, 0.07 + 0.02 * math.sin(20 * t), Palette.ACCENT)
