"""Standalone builds: `gameglue build`, its PyInstaller hooks and its launcher."""

from __future__ import annotations

from pathlib import Path

DESCRIPTION = "gameglue-game.json"
"""The file in the bundle that says which game it is."""

GAME_FOLDER = "game"
"""Where the files of a game of one's own lie in the bundle."""


def hook_folders() -> list[str]:
    """The folder of our PyInstaller hooks, registered as an entry point for manual builds."""
    return [str(Path(__file__).resolve().parent / "hooks")]
