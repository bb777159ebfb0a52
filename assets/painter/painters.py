"""Painters written by hand, slow and exact: what the networks learn to do at once.

Each takes pictures (n, 3, rows, columns) from 0 to 1 and returns the same, painted. Lines and dots lie on a
lattice of 8 pixels that stays with the picture's top left corner.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

LATTICE = 8
"""Pixels after which hatching and dots repeat."""


def luminance(x: Tensor) -> Tensor:
    """(n, 1, rows, columns), by the weights of ITU-R BT.601."""
    return (x * x.new_tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)).sum(dim=1, keepdim=True)


def _ramp(x: Tensor, low: float, high: float) -> Tensor:
    t = ((x - low) / (high - low)).clamp(0.0, 1.0)
    return t * t * (3.0 - 2.0 * t)


def _mean(x: Tensor, before: int, after: int, above: int, below: int) -> Tensor:
    """The mean of a window that reaches so many pixels to each side."""
    padded = functional.pad(x, (before, after, above, below), mode="replicate")
    return functional.avg_pool2d(padded, (above + below + 1, before + after + 1), stride=1)


def _blur(x: Tensor, sigma: float) -> Tensor:
    radius = max(1, round(2.5 * sigma))
    steps = torch.arange(-radius, radius + 1, dtype=x.dtype)
    weights = torch.exp(-0.5 * (steps / sigma) ** 2)
    weights = weights / weights.sum()
    channels = x.shape[1]
    across = weights.view(1, 1, 1, -1).expand(channels, 1, 1, -1)
    down = weights.view(1, 1, -1, 1).expand(channels, 1, -1, 1)
    padded = functional.pad(x, (radius,) * 4, mode="replicate")
    return functional.conv2d(functional.conv2d(padded, across, groups=channels), down, groups=channels)


def kuwahara(x: Tensor, radius: int, power: float = 4.0) -> Tensor:
    """Smooth inside of things and keep their edges (Kuwahara et al., 1976): each pixel takes the mean of that
    quarter of its neighbourhood which varies least; here all four, weighted by variance to -`power`.
    """
    total, weight = torch.zeros_like(x), torch.zeros_like(x[:, :1])
    for left, up in ((radius, radius), (0, radius), (radius, 0), (0, 0)):
        window = (left, radius - left, up, radius - up)
        mean = _mean(x, *window)
        spread = (_mean(x * x, *window) - mean * mean).clamp(min=0.0).sum(dim=1, keepdim=True)
        share = (spread + 1e-3) ** -power * 1e-9
        total, weight = total + share * mean, weight + share
    return total / weight


def ink(x: Tensor, sigma: float, strength: float) -> Tensor:
    """How much ink lies on each pixel, 0 to 1: dark sides of edges, by a difference of Gaussians."""
    difference = _blur(x, sigma) - _blur(x, 1.6 * sigma)
    return _ramp(strength * (-difference).amax(dim=1, keepdim=True), 0.25, 1.0)


def _lattice(x: Tensor) -> tuple[Tensor, Tensor]:
    """Column and row of each pixel on the lattice, from 0 to 8."""
    rows = torch.arange(x.shape[2], dtype=x.dtype).view(1, 1, -1, 1) % LATTICE
    columns = torch.arange(x.shape[3], dtype=x.dtype).view(1, 1, 1, -1) % LATTICE
    return columns, rows


def _wave(t: Tensor, period: float) -> Tensor:
    """1 in the middle of each period, 0 at its ends."""
    return 0.5 - 0.5 * torch.cos(2.0 * torch.pi * t / period)


def _saturated(x: Tensor, factor: float) -> Tensor:
    light = luminance(x)
    return (light + (x - light) * factor).clamp(0.0, 1.0)


def _banded(x: Tensor, bands: float, softness: float) -> Tensor:
    """The luminance in steps with short ramps between them."""
    scaled = luminance(x) * bands
    whole = torch.floor(scaled)
    return (whole + _ramp(scaled - whole, 0.5 - softness, 0.5 + softness)) / bands


def gouache(x: Tensor) -> Tensor:
    """Flat strokes in few tones, violet shadows, cream lights, thin dark outlines."""
    flat = kuwahara(x, 4)
    light = luminance(flat)
    tone = _banded(flat, 5.0, 0.25)
    color = _saturated(flat * (1.1 * tone / light.clamp(min=0.02)).clamp(0.5, 1.8), 1.45)
    shadow = x.new_tensor([0.16, 0.10, 0.36]).view(1, 3, 1, 1)
    cream = x.new_tensor([1.0, 0.95, 0.80]).view(1, 3, 1, 1)
    color = torch.lerp(shadow, color, 0.25 + 0.75 * _ramp(tone, 0.0, 0.4))
    color = torch.lerp(color, cream.expand_as(color), 0.75 * _ramp(tone, 0.7, 1.0))
    line = x.new_tensor([0.10, 0.06, 0.16]).view(1, 3, 1, 1)
    return torch.lerp(color, line.expand_as(color), 0.9 * ink(x, 1.0, 20.0))


def comic(x: Tensor) -> Tensor:
    """Bright flat colours, shadows in dots, heavy outlines."""
    flat = _blur(x, 1.0)
    light = luminance(flat)
    tone = _banded(flat, 3.0, 0.2)
    color = _saturated((flat * (0.25 + 0.85 * tone) / light.clamp(min=0.05)).clamp(0.0, 1.0), 1.7)
    columns, rows = _lattice(x)
    dots = 0.5 * (_wave(columns, 8.0) * _wave(rows, 8.0) + _wave(columns + 4.0, 8.0) * _wave(rows + 4.0, 8.0))
    dark = x.new_tensor([0.13, 0.08, 0.30]).view(1, 3, 1, 1)
    amount = _ramp(2.0 * dots - light * 2.2, -0.15, 0.15) * _ramp(0.55 - light, 0.0, 0.1)
    color = torch.lerp(color, dark.expand_as(color), 0.75 * amount)
    return torch.lerp(color, torch.zeros_like(color) + 0.03, ink(x, 1.2, 14.0))


def etching(x: Tensor) -> Tensor:
    """Ink on paper: outlines and two layers of hatching, with a wash of the colour below."""
    flat = _blur(x, 1.5)
    light = luminance(flat)
    paper = x.new_tensor([0.96, 0.91, 0.80]).view(1, 3, 1, 1)
    wash = torch.lerp(paper.expand_as(x), paper * _saturated(flat, 1.5), 0.65)
    columns, rows = _lattice(x)
    first = _ramp(_wave(columns + rows, 8.0) - light * 1.7 - 0.05, -0.2, 0.2)
    second = _ramp(_wave(columns - rows, 8.0) - light * 3.5, -0.2, 0.2)
    lines = torch.maximum(torch.maximum(first, second) * 0.8, ink(x, 1.0, 20.0))
    color = x.new_tensor([0.13, 0.11, 0.20]).view(1, 3, 1, 1)
    return torch.lerp(wash, color.expand_as(x), lines)


PAINTERS: dict[str, Callable[[Tensor], Tensor]] = {"gouache": gouache, "comic": comic, "etching": etching}
