"""A camera as a wand: what moves before it is followed. Nothing else in the demo needs one."""

from __future__ import annotations

from typing import Any

import numpy as np

from demos.gesture.wand import FIELD, Wand
from gameglue import MonoBehaviour

_SIZE = (160, 120)
_MOVED = 0.11  # change in brightness, 0 to 1, from which a pixel counts as moving
_LEAST = 0.004  # of the picture has to move
_STILL = 0.3  # seconds without movement that end a stroke


class Camera:
    """The middle of what moves in the picture. Raises OSError, with the reason, where there is no camera."""

    def __init__(self, device: Any = None) -> None:
        """device: with the methods of `pygame.camera.Camera`; the first camera if not given."""
        self._camera = _first_camera() if device is None else device
        self._before: np.ndarray | None = None
        self._moved_at: float | None = None
        self._place = (0.5, 0.5)

    def look(self, now: float) -> tuple[float, float] | tuple[()] | None:
        """Where something moves, 0 to 1 in x (mirrored) and y; () for nothing new; None once all is still."""
        if self._camera.query_image():
            image = self._camera.get_image()
            width, height = image.get_size()
            pixels = np.frombuffer(_bytes(image), np.uint8).reshape(height, width, 3)
            gray = pixels[::2, ::-2].mean(axis=2) / 255.0
            before, self._before = self._before, gray
            moved = np.zeros_like(gray) if before is None else np.abs(gray - before) > _MOVED
            if moved.mean() > _LEAST:
                rows, columns = np.nonzero(moved)
                here = columns.mean() / gray.shape[1], rows.mean() / gray.shape[0]
                fresh = self._moved_at is None
                # A hand's outline flickers: half of each place is the place before.
                self._place = here if fresh else tuple((np.array(here) + self._place) / 2)
                self._moved_at = now
                return self._place
        if self._moved_at is not None and now - self._moved_at > _STILL:
            self._moved_at = None
            return None
        return ()

    def close(self) -> None:
        """Let others have the camera."""
        self._camera.stop()


def _bytes(image: Any) -> bytes:
    import pygame  # only who uses a camera needs it here

    data: bytes = pygame.image.tobytes(image, "RGB")
    return data


def _first_camera() -> Any:
    import pygame.camera  # not every build of pygame has it

    try:
        pygame.camera.init()
        names = pygame.camera.list_cameras()
        if not names:
            raise OSError("no camera was found")
        camera = pygame.camera.Camera(names[0], _SIZE, "RGB")
        camera.start()
    except (pygame.error, ImportError, NotImplementedError, SystemError, TypeError) as error:
        raise OSError(f"no camera: {error}") from error
    return camera


class CameraWand(MonoBehaviour):
    """C turns a camera on and off, which then moves the wand too."""

    execution_order = -2
    wand: Wand

    def awake(self) -> None:
        """No camera yet."""
        self.camera: Camera | None = None
        self.message = ""

    def update(self) -> None:
        """Move the wand to where something moves; all still, the stroke ends."""
        if self.input.get_key_down("c"):
            self._switch()
        seen = () if self.camera is None else self.camera.look(self.time.unscaled_time)
        if seen is None:
            self.wand.end()
        elif seen:
            x, y = FIELD[0] + seen[0] * FIELD[2], FIELD[1] + seen[1] * FIELD[3]
            (self.wand.move if self.wand.drawing else self.wand.begin)(x, y)

    def _switch(self) -> None:
        self.message = ""
        if self.camera is not None:
            self.camera.close()
            self.camera = None
            return
        try:
            self.camera, self.message = Camera(), "camera: move to draw, hold still to cast"
        except OSError as error:
            self.message = str(error)

    def on_destroy(self) -> None:
        """Let others have the camera."""
        if self.camera is not None:
            self.camera.close()
