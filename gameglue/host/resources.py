"""Finds files by name: in the game's folder, then among gameglue's own assets.

What kinds of resources there are, and which file is of which kind, is registered: a loader for textures,
another for models, and so on. A game adds its own with `register_loader`.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, overload

import numpy as np

from engine import Loading
from engine.base.sliced_thread import SlicedThread
from engine.base.spelling import answers_spelling
from engine.runtime.loading.handle import Steps
from gameglue.errors import ResourceError
from gameglue.host.pygame_ce import import_pygame

T = TypeVar("T")


@dataclass(frozen=True)
class ResourceLoader:
    """How resources of one kind are made from a file.

    load: all at once. read: the part that may run on another thread. finish: what is
    left for the game's thread, such as an upload; it yields `None` where a slice may end, and returns the
    resource. by_name: makes those that have a name but no file, and returns `None` for other names.
    """

    load: Callable[[Path], object]
    suffixes: tuple[str, ...] = ()
    read: Callable[[Path], Any] | None = None
    finish: Callable[[Any], Steps[Any]] | None = None
    by_name: Callable[[str], object | None] | None = None


def _read_text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


_TEXT = (".txt", ".md", ".json", ".jsonl", ".toml", ".csv", ".frag", ".vert", ".glsl")

# Not registered: a field that is a text is never meant to be the name of a file.
_PLAIN: dict[type, ResourceLoader] = {
    bytes: ResourceLoader(Path.read_bytes, (), Path.read_bytes),
    str: ResourceLoader(_read_text, _TEXT, _read_text),
}


def packaged_assets() -> Path | None:
    """The folder of gameglue's own assets: inside the installed package, or next to it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "_assets", package.parent / "assets"):
        if folder.is_dir():
            return folder
    return None


def script_folder() -> Path:
    """The folder of the running script, or the working folder where there is none."""
    script = Path(sys.argv[0]) if sys.argv and sys.argv[0] else Path()
    return script.resolve().parent if script.suffix == ".py" and script.is_file() else Path.cwd()


