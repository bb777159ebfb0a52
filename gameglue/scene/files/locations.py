"""Locates scene and prefab files, and reads and writes their text."""

from __future__ import annotations

import os
from pathlib import Path

from engine.base.spelling import near
from gameglue.errors import ResourceError, SceneError
from gameglue.host.resources import Resources

VERSION = 1
"""The newest form of files that is read, and the one that is written."""

SCENE, PREFAB = ".scene", ".prefab"


def find_file(resources: Resources, name: str | Path, suffix: str) -> Path:
    """The file of that name, with or without `suffix`. Raises `SceneError`, which names files alike."""
    text = str(name)
    # A null character, or a name longer than systems have it, is no file either.
    try:
        for candidate in (text,) if text.endswith(suffix) else (text + suffix, text):
            if resources.exists(candidate):
                return resources.find(candidate)
        resources.find(text if text.endswith(suffix) else text + suffix)
    except (ResourceError, ValueError, OSError) as error:
        known = sorted(
            {
                str(p.relative_to(r))
                for r in _searched_roots(resources)
                for p in r.rglob("*" + suffix)
                if p.is_file()
            }
        )
        hint = near(text, known, f"{suffix} files here") if known else ""
        raise SceneError(f"{error}{hint}") from error
    raise AssertionError("found in the second round only")


def name_of(resources: Resources, path: Path) -> str:
    """The name by which `resources` finds `path`: relative to a root if it is below one."""
    for root in resources.roots:
        if path.is_relative_to(root):
            return path.relative_to(root).as_posix()
    return str(path)


def read_text(path: Path) -> str:
    """The text of a file. Raises `SceneError` where it cannot be read or is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SceneError(f"{path} cannot be read: {error}") from error


def place_to_save(resources: Resources, path: str | Path, suffix: str) -> Path:
    """The path to save to: relative to the game's folder, with `suffix` if it has none."""
    place = resources.folder / path
    return place if place.suffix else place.with_name(place.name + suffix)


def write_text(path: Path, text: str) -> None:
    """Write a file atomically, by renaming a temporary one. Raises `SceneError`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            temporary.write_text(text, encoding="utf-8", newline="\n")
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise SceneError(f"{path} cannot be written: {error}") from error


def _searched_roots(resources: Resources) -> list[Path]:
    """The roots after the game's folder, which is not searched: it may be a home folder."""
    return [root for root in resources.roots[1:] if root.is_dir()]
