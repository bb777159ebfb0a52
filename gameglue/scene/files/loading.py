"""Scenes from files: at once, or over many frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

from engine import Loading
from engine.runtime.loading.handle import Steps
from gameglue.host.resources import Resources
from gameglue.scene.files.component_types import Problem, find_class
from gameglue.scene.files.locations import SCENE, find_file, name_of, read_text
from gameglue.scene.files.reading import ObjectReader, check_head
from gameglue.scene.files.text import Node, parse
from gameglue.scripting.fields import fields_of

if TYPE_CHECKING:
    from gameglue.host.app import App
    from gameglue.scene.scene import Scene


def read_scene(app: App, name: str | Path) -> Scene:
    """The scene in the file of that name, not loaded yet. Raises `SceneError`."""
    scene, reader, objects = _begin(app, find_file(app.resources, name, SCENE))
    for _ in reader.steps(objects):
        pass
    return scene


def load_in_background(app: App, name: str | Path, loaded: Callable[[Scene], object]) -> Loading[Scene]:
    """Read a scene in the background, then call `loaded` with it. Raises `SceneError` without such a file."""
    path = find_file(app.resources, name, SCENE)
    loading: Loading[Scene] = Loading(name=str(name))

    def steps() -> Steps[Scene]:
        loading.report("reading", 0.0)
        scene, reader, objects = _begin(app, path)
        resources = list(_resources_of(objects, app.resources))
        for done, (kind, file) in enumerate(resources):
            loading.report(f"loading {file}", 0.5 * done / len(resources))
            on_its_way: Loading[Any] = app.resources.load_async(file, kind)
            while not on_its_way.is_done():
                yield None
            reader.keep(kind, file, on_its_way.result())
        total = 2 * max(sum(_count(node) for node in objects), 1)
        for done, _ in enumerate(reader.steps(objects)):
            loading.report("making objects", min(0.5 + 0.5 * done / total, 1.0))
            yield None
        loaded(scene)
        return scene

    return loading.begin(steps())


def _begin(app: App, path: Path) -> tuple[Scene, ObjectReader, list[Node]]:
    name = name_of(app.resources, path)
    document = parse(read_text(path), name)
    scene = app.new_scene(check_head(document, "scene", "objects", name))
    reader = ObjectReader(scene, name, app._prefabs.load)
    return scene, reader, reader.list_of(document.value.get("objects"))


def _count(node: Node) -> int:
    """How many objects a node holds, itself among them."""
    children = node.value.get("children") if isinstance(node.value, dict) else None
    below = children.value if children is not None and isinstance(children.value, list) else []
    return 1 + sum(_count(child) for child in below)


def _resources_of(objects: list[Node], resources: Resources) -> Iterator[tuple[type, str]]:
    """The kinds and names of resources that the objects' fields name, each once.

    What is wrong in the file is left to the reader.
    """
    found: dict[tuple[type, str], None] = {}
    waiting = list(objects)
    while waiting:
        data = waiting.pop().value
        if isinstance(data, dict):
            for key in ("components", "children"):
                entries = data[key].value if key in data and isinstance(data[key].value, list) else []
                if key == "children":
                    waiting.extend(entries)
                else:
                    for entry in entries:
                        found.update(dict.fromkeys(_of_component(entry.value, resources)))
    return iter(found)


def _of_component(entry: Any, resources: Resources) -> Iterator[tuple[type, str]]:
    for name, fields in entry.items() if isinstance(entry, dict) else ():
        try:
            declared = fields_of(find_class(name)) if isinstance(name, str) and fields.value else {}
        except Problem:
            continue
        for field, node in fields.value.items() if isinstance(fields.value, dict) else ():
            kind = _kind_of(declared[field].annotation, resources) if field in declared else None
            if kind is not None and isinstance(node.value, str) and resources.exists(node.value):
                yield kind, node.value


def _kind_of(annotation: object, resources: Resources) -> type | None:
    """The one class that a field's type allows besides None, if it has a loader; else `None`."""
    members = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    kinds = [kind for kind in members if kind not in (None, type(None))]
    if len(kinds) != 1 or kinds[0] in (str, bytes, Path) or not resources.has_loader(kinds[0]):
        return None
    kind: type = kinds[0]
    return kind