@answers_spelling
class Resources:
    """Finds files by names such as `"digits/digits.onnx"` in a list of folders, in order.

    The folders are the game's own, its `assets`, and gameglue's assets; `roots` may be changed.

    Attributes:
        folder: The game's own folder.
        roots: Folders that are searched, in order; may be changed.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = Path(folder).resolve() if folder is not None else script_folder()
        self.roots: list[Path] = [self.folder, self.folder / "assets"]
        packaged = packaged_assets()
        if packaged is not None:
            self.roots.append(packaged)
        self._loads: list[Loading[Any]] = []
        self._loaders: dict[type, ResourceLoader] = {}

    def find(self, name: str | Path) -> Path:
        """The file called `name`: an absolute path, or relative to one of the roots.

        Raises:
            ResourceError: There is none; the message lists where it looked, and files of that name elsewhere
                below.
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
        """An image as (height, width, 4) uint8, red first, row 0 on top.

        Raises:
            ResourceError: There is no such file, or it is no image.
        """
        pygame = import_pygame()
        path = self.find(name)
        try:
            surface = pygame.image.load(str(path))
        except pygame.error as error:
            raise ResourceError(f"{path} is not a picture that pygame can read: {error}") from error
        pixels = np.frombuffer(pygame.image.tobytes(surface, "RGBA"), np.uint8)
        return pixels.reshape(surface.get_height(), surface.get_width(), 4).copy()

    # -- loading --------------------------------------------------------------------------------

    def register_loader(
        self,
        kind: type,
        load: Callable[[Path], object],
        *,
        suffixes: Sequence[str] = (),
        read: Callable[[Path], Any] | None = None,
        finish: Callable[[Any], Steps[Any]] | None = None,
        by_name: Callable[[str], object | None] | None = None,
    ) -> None:
        """Register a loader for type `kind`, so that resources and component fields can be file names.

        load: gets the path that was found. suffixes: of files that are of this kind where nothing else is
        said, such as `(".png",)`. read, finish, by_name: see `ResourceLoader`; without `read`, `load_async`
        calls `load` on the game's thread, all at once.
        """
        self._loaders[kind] = ResourceLoader(load, tuple(s.lower() for s in suffixes), read, finish, by_name)

    @overload
    def load(self, name: str | Path) -> Any: ...

    @overload
    def load(self, name: str | Path, kind: type[T]) -> T: ...

    def load(self, name: str | Path, kind: type | None = None) -> Any:
        """What is in a file: a `Texture`, `Model`, `Mesh`, `AudioClip`, `str`, `bytes` ...

        The file's suffix says the type unless it is given. Every call makes another one. Raises
        `ResourceError` where there is no such file, and what the kind's own loader raises.
        """
        path = self.find(name)
        return self._loader_of(path, kind).load(path)

    @overload
    def load_async(self, name: str | Path) -> Loading[Any]: ...

    @overload
    def load_async(self, name: str | Path, kind: type[T]) -> Loading[T]: ...

    def load_async(self, name: str | Path, kind: type | None = None) -> Loading[Any]:
        """Load in the background: `texture = await self.resources.load_async("hero.png")`.

        The handle is awaited, yielded in a coroutine, or polled: `is_done()`, `result()`. Files are read and
        decoded on another thread, uploads to the GPU done here, a slice at a time, within the app's
        `loading_budget_ms`. What goes wrong later is raised by the handle; an unknown file or kind, here.
        """
        path = self.find(name)
        loader = self._loader_of(path, kind)
        loading: Loading[Any] = Loading(name=str(name))

        def steps() -> Steps[Any]:
            if loader.read is None:
                return loader.load(path)
            loading.report(f"reading {path.name}", 0.0)
            value = yield SlicedThread(lambda: cast("Callable[[Path], Any]", loader.read)(path))
            if loader.finish is None:
                return value
            loading.report(f"uploading {path.name}", 0.5)
            return (yield from loader.finish(value))

        self._loads = [load for load in self._loads if not load.is_over]
        self._loads.append(loading.begin(steps()))
        return loading

    def stop_loading(self) -> None:
        """Cancel all loading; called by the host at the end."""
        for loading in self._loads:
            loading.stop()
        self._loads.clear()

    def _loader_of(self, path: Path, kind: type | None) -> ResourceLoader:
        loaders = {**_PLAIN, **self._loaders}
        if kind is not None:
            if kind not in loaders:
                known = ", ".join(k.__name__ for k in loaders)
                raise ResourceError(f"nothing loads {kind.__name__}; register_loader adds it. Known: {known}")
            return loaders[kind]
        suffix = path.suffix.lower()
        found = next((loader for loader in loaders.values() if suffix in loader.suffixes), None)
        if found is None:
            known = ", ".join(s for loader in loaders.values() for s in loader.suffixes)
            raise ResourceError(
                f"{path.name}: nothing says what {suffix or 'no suffix'!r} is; give the kind, as in "
                f"load({path.name!r}, str). Known: {known}"
            )
        return found

    def has_loader(self, kind: object) -> bool:
        """True if there is a loader for resources of type `kind`."""
        return kind in self._loaders

    def load_for_type(self, annotation: object, value: object) -> object:
        """Load `value` if it is a file name for a field of a registered type; else return it."""
        if not isinstance(value, str | Path):
            return value
        optional = get_origin(annotation) in (Union, UnionType)
        for kind in get_args(annotation) if optional else (annotation,):
            if kind in (str, Path):
                return value
            if kind in self._loaders:
                loader = self._loaders[kind]
                made = (
                    loader.by_name(value) if loader.by_name is not None and isinstance(value, str) else None
                )
                return loader.load(self.find(value)) if made is None else made
        return value

    def _suggestion(self, wanted: Path) -> str:
        if not wanted.name or wanted.is_absolute():
            return ""
        roots: Sequence[Path] = [root for root in self.roots[1:] if root.is_dir()]
        near = sorted({str(p.relative_to(r)) for r in roots for p in r.rglob(wanted.name) if p.is_file()})
        if not near:
            # Not below the game's own folder, which may be a home folder.
            known = [p.name for p in self.folder.glob("*") if p.is_file()]
            known += [p.relative_to(r).as_posix() for r in roots for p in r.rglob("*") if p.is_file()]
            near = difflib.get_close_matches(wanted.as_posix(), dict.fromkeys(known), n=3, cutoff=0.75)
        return f"\nthere is: {', '.join(near[:5])}" if near else ""
