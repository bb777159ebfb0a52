"""`WebCamTexture`: camera images as a texture and an array, read in the background."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gameglue.errors import WebCamError
from gameglue.graphics.device import Texture
from gameglue.host.pygame_ce import import_pygame

if TYPE_CHECKING:
    from gameglue.host.app import App

_NAP: Final = 0.004  # seconds between looks for a new image
_LAST_WAIT: Final = 2.0  # seconds that the end of a program waits for a camera to be given back


class WebCamTexture(Texture):
    """A texture that shows a camera's images: draw it, feed it to a network, or read its `pixels`.

    Call `play()`, then `update()` once a frame, which is true when a new image has come:

        self.webcam = WebCamTexture(self.app)                   # in awake
        self.webcam.play()
        if self.webcam.update():                                # in update
            self.network.update(self.webcam)
        self.app.gui.image(self.webcam, 0, 0)                   # in on_gui

    The device is opened and read on a thread of its own, so no frame waits for it. `size` is what was asked
    for until the first image shows what the camera has. It needs pygame's camera module, for which macOS
    wants the package `opencv-python`. What a camera sees is not part of a recording of input.

    Attributes:
        device_name: Name of the camera; None for the first.
    """

    def __init__(self, app: App, device_name: str | None = None, size: tuple[int, int] = (640, 480)) -> None:
        """Create the texture; `play` opens the camera.

        Args:
            app: whose texture it is; its end gives the camera back.
            device_name: one of `devices()`; the first of them if not given.
            size: requested width and height in pixels. Cameras have sizes of their own, and give one
                that is near.
        """
        super().__init__(app.graphics.device, None, size, smooth=True)
        self.device_name = device_name
        self.pixels = np.zeros((self.height, self.width, 3), np.uint8)
        """The newest picture: (rows, columns, 3) uint8, red, green, blue, row 0 on top; only to be read."""
        self.count = 0
        """How many images `update` has taken."""
        self._asked = self.size
        self._reader: _Reader | None = None

    @staticmethod
    def devices() -> tuple[str, ...]:
        """The names of the cameras; an empty list if there are none or pygame has no camera module."""
        try:
            return tuple(str(name) for name in _cameras().list_cameras())
        except Exception:  # noqa: BLE001 - what each system's way to cameras raises
            return ()

    @property
    def is_playing(self) -> bool:
        """Whether the camera is open, or about to be."""
        return self._reader is not None and not self._reader.ending.is_set()

    def play(self) -> None:
        """Start reading the camera; does nothing if it is playing.

        Raises:
            WebCamError: There is no camera, or none of that name. Later errors are raised by `update`.
        """
        if self.is_playing:
            return
        try:
            module = _cameras()
            found = list(module.list_cameras())
        except Exception as error:
            raise WebCamError(f"cameras cannot be listed: {error}") from error
        if not found:
            raise WebCamError("no camera was found: connect one, and allow this program to use it")
        wanted = [name for name in found if self.device_name in (None, str(name))]
        if not wanted:
            names = ", ".join(f"'{name}'" for name in found)
            raise WebCamError(f"there is no camera '{self.device_name}'; one of: {names}")
        self._device.keep(self)
        self._reader = _Reader(module, wanted[0], self._asked, self._reader)

    def update(self) -> bool:
        """Take the newest image; returns whether there was one since the last call.

        Raises:
            WebCamError: The camera has ended, as it is in use or was unplugged; raised once.
        """
        reader = self._reader
        pixels = None if reader is None else reader.take()
        if pixels is None:
            if reader is not None and reader.error and self.is_playing:
                self._reader = None
                raise WebCamError(reader.error)
            return False
        if pixels.shape[:2] == (self.height, self.width):
            self.write(pixels)
        else:
            super().release()
            super().__init__(self._device, pixels, None, self.smooth)
            self._device.keep(self)
        self.pixels = pixels
        self.count += 1
        return True

    def stop(self) -> None:
        """Close the camera and keep the last image. `play` opens it again."""
        if self._reader is not None:
            self._reader.ending.set()

    def release(self) -> None:
        """Close the camera, and free the GPU memory."""
        if self._reader is not None:
            self._reader.ending.set()
            self._reader.join()
            self._reader = None
        super().release()


class _Reader:
    """Opens a camera and reads it, on a thread, until it is stopped or the camera ends."""

    def __init__(self, module: Any, name: Any, size: tuple[int, int], before: _Reader | None) -> None:
        self.ending = threading.Event()
        self.error = ""
        self._module, self._name, self._size, self._before = module, name, size, before
        self._newest: deque[np.ndarray] = deque(maxlen=1)
        # macOS asks whether a program may use the camera, and does so on the main thread only.
        self._camera = self._open() if sys.platform == "darwin" else None
        self._thread = threading.Thread(target=self._run, name="gameglue-camera", daemon=True)
        self._thread.start()

    def take(self) -> np.ndarray | None:
        """The newest image, once; none after the end."""
        return self._newest.pop() if self._newest and not self.ending.is_set() else None

    def join(self) -> None:
        """Wait until the thread has released the camera, with a timeout."""
        self._thread.join(_LAST_WAIT)

    def _open(self) -> Any:
        try:
            camera = self._module.Camera(self._name, self._size, "RGB")
            camera.start()
        except Exception as error:  # noqa: BLE001 - what each system's way to cameras raises
            self.error = f"the camera '{self._name}' cannot be opened: {error}"
            return None
        return camera

    def _run(self) -> None:
        if self._before is not None:
            self._before.join()  # two at once would find the device in use
            self._before = None
        if self._camera is None and not self.error:
            self._camera = self._open()
        if self._camera is None:
            return
        try:
            while not self.ending.wait(_NAP):
                if self._camera.query_image():
                    self._newest.append(_pixels(self._camera.get_image()))
        except Exception as error:  # noqa: BLE001 - what each system's way to cameras raises
            self.error = f"the camera '{self._name}' has stopped: {error}"
        with contextlib.suppress(Exception):  # of one that was unplugged
            self._camera.stop()


def _cameras() -> Any:
    """pygame's camera module, initialised. Raises what the system's camera library does."""
    import_pygame()
    from pygame import camera  # not every build has it

    camera.init()
    return camera


def _pixels(image: Any) -> np.ndarray:
    """A surface as (rows, columns, 3) uint8."""
    width, height = image.get_size()
    data = import_pygame().image.tobytes(image, "RGB")
    return np.frombuffer(data, np.uint8).reshape(height, width, 3)
