"""pygame's mixer, one per process: opened on a device, or without one to decode files."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np

from gameglue.errors import ResourceError
from gameglue.host.pygame_ce import import_pygame

FREQUENCY = 44100
_FORMAT = -16
_CHANNELS = 2
_BUFFER = 512
_VOICES = 32
_DRIVER = "SDL_AUDIODRIVER"

_lock = threading.RLock()
"""Files are decoded on other threads, and the mixer must not change meanwhile."""


def open_mixer() -> str:
    """Open the device unless it is open already; why that is not possible, or ""."""
    pygame = import_pygame()
    with _lock:
        if pygame.mixer.get_init() is None:
            try:
                with _quiet():
                    pygame.mixer.init(FREQUENCY, _FORMAT, _CHANNELS, _BUFFER, allowedchanges=0)
            except pygame.error as error:
                return str(error)
            pygame.mixer.set_num_channels(_VOICES)
        return (
            ""
            if _is_ours(pygame)
            else "the game has opened pygame's mixer in another format than 16 bit stereo"
        )


def close_mixer() -> None:
    """Close it."""
    with _lock:
        import_pygame().mixer.quit()


def decode(path: Path) -> tuple[np.ndarray, int]:
    """The samples of a sound file, (n, 2) int16, and how many there are a second. Raises `ResourceError`."""
    pygame = import_pygame()
    with _lock:
        borrowed = pygame.mixer.get_init() is None
        if borrowed:
            _open_without_device(pygame)
        try:
            if not _is_ours(pygame):
                raise ResourceError(f"{path}: pygame's mixer is open in another format than 16 bit stereo")
            raw = pygame.mixer.Sound(str(path)).get_raw()
            frequency = int(pygame.mixer.get_init()[0])
        except pygame.error as error:
            raise ResourceError(f"{path} is not a sound that pygame can read: {error}") from error
        finally:
            if borrowed:
                pygame.mixer.quit()
    return np.frombuffer(raw, np.int16).reshape(-1, 2).copy(), frequency


def _open_without_device(pygame: ModuleType) -> None:
    # Only a mixer decodes, and there is one without a device: SDL's driver "dummy".
    before = os.environ.get(_DRIVER)
    os.environ[_DRIVER] = "dummy"
    try:
        pygame.mixer.init(FREQUENCY, _FORMAT, _CHANNELS, _BUFFER, allowedchanges=0)
    except pygame.error as error:
        raise ResourceError(f"no sound can be decoded here: {error}") from error
    finally:
        if before is None:
            del os.environ[_DRIVER]
        else:
            os.environ[_DRIVER] = before


def _is_ours(pygame: ModuleType) -> bool:
    settings = pygame.mixer.get_init()
    return settings is not None and tuple(settings[1:]) == (_FORMAT, _CHANNELS)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Context manager that discards standard error: ALSA writes a page to it if there is no device."""
    try:
        kept = os.dup(2)
    except OSError:
        yield
        return
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
