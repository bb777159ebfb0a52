"""Draw the pictures of the `chatter` demo: `village.png` and `people.png`, everybody in every mood.

    python -m assets.chatter.draw_village

from the root of the repository.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

SIZE = (960, 640)
FINE = 2  # drawn so much larger, then made smaller: smooth edges
PATHS = (
    [(-20, 300), (150, 285), (320, 300), (480, 318), (650, 300), (820, 285), (980, 300)],
    [(480, 318), (470, 220), (500, 130), (480, 20)],
    [(480, 318), (520, 420), (610, 520), (650, 660)],
    [(150, 285), (220, 400), (230, 520), (190, 660)],
)
HOUSES = (
    (64, 118, "#9a6a58", "#5b3640"), (262, 112, "#7c8798", "#3f4a63"), (700, 112, "#a08a62", "#6a4a38"),
    (884, 128, "#7f9a88", "#3d5a55"), (48, 360, "#8a739a", "#4c3a5e"), (330, 452, "#a8946a", "#6e5138"),
    (700, 440, "#8c9db0", "#44536a"), (906, 448, "#a07868", "#633c3c"),
)  # fmt: skip
TREES = (
    (190, 110), (368, 88), (420, 120), (560, 96), (610, 130), (796, 96), (262, 372), (296, 395), (24, 250),
    (940, 250), (560, 590), (742, 545), (300, 600), (22, 590), (938, 600), (410, 600), (600, 420),
    (655, 170), (20, 440), (110, 430),
)  # fmt: skip
POND = (712, 232, 62, 27)


def ground(rng: np.random.Generator) -> Image.Image:
    """A meadow: greens that change slowly, with blades of grass."""
    width, height = SIZE
    total = np.zeros((height, width))
    for cells, strength in ((6, 1.0), (14, 0.6), (40, 0.35), (160, 0.2)):
        coarse = (rng.random((cells, cells)) * 255).astype(np.uint8)
        large = Image.fromarray(coarse).resize(SIZE, Image.Resampling.BICUBIC)
        total += strength * (np.asarray(large, float) / 255 - 0.5)
    dark, light = np.array((34, 66, 58)), np.array((62, 104, 74))
    share = np.clip(0.5 + 0.7 * total, 0, 1)[..., None]
    return Image.fromarray((dark + (light - dark) * share).astype(np.uint8)).resize(
        (width * FINE, height * FINE), Image.Resampling.BICUBIC
    )


def smooth(points: list[tuple[int, int]]) -> list[tuple[float, float]]:
    """Many points along a curve through a few (Catmull-Rom)."""
    p = np.array([points[0], *points, points[-1]], float)
    t = np.linspace(0, 1, 16)[:, None]
    parts = [
        0.5 * (2 * b + (c - a) * t + (2 * a - 5 * b + 4 * c - d) * t**2 + (3 * b - a - 3 * c + d) * t**3)
        for a, b, c, d in zip(p, p[1:], p[2:], p[3:], strict=False)
    ]
    return [(x * FINE, y * FINE) for x, y in np.concatenate(parts)]


def draw() -> Image.Image:
    """The whole picture."""
    rng = np.random.default_rng(5)
    picture = ground(rng)
    earth = Image.new("L", picture.size, 0)
    pen = ImageDraw.Draw(earth)
    for path in PATHS:
        for x, y in smooth(path):
            r = (17 + rng.normal(0, 1.2)) * FINE
            pen.ellipse((x - r, y - r, x + r, y + r), fill=255)
    pen.ellipse(tuple(v * FINE for v in (420, 268, 540, 368)), fill=255)
    earth = earth.filter(ImageFilter.GaussianBlur(4 * FINE))
    picture = Image.composite(
        Image.new("RGB", picture.size, "#8d7a5e"), picture, earth.point(lambda v: v * 0.62)
    )
    shadows = Image.new("L", picture.size, 0)
    shade = ImageDraw.Draw(shadows)
    trees = [
        (x, y, rng.uniform(15, 24))
        for x, y in TREES
    ]  # fmt: skip
    for x, y, r in trees:
        shade.ellipse(tuple(v * FINE for v in (x - r + 6, y - 2, x + r + 10, y + r + 4)), fill=120)
    for x, y, _, _ in HOUSES:
        shade.rectangle(tuple(v * FINE for v in (x - 30, y + 4, x + 46, y + 34)), fill=130)
    shadows = shadows.filter(ImageFilter.GaussianBlur(4 * FINE))
    picture = Image.composite(Image.new("RGB", picture.size, "#0b1a1c"), picture, shadows)
    pen = ImageDraw.Draw(picture)

    def box(x0: float, y0: float, x1: float, y1: float) -> tuple[float, float, float, float]:
        return x0 * FINE, y0 * FINE, x1 * FINE, y1 * FINE

    for _ in range(420):
        x, y = rng.uniform(0, SIZE[0]), rng.uniform(50, SIZE[1])
        color = ("#e8d56a", "#e9e4f2", "#d98aa8", "#4f8a5c", "#4f8a5c", "#27503f")[int(rng.integers(6))]
        if earth.getpixel((int(x * FINE) % picture.size[0], int(y * FINE) % picture.size[1])) < 40:
            pen.ellipse(box(x - 1.2, y - 1.2, x + 1.2, y + 1.2), fill=color)
    x, y, a, b = POND
    pen.ellipse(box(x - a - 4, y - b - 3, x + a + 4, y + b + 4), fill="#5d6a55")
    pen.ellipse(box(x - a, y - b, x + a, y + b), fill="#2f6480")
    pen.ellipse(box(x - a * 0.7, y - b * 0.6, x + a * 0.3, y + b * 0.1), fill="#4a86a0")
    for x, y, wall, roof in sorted(HOUSES, key=lambda house: house[1]):
        pen.rectangle(box(x - 30, y - 14, x + 30, y + 26), fill=wall)
        pen.rectangle(box(x + 12, y - 14, x + 30, y + 26), fill=shaded(wall, 0.86))
        pen.polygon(
            [(v[0] * FINE, v[1] * FINE) for v in ((x - 40, y - 8), (x, y - 46), (x + 40, y - 8))], fill=roof
        )
        pen.polygon(
            [(v[0] * FINE, v[1] * FINE) for v in ((x + 14, y - 8), (x, y - 46), (x + 40, y - 8))],
            fill=shaded(roof, 0.8),
        )
        pen.rectangle(box(x - 22, y - 44, x - 14, y - 22), fill=shaded(roof, 1.3))
        pen.rectangle(box(x - 7, y + 4, x + 7, y + 26), fill="#3a2a26")
        for side in (-20, 20):
            pen.rectangle(box(x + side - 6, y - 1, x + side + 6, y + 10), fill="#ffdf94")
            pen.line(box(x + side, y - 1, x + side, y + 10), fill="#3a2a26", width=FINE)
    for x, y, r in sorted(trees, key=lambda tree: tree[1]):
        pen.rectangle(box(x - 3, y, x + 3, y + r * 0.8), fill="#4a3426")
        for dx, dy, part, color in (
            (0, 0, 1.0, "#1f4b3b"),
            (-0.2, -0.25, 0.78, "#2b6049"),
            (-0.3, -0.45, 0.45, "#3c7a58"),
        ):
            cx, cy, cr = x + dx * r, y - 0.3 * r + dy * r, part * r
            pen.ellipse(box(cx - cr, cy - cr, cx + cr, cy + cr), fill=color)
    pen.line(
        [(x * FINE, y * FINE) for x, y in ((458, 312), (458, 262), (502, 262), (502, 312))],
        fill="#5d4032",
        width=5 * FINE,
    )
    pen.pieslice(box(471, 264, 489, 294), 180, 360, fill="#e0a83c")
    pen.rectangle(box(469, 278, 491, 282), fill="#c48a2a")
    pen.ellipse(box(477, 280, 483, 286), fill="#8a5f1e")
    for angle in np.linspace(0, 2 * math.pi, 14, endpoint=False):
        x, y = 480 + 25 * math.cos(angle), 322 + 17 * math.sin(angle)
        pen.ellipse(box(x - 6, y - 5, x + 6, y + 5), fill="#8a8f99", outline="#5a5f6a")
    pen.ellipse(box(461, 309, 499, 335), fill="#142431")
    return picture.resize(SIZE, Image.Resampling.LANCZOS)


def shaded(color: str, share: float) -> str:
    """A colour made darker or lighter."""
    return "#" + "".join(f"{min(int(int(color[i : i + 2], 16) * share), 255):02x}" for i in (1, 3, 5))


CELL = (48, 64)
COATS = (
    "#e0a15a", "#7d8aa3", "#4f9fd4", "#8fbf5a", "#b974b8", "#a0764a",
    "#55b097", "#ddd3ba", "#c9694d", "#c9a93f", "#2e9be0",
)  # fmt: skip
HAIR = (
    "#7a4a2a", "#2b2b30", "#c98f3c", "#5a3d26", "#a83f2a", "#3d2c20",
    "#d9d3c4", "#8c8c8c", "#6b3a55", "#4a3626", "#3a2a1e",
)  # fmt: skip
SKIN = (
    "#f3d3b3",
    "#e6bd95",
    "#f0caa6",
    "#d9a878",
    "#f5d9bf",
    "#c98f62",
    "#efc9a8",
    "#f0d0b0",
    "#deb088",
    "#f2cfae",
    "#f0caa6",
)
INK = "#2a2226"


def person(number: int, mood: int) -> Image.Image:
    """One of the eleven, in one of four moods: cheerful, gloomy, angry, shy."""
    fine = 6
    picture = Image.new("RGBA", (CELL[0] * fine, CELL[1] * fine))
    pen = ImageDraw.Draw(picture)

    def box(x0: float, y0: float, x1: float, y1: float) -> tuple[float, float, float, float]:
        return x0 * fine, y0 * fine, x1 * fine, y1 * fine

    coat, hair, skin = COATS[number], HAIR[number], SKIN[number]
    pen.ellipse(box(8, 55, 40, 63), fill="#08141890")
    if number in (0, 2, 4, 6, 8):  # long hair, behind everything
        pen.rounded_rectangle(box(7, 6, 41, 38), 12 * fine, fill=shaded(hair, 0.85))
    for x in (17, 26):
        pen.rounded_rectangle(box(x, 50, x + 6, 60), 2 * fine, fill="#3a2f33")
    pen.rounded_rectangle(box(10, 30, 38, 55), 9 * fine, fill=coat)
    pen.rounded_rectangle(box(25, 30, 38, 55), 9 * fine, fill=shaded(coat, 0.88))
    pen.rectangle(box(22, 34, 27, 55), fill=shaded(coat, 0.94))
    pen.rounded_rectangle(box(11, 45, 37, 48), fine, fill=shaded(coat, 0.6))
    for x in (7, 35):
        pen.rounded_rectangle(box(x, 33, x + 6, 48), 3 * fine, fill=shaded(coat, 0.8))
        pen.ellipse(box(x + 0.5, 45, x + 5.5, 50), fill=skin)
    pen.ellipse(box(8.5, 2, 39.5, 26), fill=hair)
    pen.ellipse(box(10, 6, 38, 34), fill=skin)
    pen.pieslice(box(9, 3, 39, 31), 190, 350, fill=hair)
    pen.ellipse(box(10, 13, 38, 34), fill=skin)
    if number in (1, 7):  # a beard
        pen.chord(box(11, 14, 37, 36), 20, 160, fill=hair)
    if number in (3, 5):  # a hat
        pen.ellipse(box(5, 8, 43, 15), fill=shaded(coat, 0.55))
        pen.rounded_rectangle(box(13, 1, 35, 12), 4 * fine, fill=shaded(coat, 0.65))
    if mood == 3:
        for x in (12, 30):
            pen.ellipse(box(x, 23, x + 6, 27), fill="#e88f86")
    for side in (-1, 1):
        x, y = 24 + 5.5 * side, 21
        pen.ellipse(box(x - 3, y - 3.4, x + 3, y + 3.4), fill="white")
        look = (0.0, 0.8 if mood in (1, 3) else 0.0)
        pen.ellipse(box(x - 1.7 + look[0], y - 1.9 + look[1], x + 1.7, y + 1.9 + look[1]), fill=INK)
        slope = {0: -0.5, 1: -2.2, 2: 2.6, 3: -1.2}[mood]
        brow = [
            ((x - 3.2) * fine, (y - 5.2 - slope * -side * 0.6) * fine),
            ((x + 3.2) * fine, (y - 5.2 + slope * -side * 0.6) * fine),
        ]
        pen.line(brow, fill=hair if number != 6 else "#8a8578", width=int(1.5 * fine))
    if mood == 0:
        pen.chord(box(19.5, 23, 28.5, 32), 10, 170, fill="#8a3b34")
    elif mood == 3:
        pen.line(box(22, 29, 26, 29), fill="#8a3b34", width=fine)
    else:
        pen.arc(box(19.5, 27.5, 28.5, 34), 200, 340, fill="#8a3b34", width=int(1.5 * fine))
    return picture.resize((CELL[0] * 2, CELL[1] * 2), Image.Resampling.LANCZOS)


def people() -> Image.Image:
    """Everybody from left to right, the moods from top to bottom; cells of twice CELL."""
    sheet = Image.new("RGBA", (CELL[0] * 2 * len(COATS), CELL[1] * 2 * 4))
    for number in range(len(COATS)):
        for mood in range(4):
            sheet.paste(person(number, mood), (number * CELL[0] * 2, mood * CELL[1] * 2))
    return sheet


if __name__ == "__main__":
    folder = Path(__file__).parent
    draw().quantize(200, dither=Image.Dither.FLOYDSTEINBERG).save(folder / "village.png", optimize=True)
    people().quantize(255, method=Image.Quantize.FASTOCTREE).save(folder / "people.png", optimize=True)
