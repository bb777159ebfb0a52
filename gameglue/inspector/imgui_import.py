"""Imports `imgui`, with installation advice if it is missing."""

from __future__ import annotations

from typing import Any

from gameglue.errors import GameError


def import_imgui() -> Any:
    """Import `imgui` from imgui-bundle. Raises `GameError` with installation advice."""
    try:
        # Optional, and only those who look into a game need it.
        from imgui_bundle import imgui
    except ImportError as error:
        raise GameError(
            f'the inspector needs imgui-bundle ({error}): pip install "gameglue[inspector]"'
        ) from error
    return imgui
