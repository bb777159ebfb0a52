"""`Prefab`: a template for objects, read from a file once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gameglue.scene.game_object import GameObject
from gameglue.scene.transform import Transform


class Prefab:
    """A template of an object and its children, which a scene can instantiate many times.

    Made by naming a file: in `scene.instantiate("enemy.prefab")`, or as the value of a field of this type.

    Attributes:
        path: Path of the file.
    """

    def __init__(self, name: str, path: Path, template: GameObject) -> None:
        self.name = name
        """The file's name, as `resources` finds it."""
        self.path = path
        self.template = template
        """What instances are copied from. It never wakes; what is changed in it, later instances have."""

    def place(self, scene: Any, parent: Transform | None) -> GameObject:
        """A new instance in `scene`, under `parent`."""
        made = self.template._clone(scene, parent, from_template=True)
        made.prefab = self
        return made

    def __repr__(self) -> str:
        return f"<Prefab {self.name!r}>"
