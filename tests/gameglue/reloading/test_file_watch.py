"""Changes of a file: told once, when they have settled, and not asked of the disk too often."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gameglue.reloading import file_watch
from gameglue.reloading.file_watch import FileWatch


def changes(watch: FileWatch, start: float, seconds: float) -> list[float]:
    """When it tells of changes, asked sixty times a second."""
    frames = int(seconds * 60)
    return [start + k / 60 for k in range(frames) if watch.has_changed(start + k / 60)]


def test_a_change_is_told_once_within_a_second(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"one")
    watch = FileWatch(path)
    assert changes(watch, 0.0, 3.0) == []
    path.write_bytes(b"three")
    found = changes(watch, 3.0, 3.0)
    assert len(found) == 1
    assert found[0] < 4.0


def test_a_file_that_is_still_being_written_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"one")
    watch = FileWatch(path)
    now = 10.0
    with path.open("wb") as file:
        for _ in range(20):
            file.write(b"part")
            file.flush()
            assert not watch.has_changed(now)
            now += file_watch.SETTLING + 0.01
    assert len(changes(watch, now, 2.0)) == 1


def test_a_file_that_is_replaced_is_waited_for_while_it_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"one")
    watch = FileWatch(path)
    path.unlink()
    assert changes(watch, 0.0, 2.0) == []
    other = tmp_path / "b.bin"
    other.write_bytes(b"two")
    os.replace(other, path)
    assert len(changes(watch, 2.0, 2.0)) == 1


def test_the_disk_is_asked_twice_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"one")
    watch = FileWatch(path)
    asked = []
    state = file_watch._state_of
    monkeypatch.setattr(file_watch, "_state_of", lambda p: asked.append(p) or state(p))  # type: ignore[func-returns-value]
    changes(watch, 0.0, 10.0)
    assert 15 <= len(asked) <= 21
