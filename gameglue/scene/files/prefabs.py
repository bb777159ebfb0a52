"""The prefabs of one app, cached until their files change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gameglue.errors import SceneError
from gameglue.host.resources import Resources
from gameglue.scene.files.locations import PREFAB, find_file, name_of, read_text
from gameglue.scene.files.prefab import Prefab
from gameglue.scene.files.reading import ObjectReader, check_head
from gameglue.scene.files.text import parse

_Stamps = dict[Path, tuple[int, int]]


def _stamp(path: Path) -> tuple[int, int]:
    """Modification time and size of a file; (0, 0) if it does not exist."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


class Prefabs:
    """Reads prefab files; `new_scene` makes the scene that holds each template."""

    def __init__(self, resources: Resources, new_scene: Callable[[str], Any]) -> None:
        self._resources = resources
        self._new_scene = new_scene
        self._known: dict[Path, tuple[_Stamps, Prefab]] = {}
        # The files that are being read, the outermost first, each with the stamps of those it was made from.
        self._open: dict[Path, _Stamps] = {}

    def load(self, name: str | Path) -> Prefab:
        """The prefab in the file of that name. Raises `SceneError`."""
        return self.load_path(find_file(self._resources, name, PREFAB))

    def load_path(self, path: Path) -> Prefab:
        """The prefab in that file. Raises `SceneError`."""
        known = self._known.get(path)
        if known is None or any(_stamp(file) != stamp for file, stamp in known[0].items()):
            if path in self._open:
                opened = list(self._open)
                way = " in ".join(p.name for p in reversed([*opened[opened.index(path) :], path]))
                raise SceneError(f"a prefab cannot hold itself: {way}")
            self._open[path] = {path: _stamp(path)}
            try:
                made = self._read(path)
            finally:
                stamps = self._open.pop(path)
            known = self._known[path] = stamps, made
        for around in self._open.values():
            around.update(known[0])
        return known[1]

    def _read(self, path: Path) -> Prefab:
        name = name_of(self._resources, path)
        document = parse(read_text(path), name)
        reader = ObjectReader(
            self._new_scene(check_head(document, "prefab", "object", name)), name, self.load
        )
        if "object" not in document.value:
            raise SceneError(f"{name}: a prefab has one 'object:'")
        for _ in reader.steps([document.value["object"]]):
            pass
        return Prefab(name, path, reader.roots[0])
