"""Finds the game's files by name: first in the game's folder, then among what gameglue brings along."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import UnionType
from typing import Union, get_args, get_origin

import numpy as np

from gameglue.errors import ResourceError
from gameglue.pygame_ce import import_pygame


def packaged_assets() -> Path | None:
    """The folder of gameglue's own assets: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parent
    for folder in (package / "_assets", package.parent / "assets"):
        if folder.is_dir():
            return folder
    return None


def script_folder() -> Path:
    """The folder of the running script, or the working folder where there is none."""
    script = Path(sys.argv[0]) if sys.argv and sys.argv[0] else Path()
    return script.resolve().parent if script.suffix == ".py" and script.is_file() else Path.cwd()


class Resources:
    """Looks names such as `"digits/digits.onnx"` up in a list of folders, in order.

    The folders are the game's own, its `assets`, and gameglue's assets; `roots` may be changed.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = Path(folder).resolve() if folder is not None else script_folder()
        self.roots: list[Path] = [self.folder, self.folder / "assets"]
        packaged = packaged_assets()
        if packaged is not None:
            self.roots.append(packaged)
        self._loaders: dict[type, Callable[[Path], object]] = {}

    def find(self, name: str | Path) -> Path:
        """The file called `name`: an absolute path, or relative to one of the roots.

        Raises `ResourceError`, which lists where it looked, and files of that name elsewhere below.
        """
        wanted = Path(name)
        places = [wanted] if wanted.is_absolute() else [root / wanted for root in self.roots]
        for place in places:
            if place.is_file():
                return place
        searched = "".join(f"\n  {place}" for place in places)
        raise ResourceError(f"no file {str(name)!r}; searched:{searched}{self._suggestion(wanted)}")

    def exists(self, name: str | Path) -> bool:
        """True if `find` would find it."""
        try:
            self.find(name)
        except ResourceError:
            return False
        return True

    def read_bytes(self, name: str | Path) -> bytes:
        """The content of a file."""
        return self.find(name).read_bytes()

    def read_text(self, name: str | Path) -> str:
        """The content of a UTF-8 text file."""
        return self.find(name).read_text(encoding="utf-8")

    def read_image(self, name: str | Path) -> np.ndarray:
        """A picture as (height, width, 4) uint8, red first, row 0 on top. Raises `ResourceError`."""
        pygame = import_pygame()
        path = self.find(name)
        try:
            surface = pygame.image.load(str(path))
        except pygame.error as error:
            raise ResourceError(f"{path} is not a picture that pygame can read: {error}") from error
        pixels = np.frombuffer(pygame.image.tobytes(surface, "RGBA"), np.uint8)
        return pixels.reshape(surface.get_height(), surface.get_width(), 4).copy()

    # -- fields given by name -------------------------------------------------------------------

    def register_loader(self, kind: type, load: Callable[[Path], object]) -> None:
        """Let component fields of type `kind` be given by file name; `load` gets the path that was found."""
        self._loaders[kind] = load

    def load_for_type(self, annotation: object, value: object) -> object:
        """`value`, or, where it is a file name for a field of a registered type, what that loader makes."""
        if not isinstance(value, str | Path):
            return value
        optional = get_origin(annotation) in (Union, UnionType)
        for kind in get_args(annotation) if optional else (annotation,):
            if kind in (str, Path):
                return value
            if kind in self._loaders:
                return self._loaders[kind](self.find(value))
        return value

    def _suggestion(self, wanted: Path) -> str:
        if not wanted.name or wanted.is_absolute():
            return ""
        roots: Sequence[Path] = [root for root in self.roots[1:] if root.is_dir()]
        near = sorted({str(p.relative_to(r)) for r in roots for p in r.rglob(wanted.name) if p.is_file()})
        return f"\nthere is: {', '.join(near[:5])}" if near else ""
