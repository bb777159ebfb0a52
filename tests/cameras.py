"""A camera that is not there, in the place of pygame's."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest


class FakeCamera:
    """What `pygame.camera.Camera` makes once `plug_in` was called: it has a picture when `show` gives it one.

    It tells which threads have called it, and raises `fault`, if there is one.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.threads: set[str] = set()
        self.is_open = False
        self.fault: Exception | None = None
        self._picture: np.ndarray | None = None
        self._idle = threading.Event()

    def plug_in(self, patch: pytest.MonkeyPatch, names: tuple[object, ...] = ("front", "back")) -> None:
        """Have pygame find this camera, under several names."""
        import pygame.camera

        patch.setattr(pygame.camera, "init", lambda: None)
        patch.setattr(pygame.camera, "list_cameras", lambda: list(names))
        patch.setattr(pygame.camera, "Camera", self._made)

    def _made(self, *asked: Any) -> FakeCamera:
        self.asked.append(asked)
        return self

    def show(self, picture: np.ndarray) -> None:
        """Give (rows, columns, 3) uint8 to whoever reads; returns when it was read."""
        self._idle.clear()
        self._picture = picture
        assert self._idle.wait(5.0), "nobody reads this camera"

    # -- as pygame's ----------------------------------------------------------------------------

    def _called(self) -> None:
        self.threads.add(threading.current_thread().name)
        if self.fault is not None:
            raise self.fault

    def start(self) -> None:
        self._called()
        assert not self.is_open, "two opened it at once"
        self.is_open = True

    def stop(self) -> None:
        self.is_open = False
        self._called()

    def query_image(self) -> bool:
        self._called()
        if self._picture is None:
            self._idle.set()  # the one before was taken over
        return self._picture is not None

    def get_image(self) -> Any:
        import pygame

        picture, self._picture = self._picture, None
        assert picture is not None
        return pygame.surfarray.make_surface(picture.swapaxes(0, 1))
