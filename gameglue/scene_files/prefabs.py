"""The prefabs of one app: each file read once, and again when it has changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gameglue.errors import SceneError
from gameglue.resources import Resources
from gameglue.scene_files.files import PREFAB, find_file, name_of, read_text
from gameglue.scene_files.prefab import Prefab
from gameglue.scene_files.reading import ObjectReader, check_head
from gameglue.scene_files.text import parse


class Prefabs:
    """Reads prefab files; `new_scene` makes the scene that each template lies in."""

    def __init__(self, resources: Resources, new_scene: Callable[[str], Any]) -> None:
        self._resources = resources
        self._new_scene = new_scene
        self._known: dict[Path, tuple[tuple[int, int], Prefab]] = {}
        self._open: list[Path] = []

    def load(self, name: str | Path) -> Prefab:
        """The prefab in the file of that name. Raises `SceneError`."""
        return self.load_path(find_file(self._resources, name, PREFAB))

    def load_path(self, path: Path) -> Prefab:
        """The prefab in that file. Raises `SceneError`."""
        facts = path.stat()
        stamp = (facts.st_mtime_ns, facts.st_size)
        known = self._known.get(path)
        if known is None or known[0] != stamp:
            if path in self._open:
                way = " in ".join(p.name for p in reversed([*self._open[self._open.index(path) :], path]))
                raise SceneError(f"a prefab cannot hold itself: {way}")
            self._open.append(path)
            try:
                known = self._known[path] = stamp, self._read(path)
            finally:
                self._open.pop()
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
