"""The cache folder: where it is asked to be, and somewhere safe where that cannot be."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from engine.cache import cache_dir

posix = pytest.mark.skipif(sys.platform == "win32", reason="file modes")


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("GAMEGLUE_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_the_variable_names_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GAMEGLUE_CACHE_DIR", str(tmp_path / "mine"))
    assert cache_dir() == tmp_path / "mine"
    assert cache_dir("gl", "programs") == tmp_path / "mine" / "gl" / "programs"
    assert (tmp_path / "mine" / "gl" / "programs").is_dir()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the folders of Linux")
def test_the_usual_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cache_dir() == tmp_path / "home" / ".cache" / "gameglue"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert cache_dir() == tmp_path / "caches" / "gameglue"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    assert cache_dir() == tmp_path / "home" / ".cache" / "gameglue"


@posix
def test_without_a_home_it_is_a_private_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An empty HOME is expanded to the root folder, where a game that runs as root could even write."""
    monkeypatch.setenv("HOME", "")
    assert cache_dir("native") == tmp_path / f"gameglue-{os.getuid()}" / "native"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the folders of Linux")
def test_a_named_place_for_caches_needs_no_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert cache_dir() == tmp_path / "caches" / "gameglue"


@posix
def test_a_folder_that_cannot_be_made_is_replaced_by_a_private_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("GAMEGLUE_CACHE_DIR", str(blocked))
    folder = cache_dir("native")
    assert folder == tmp_path / f"gameglue-{os.getuid()}" / "native"
    assert folder.parent.stat().st_mode & 0o077 == 0
    assert cache_dir("native") == folder


@posix
def test_a_temporary_folder_that_others_can_write_is_not_trusted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("GAMEGLUE_CACHE_DIR", str(blocked))
    planted = tmp_path / f"gameglue-{os.getuid()}"
    planted.mkdir()
    planted.chmod(0o777)
    folder = cache_dir()
    assert folder != planted
    assert folder.is_dir()
    assert folder.stat().st_mode & 0o077 == 0
