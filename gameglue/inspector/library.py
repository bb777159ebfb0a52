"""Imports `imgui`, and says how to get it where it is missing."""

from __future__ import annotations

from typing import Any

from gameglue.errors import GameError


def import_imgui() -> Any:
    """The module `imgui` of imgui-bundle. Raises `GameError` with the way to install it."""
    try:
        # Optional, and only those who look into a game need it.
        from imgui_bundle import imgui
    except ImportError as error:
        raise GameError(
            f'the inspector needs imgui-bundle ({error}): pip install "gameglue[inspector]"'
        ) from error
    return imgui
