"""A game with a folder of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from gameglue import App
from tests.gameglue.scene.files.parts import Asset

Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """`write("name", text)`: a file in the game's folder."""

    def made(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")
        return path

    return made


@pytest.fixture
def game_app(make_app: Callable[..., App], tmp_path: Path) -> App:
    """An app in that folder, that knows `Asset` files."""
    app = make_app(on_error="raise", folder=tmp_path)
    app.resources.register_loader(Asset, Asset)
    return app
