"""Files are found by name, in a stated order, and a missing one says where it was looked for."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pygame
import pytest

from gameglue import ResourceError, Resources
from gameglue.host.resources import packaged_assets, script_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "assets" / "levels").mkdir(parents=True)
    (tmp_path / "assets" / "levels" / "one.txt").write_text("level öne", encoding="utf-8")
    (tmp_path / "both.txt").write_text("own")
    (tmp_path / "assets" / "both.txt").write_text("asset")
    return tmp_path


def test_the_games_own_files_come_first(folder: Path) -> None:
    resources = Resources(folder)
    assert resources.read_text("both.txt") == "own"
    assert resources.read_text("levels/one.txt") == "level öne"
    assert resources.read_bytes(folder / "both.txt") == b"own"
    assert resources.exists("both.txt")
    assert not resources.exists("none.txt")


def test_a_missing_file_lists_the_places_and_near_names(folder: Path) -> None:
    with pytest.raises(ResourceError) as caught:
        Resources(folder).find("one.txt")
    message = str(caught.value)
    assert "no file 'one.txt'" in message
    assert str(folder / "one.txt") in message
    assert str(folder / "assets" / "one.txt") in message
    assert f"there is: {Path('levels/one.txt')}" in message
    assert isinstance(caught.value, FileNotFoundError)


def test_packaged_assets_come_last(folder: Path) -> None:
    packaged = packaged_assets()
    assert packaged is not None
    assert Resources(folder).roots[-1] == packaged


def test_the_default_folder_is_the_scripts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "game.py"
    script.write_text("")
    monkeypatch.setattr(sys, "argv", [str(script)])
    assert script_folder() == tmp_path
    monkeypatch.setattr(sys, "argv", [""])
    monkeypatch.chdir(tmp_path / "..")
    assert script_folder() == Path.cwd()


def test_pictures_are_rgba_with_row_0_on_top(folder: Path) -> None:
    surface = pygame.Surface((3, 2), pygame.SRCALPHA)
    surface.set_at((2, 0), (10, 20, 30, 40))
    pygame.image.save(surface, str(folder / "dot.png"))
    pixels = Resources(folder).read_image("dot.png")
    assert pixels.shape == (2, 3, 4)
    assert pixels.dtype == np.uint8
    assert pixels[0, 2].tolist() == [10, 20, 30, 40]
    assert pixels[1, 2].tolist() == [0, 0, 0, 0]


def test_a_file_that_is_no_picture_says_so(folder: Path) -> None:
    (folder / "fake.png").write_text("not a picture")
    with pytest.raises(ResourceError, match=r"fake\.png is not a picture that pygame can read"):
        Resources(folder).read_image("fake.png")
