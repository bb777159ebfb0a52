"""Imports `pygame`, and makes sure that it is pygame-ce."""

from __future__ import annotations

import os
from types import ModuleType

from gameglue.errors import GraphicsError


def import_pygame() -> ModuleType:
    """The `pygame` module of pygame-ce.

    Raises `GraphicsError` if it is missing, or if the original pygame took its place: both install into the
    same folder, and whichever came last wins.
    """
    # Without this it greets on standard output, in the middle of a command's own.
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    try:
        # Heavy (0.2 s), and a game server that draws nothing needs none of it.
        import pygame
    except ImportError as error:
        raise GraphicsError(f"cannot import pygame ({error}): pip install pygame-ce") from error
    if not getattr(pygame, "IS_CE", False):
        version = getattr(getattr(pygame, "version", None), "ver", "unknown")
        folder = os.path.dirname(pygame.__file__ or "")
        raise GraphicsError(
            f"the module `pygame` in {folder} is the original pygame {version}, "
            "gameglue needs pygame-ce (same name, same folder). Replace it:\n"
            "  pip uninstall -y pygame pygame-ce && pip install pygame-ce"
        )
    return pygame
