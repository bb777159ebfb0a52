"""How people write the ten digits with a mouse: pen strokes, several ways for each digit.

Coordinates are percent of a box of roughly 60 by 100, x to the right and y downwards.
"""

from __future__ import annotations

import numpy as np

from demos.digits.strokes import curve

Stroke = list[tuple[float, float]]
"""The points that a pen stroke runs through, from touching down to lifting; one given twice is a corner."""

Way = list[Stroke]
"""One way of writing a digit: its pen strokes, in order."""


def bar(text: str) -> Stroke:
    """A stroke of straight lines, written as in `curve`: every point is a corner."""
    return [point for point in curve(text) for _ in range(2)]


def ring(
    middle: tuple[float, float], radii: tuple[float, float], start: float, sweep: float, points: int = 9
) -> Stroke:
    """Points along an ellipse from the angle `start` over `sweep` (degrees, 0 is right, 90 is down)."""
    angles = np.radians(start + sweep * np.linspace(0.0, 1.0, points))
    x = middle[0] + radii[0] * np.cos(angles)
    y = middle[1] + radii[1] * np.sin(angles)
    return list(zip(x.tolist(), y.tolist(), strict=True))


ZERO: list[Way] = [
    [ring((0.5, 0.5), (0.3, 0.5), -90, -360, 13)],
    [ring((0.5, 0.5), (0.3, 0.5), -60, -390, 13)],
    [ring((0.5, 0.5), (0.27, 0.5), -100, -335, 13)],
    [ring((0.5, 0.5), (0.4, 0.48), -110, 370, 13)],
    [ring((0.5, 0.5), (0.22, 0.5), -80, -375, 13)],
]

ONE: list[Way] = [
    [bar("50,0 50,100")],
    [bar("56,0 44,100")],
    [bar("32,22 54,0 54,100")],
    [bar("22,36 54,0 52,100")],
    [bar("36,16 52,0 52,100"), bar("28,100 76,100")],
    [bar("26,27 52,0 52,100"), bar("30,98 74,98")],
    [curve("30,24 44,14 54,0! 53,50 54,100")],
]

TWO: list[Way] = [
    [curve("22,26 32,6 52,0 74,10 78,30 60,58 20,100! 82,100")],
    [curve("20,16 40,1 66,5 74,27 60,58 40,84 22,97 18,86 34,82 56,95 84,94")],
    [curve("20,10 46,0 72,8 74,32 50,70 22,98! 50,94 82,97")],
    [curve("20,5 50,2 76,4 78,6! 50,50 20,97! 82,95")],
    [curve("26,36 20,20 36,3 62,2 78,20 70,44 44,68 16,95! 50,92 78,100 88,92")],
]

THREE: list[Way] = [
    [curve("24,14 42,0 66,4 74,22 62,42 42,47! 68,54 78,76 60,97 36,99 20,86")],
    [curve("22,8 50,0 72,14 64,38 46,48 66,56 76,78 56,98 20,94")],
    [curve("22,2 76,2! 46,40! 70,50 78,76 58,98 34,98 20,86")],
    [curve("20,20 36,2 64,3 74,20 58,40 36,46 34,52 60,52 80,74 60,98 30,97 16,80")],
    [curve("18,4 40,0 70,6 72,30 50,50! 74,60 74,86 50,100 24,100")],
]

FOUR: list[Way] = [
    [bar("30,0 20,56 84,56"), bar("64,20 62,100")],
    [bar("24,2 22,50 80,50"), bar("74,0 74,100")],
    [bar("64,100 64,0 14,66 86,66")],
    [bar("60,0 16,62 88,62"), bar("64,2 64,100")],
    [bar("44,0 16,64 86,60"), bar("64,30 56,100")],
    [curve("22,4 20,30 26,50 50,52 76,46"), bar("76,4 70,100")],
    [bar("26,0 20,48 74,46 76,4 72,100")],
]

FIVE: list[Way] = [
    [bar("74,2 28,2"), curve("28,2 24,44! 48,36 74,48 78,72 60,95 36,99 18,88")],
    [curve("78,2 30,3! 24,42! 50,38 76,54 74,84 50,100 20,94")],
    [curve("28,4 26,40! 56,40 76,60 70,88 46,100 20,94"), bar("28,4 76,0")],
    [curve("76,4 50,2 32,10 28,34 44,44 68,54 76,76 58,97 22,97")],
    [curve("80,0 34,2! 26,50! 46,42 68,50 72,74 56,96 24,100")],
]

SIX: list[Way] = [
    [curve("66,2 42,18 26,46 24,76 40,98 64,96 76,76 64,56 42,56 26,72")],
    [curve("42,0 28,34 22,70 34,96 58,98 72,78 60,58 38,60 24,74")],
    [curve("74,12 60,0 38,12 24,44 24,78 46,100 70,90 76,68 58,50 36,56 24,72")],
    [curve("56,0 36,30 22,64 30,92 54,100 74,84 66,62 44,58 30,70 32,82")],
    [curve("50,0 30,40 20,74 36,98 66,96 78,78 64,62 40,64 22,80")],
]

SEVEN: list[Way] = [
    [bar("18,2 80,2 42,100")],
    [bar("18,3 82,0 40,100"), bar("34,50 78,48")],
    [curve("20,4 80,2! 60,40 50,72 46,100")],
    [bar("20,16 22,0 80,2 46,100")],
    [curve("16,8 36,0 56,6 78,2! 58,46 44,100")],
    [curve("16,6 36,0 56,5 80,0! 60,50 50,100"), bar("38,54 80,50")],
    [bar("20,0 74,2 66,100")],
]

EIGHT: list[Way] = [
    [curve("70,14 50,0 30,10 32,32 54,48 74,70 68,94 46,100 26,86 32,64 52,46 70,30 70,14")],
    [ring((0.5, 0.24), (0.22, 0.24), 90, 360, 11), ring((0.5, 0.74), (0.27, 0.26), -90, 360, 11)],
    [curve("50,48 30,30 34,6 56,0 72,16 60,40 38,56 24,80 44,100 70,94 72,70 50,48")],
    [curve("76,8 54,0 32,8 30,28 52,46 72,68 66,94 42,99 26,84 38,60 60,40 80,6")],
    [ring((0.52, 0.22), (0.24, 0.22), -60, -350, 11), ring((0.5, 0.72), (0.3, 0.28), -80, -370, 11)],
]

NINE: list[Way] = [
    [curve("74,20 58,2 34,6 24,28 38,50 62,44 74,20! 72,60 68,100")],
    [curve("72,12 46,0 26,18 34,44 58,46 72,24 74,12 76,50 66,86 44,100 24,92")],
    [ring((0.5, 0.26), (0.25, 0.26), 0, -360, 11), bar("75,10 72,100")],
    [curve("76,6 50,0 26,14 26,38 50,46 70,30 76,6! 64,56 48,100")],
    [curve("68,28 62,6 40,0 24,20 32,44 54,46 68,28 70,60 60,92 36,100")],
]

WAYS: tuple[list[Way], ...] = (ZERO, ONE, TWO, THREE, FOUR, FIVE, SIX, SEVEN, EIGHT, NINE)
"""The ways of writing each digit; the index is the digit."""
