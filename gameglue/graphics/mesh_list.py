"""The meshes that one camera draws, grouped by draw call."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from pyglm import glm

from gameglue.graphics.batch import Picture
from gameglue.graphics.camera3d import MeshRenderer
from gameglue.graphics.colors import parse_color
from gameglue.graphics.mesh import Mesh

INSTANCE: Final = np.dtype(
    [
        ("rows", "<f4", (3, 4)),  # of the matrix from the mesh to the world
        ("color", "u1", 4),
        ("glow", "u1", 4),  # emission, and the strength of highlights
    ]
)


@dataclass(frozen=True)
class BatchKey:
    """The state that objects of one draw call share."""

    mesh: Mesh
    picture: Picture | None
    double_sided: bool


@dataclass
class Batch:
    """Objects of one kind: their matrices (PyGLM's), and colour and glow as eight bytes."""

    kind: BatchKey
    matrices: list[Any] = field(default_factory=list)
    colors: list[tuple[int, ...]] = field(default_factory=list)

    @functools.cached_property
    def instances(self) -> np.ndarray:
        """(n,) of dtype `INSTANCE`; called when the batch is complete."""
        made = np.zeros(len(self.matrices), INSTANCE)
        made["rows"] = np.array(glm.array(self.matrices))[:, :3]
        colors = np.array(self.colors, np.uint8)
        made["color"], made["glow"] = colors[:, :4], colors[:, 4:]
        return made


class MeshList:
    """The meshes that one camera is to draw."""

    def __init__(self) -> None:
        self._opaque: dict[tuple[int, int, bool], Batch] = {}
        self._clear: list[tuple[BatchKey, Any, tuple[int, ...]]] = []

    def __len__(self) -> int:
        return len(self._opaque) + len(self._clear)

    def add(self, renderer: MeshRenderer) -> None:
        """Append what `renderer` shows."""
        mesh, picture, double_sided = renderer.mesh, renderer.texture, renderer.double_sided
        color, glow = parse_color(renderer.color), parse_color(renderer.emission)
        shine = min(round(renderer.specular * 255), 255) if renderer.specular > 0.0 else 0
        matrix, values = renderer.transform.world_matrix(), (*color, *glow[:3], shine)
        if color[3] < 255:
            self._clear.append((BatchKey(mesh, picture, double_sided), matrix, values))
            return
        key = (id(mesh), id(picture), double_sided)
        batch = self._opaque.get(key)
        if batch is None:
            batch = self._opaque[key] = Batch(BatchKey(mesh, picture, double_sided))
        batch.matrices.append(matrix)
        batch.colors.append(values)

    def opaque(self) -> list[Batch]:
        """Opaque meshes, in any order."""
        return list(self._opaque.values())

    def translucent(self, clip: np.ndarray) -> list[Batch]:
        """Translucent objects, the farthest first; `clip` is the world to clip space matrix."""
        batches: list[Batch] = []
        # In perspective w grows with the distance, without it z does; behind each other both do.
        away = clip[3] if np.abs(clip[3, :3]).any() else clip[2]
        for kind, matrix, values in sorted(self._clear, key=lambda item: -float(away @ item[1][3])):
            if not batches or batches[-1].kind != kind:
                batches.append(Batch(kind))
            batches[-1].matrices.append(matrix)
            batches[-1].colors.append(values)
        return batches
