"""`SpriteSheet`: an image divided into frames; `AnimationClip`: a sequence of frames."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gameglue.errors import GraphicsError
from gameglue.graphics.batch import Picture

Region = tuple[float, float, float, float]
"""Left, top, right and bottom, as fractions of an image."""


@dataclass(frozen=True)
class SpriteSheet:
    """An image divided by a grid into frames, counted from the top left, row by row.

    Args:
        texture: The image.
        columns: Frames from left to right.
        rows: Frames from top to bottom.
        margin: Pixels around the grid.
        spacing: Pixels between frames.
        cell: Width and height of a frame, if the grid does not fill the image.

    Raises:
        GraphicsError: No pixel is left for a frame.
    """

    texture: Picture
    columns: int
    rows: int = 1
    margin: int = 0
    spacing: int = 0
    cell: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if min(self.columns, self.rows) < 1 or min(self.margin, self.spacing) < 0:
            raise GraphicsError(
                f"a sheet needs at least one column and row and no negative margins, got columns="
                f"{self.columns}, rows={self.rows}, margin={self.margin}, spacing={self.spacing}"
            )
        if min(self.frame_size) < 1:
            raise GraphicsError(
                f"{self.texture.size} pixels have no room for {self.columns} by {self.rows} frames"
            )

    @classmethod
    def of_frames(
        cls, texture: Picture, width: int, height: int, *, margin: int = 0, spacing: int = 0
    ) -> SpriteSheet:
        """Divide an image into frames of a given size.

        Args:
            texture: The image.
            width: Width of a frame in pixels.
            height: Height of a frame in pixels.
            margin: Pixels around the grid.
            spacing: Pixels between frames.
        """
        across, down = (
            (length - 2 * margin + spacing) // max(1, frame + spacing)
            for length, frame in zip(texture.size, (width, height), strict=True)
        )
        if min(width, height, across, down) < 1:
            raise GraphicsError(f"no frame of {width} by {height} fits into {texture.size} pixels")
        # What the frames leave over on the right and below belongs to none.
        return cls(texture, across, down, margin, spacing, (width, height))

    def __len__(self) -> int:
        return self.columns * self.rows

    @property
    def frame_size(self) -> tuple[float, float]:
        """Width and height of a frame in pixels; a fraction where the grid does not divide the image."""
        if self.cell is not None:
            return self.cell
        across, down = (
            (length - 2 * self.margin - (count - 1) * self.spacing) / count
            for length, count in zip(self.texture.size, (self.columns, self.rows), strict=True)
        )
        return across, down

    def region(self, frame: int) -> Region:
        """The region of a frame, for `canvas.sprite(..., region=...)`; numbers wrap around: -1 is the last.

        For a smooth texture, the region ends half a pixel inside the frame, so that interpolation does not
        reach the neighbouring frame.
        """
        row, column = divmod(frame % len(self), self.columns)
        across, down = self.frame_size
        left = self.margin + column * (across + self.spacing)
        top = self.margin + row * (down + self.spacing)
        inset = 0.5 if self.texture.smooth and len(self) > 1 else 0.0
        width, height = self.texture.size
        return (
            (left + inset) / width,
            (top + inset) / height,
            (left + across - inset) / width,
            (top + down - inset) / height,
        )

    def regions(self) -> np.ndarray:
        """The regions of all frames, (n, 4) float32."""
        return np.array([self.region(frame) for frame in range(len(self))], np.float32)


@dataclass(frozen=True)
class AnimationClip:
    """A sequence of frames of a sheet.

    Args:
        frames: Numbers of the frames, in order.
        frame_rate: Frames per second.
        loop: Whether it starts over at its end; otherwise the last frame stays.
    """

    frames: Sequence[int]
    frame_rate: float = 10.0
    loop: bool = True

    def __post_init__(self) -> None:
        if not len(self.frames) or self.frame_rate <= 0.0:
            raise GraphicsError(
                f"a clip needs frames and a rate above 0, got {self.frames}, {self.frame_rate}"
            )
        object.__setattr__(self, "frames", tuple(self.frames))

    @property
    def duration(self) -> float:
        """Duration in seconds."""
        return len(self.frames) / self.frame_rate

    def frame_at(self, seconds: float) -> int:
        """The frame shown at this time since the start."""
        # A hair more, so that n steps of 1 / frame_rate are n frames however their sum is rounded.
        step = math.floor(seconds * self.frame_rate + 1e-6)
        last = len(self.frames) - 1
        return self.frames[step % (last + 1) if self.loop else min(max(step, 0), last)]
