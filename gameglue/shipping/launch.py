"""Entry point of a built game: compiles kernels at the first launch, then plays."""

from __future__ import annotations

import argparse
import json
import runpy
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gameglue.cli import play
from gameglue.cli.demos import find_demo, find_game
from gameglue.host.app import App
from gameglue.inference.backend_choice import BackendChoice, default_backend_choice
from gameglue.shipping import DESCRIPTION
from gameglue.shipping.first_launch import compile_kernels


def main(argv: Sequence[str] | None = None, bundle: Path | None = None) -> int:
    """Play the bundle's game and return the exit code.

    argv: options of `gameglue play`, for a game with `build(app, options)`; what a script reads itself.
    """
    folder = Path(sys._MEIPASS) if bundle is None else bundle  # type: ignore[attr-defined]
    game = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
    argv = sys.argv[1:] if argv is None else list(argv)
    return _play_build(game, folder, argv) if game["has_build"] else _play_script(game, folder, argv)


def _play_build(game: dict[str, Any], folder: Path, argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog=game["name"])
    play.add_options(parser)
    arguments = parser.parse_args(argv)
    is_demo = game["main"].startswith("demos/")
    found = find_demo(game["name"]) if is_demo else find_game(str((folder / game["main"]).parent))
    # Its folder has another name in the bundle.
    found = replace(found, name=game["name"])
    arguments.prepare = lambda app, choice: _make_ready(game, folder, app, choice)
    return play.main_of(found, arguments)


def _play_script(game: dict[str, Any], folder: Path, argv: Sequence[str]) -> int:
    script = folder / game["main"]
    with App(game["name"], size=(480, 270)) as app:
        _make_ready(game, folder, app, None)
    sys.argv = [str(script), *argv]
    sys.path.insert(0, str(script.parent))
    runpy.run_path(str(script), run_name="__main__")
    return 0


def _make_ready(game: dict[str, Any], folder: Path, app: App, choice: BackendChoice | None) -> None:
    chosen = choice or default_backend_choice(app.ctx is not None)[0]
    models = [folder / name for name in game["models"]]
    compile_kernels(app, chosen, models, f"{game['name']}-{game['digest']}")
