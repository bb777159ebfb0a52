"""Animated images of a run, at the game's own speed."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from engine.base.errors import InputError
from gameglue.host.garbage_collection import freeze_garbage_collector

if TYPE_CHECKING:
    from PIL import Image

    from gameglue.host.app import App

SECONDS = 6.0
"""Length of an animation: the last seconds of a run."""

WIDTH = 480
"""Width in pixels; smaller windows keep theirs."""

PER_SECOND = 12
"""Pictures per second."""

LARGEST = 2_000_000
"""Bytes of a GIF beyond which it is written with fewer colours."""

COLORS = (192, 128, 96, 64, 48, 32)
"""Sizes of a GIF's palette, in the order in which they are tried."""

SUFFIXES = (".gif", ".png", ".webp")


class Animation:
    """Collects images of a run and writes them as GIF, animated PNG or WebP.

    Args:
        path: The file to write; its suffix chooses the format.
        frames_per_second: Frames of game time in a second.

    Raises:
        InputError: The suffix is not one of `SUFFIXES`, or Pillow is not installed.
    """

    def __init__(self, path: Path, frames_per_second: float) -> None:
        if path.suffix.lower() not in SUFFIXES:
            raise InputError(f"--animation writes {', '.join(SUFFIXES)}; {path.name} is none of them")
        try:
            # An extra: only who animates needs it.
            import PIL.Image  # noqa: F401
        except ImportError:
            raise InputError('--animation needs Pillow: pip install "gameglue[images]"') from None
        self.path = path
        self.every = max(1, round(frames_per_second / PER_SECOND))
        """Frames from one image to the next."""
        self._milliseconds = 1000.0 * self.every / frames_per_second
        self._pictures: deque[np.ndarray] = deque(maxlen=round(1000.0 * SECONDS / self._milliseconds))

    def take(self, app: App) -> None:
        """Capture the last complete frame. Blocks until the GPU is done; does nothing without OpenGL."""
        if app.ctx is not None:
            self._pictures.append(app.graphics.read_pixels())

    def play(self, app: App, frames: int) -> None:
        """Run up to `frames` frames, and collect images."""
        done = 0
        with freeze_garbage_collector():
            while done < frames and not app.is_quitting:
                step = min(self.every, frames - done)
                app.run(step)
                done += step
                self.take(app)

    def save(self) -> bool:
        """Write the file. Returns False if no image was taken."""
        # An extra: only who animates needs it.
        from PIL import Image

        if not self._pictures:
            return False
        height, width = self._pictures[0].shape[:2]
        size = (min(width, WIDTH), round(height * min(width, WIDTH) / width))
        images = [Image.fromarray(pixels).resize(size, Image.Resampling.LANCZOS) for pixels in self._pictures]
        os.makedirs(self.path.parent, exist_ok=True)
        if self.path.suffix.lower() != ".gif":
            self._write(images)
            return True
        sheet = _contact_sheet(images)
        for colors in COLORS:
            # One palette for all images, without dithering: fewer pixels change, and the file is smaller.
            palette = with_few_colors(sheet, colors)
            self._write([image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images])
            if self.path.stat().st_size <= LARGEST:
                break
        return True

    def _write(self, images: Sequence[Image.Image]) -> None:
        milliseconds = round(self._milliseconds)
        images[0].save(self.path, save_all=True, append_images=images[1:], duration=milliseconds, loop=0)


def with_few_colors(image: Image.Image, colors: int) -> Image.Image:
    """Quantize an RGB image to a palette of so many colours, without dithering.

    Pillow's default method drops the colours of small things on a large ground.
    """
    # An extra: only who animates needs it.
    from PIL import Image

    return image.quantize(colors, Image.Quantize.MAXCOVERAGE, kmeans=4, dither=Image.Dither.NONE)


def _contact_sheet(images: Sequence[Image.Image]) -> Image.Image:
    """Some of the images in one, from which a palette is chosen."""
    # An extra: only who animates needs it.
    from PIL import Image

    chosen = images[:: max(1, len(images) // 8)]
    width, height = chosen[0].size
    sheet = Image.new("RGB", (width, height * len(chosen)))
    for number, image in enumerate(chosen):
        sheet.paste(image, (0, number * height))
    return sheet
