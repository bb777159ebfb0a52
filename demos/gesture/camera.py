"""A webcam as a wand: the wand follows what moves in its image. The camera is optional."""

from __future__ import annotations

import math

import numpy as np

from demos.gesture.wand import FIELD, Wand
from gameglue import MonoBehaviour, WebCamError, WebCamTexture

_MOVED = 0.11  # change in brightness, 0 to 1, from which a pixel counts as moving
_LEAST = 0.004  # of the picture has to move
_STILL = 0.3  # seconds without movement that end a stroke


class CameraWand(MonoBehaviour):
    """C turns the camera on and off."""

    execution_order = -2
    wand: Wand

    def awake(self) -> None:
        """Start with the camera off."""
        self.picture = WebCamTexture(self.app, size=(160, 120))
        self.note, self._moved_at, self._before = self.wand.label, math.inf, np.zeros((0, 0))

    def update(self) -> None:
        """Move the wand to where something moves; end the stroke when nothing does."""
        try:
            if self.input.get_key_down("c"):
                plays = self.picture.is_playing
                self.note = self.wand.label if plays else "camera: move to draw, hold still to cast"
                (self.picture.stop if plays else self.picture.play)()
            if self.picture.update():
                self._follow(self.picture.pixels[::2, ::-2].mean(axis=2) / 255.0)  # mirrored
        except WebCamError as error:
            self.note = str(error)
        if self.time.unscaled_time - self._moved_at > _STILL:
            self._moved_at = math.inf
            self.wand.lift()

    def _follow(self, gray: np.ndarray) -> None:
        before, self._before = self._before, gray
        moved = np.argwhere(np.abs(gray - before) > _MOVED) if before.shape == gray.shape else ()
        if len(moved) > _LEAST * gray.size:
            here = FIELD[:2] + np.mean(moved, axis=0)[::-1] / gray.shape[::-1] * FIELD[2:]
            if self.wand.drawing:  # smooths the flicker of a hand's outline
                here = (here + self.wand.points[-1][1:]) / 2.0
            self.wand.draw_to(*here)
            self._moved_at = self.time.unscaled_time
