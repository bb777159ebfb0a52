"""Components that the tests' files name."""

from __future__ import annotations

import dataclasses
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from gameglue import FieldError, GameObject, MonoBehaviour, Prefab, Quaternion, Range, Transform, Vec3


class Asset:
    """Stands for a resource type such as a texture."""

    made = 0

    def __init__(self, path: Path) -> None:
        Asset.made += 1
        self.content = path.read_text(encoding="utf-8")


class Mood(Enum):
    """Written by name."""

    CALM = 1
    ANGRY = 2


@dataclasses.dataclass
class Stats:
    """Written field by field."""

    strength: int = 1
    home: GameObject | None = None


class Musket(MonoBehaviour):
    """Hangs below an enemy."""

    damage: int = 1
    owner: Raider | None = None


class Raider(MonoBehaviour):
    """Has a field of most kinds."""

    speed: Annotated[float, Range(0.0, 10.0, "m/s")] = 1.0
    name_shown: str = "grunt"
    target: GameObject | None = None
    gun: Musket | None = None
    way: list[Transform] = []
    picture: Asset | None = None
    pictures: list[Asset] = []
    mood: Mood = Mood.CALM
    stats: Stats = Stats()
    spot: Vec3 = Vec3()
    turn: Quaternion = Quaternion()
    pair: tuple[int, str] = (1, "a")
    either: Literal["left", "right"] = "left"
    note: str | None = "note"
    spawns: Prefab | None = None
    numbers: np.ndarray | None = None
    names: set[str] = set()
    table: dict[str, Musket | None] = {}
    file: Path | None = None
    anything: Any = None

    def on_validate(self) -> None:
        if self.name_shown == "nobody":
            raise FieldError("an enemy is somebody")


class Logbook(MonoBehaviour):
    """Has state that is no field."""

    _pages: tuple[str, ...] = ()

    def on_save(self) -> object:
        return {"pages": self._pages}

    def on_load(self, state: Any) -> None:
        self._pages = state["pages"]


class Bearer(MonoBehaviour):
    """Needs a gun beside it, and has a field without default."""

    required_components = (Musket,)
    thing: Asset
