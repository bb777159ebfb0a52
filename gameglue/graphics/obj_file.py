"""Reads Wavefront .obj files: vertices, normals, texture coordinates and faces."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np

from gameglue.errors import MeshError
from gameglue.graphics.surface_normals import smooth_normals

# Fields of a face's corner in the file: position, texture coordinate, normal; 0 stands for none.
_Corner = tuple[int, int, int]


def read_obj(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Positions (n, 3), triangles (m, 3), normals (n, 3) or `None`, texture coordinates (n, 2) or `None`.

    Polygons are cut into triangles around their first corner. Groups, materials and curves are skipped.
    Raises `MeshError`.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise MeshError(f"cannot read {path}: {error}") from error
    lists: dict[str, list[list[float]]] = {"v": [], "vt": [], "vn": []}
    vertices: dict[_Corner, int] = {}
    triangles: list[tuple[int, int, int]] = []
    for number, line in enumerate(text.replace("\\\n", " ").splitlines(), start=1):
        word, *rest = line.partition("#")[0].split() or [""]
        try:
            if word in lists:
                lists[word].append([float(value) for value in rest[: 2 if word == "vt" else 3]])
            elif word == "f":
                corners = [_corner(corner, lists) for corner in rest]
                numbers = [vertices.setdefault(corner, len(vertices)) for corner in corners]
                triangles += [(numbers[0], a, b) for a, b in pairwise(numbers[1:])]
        except (ValueError, IndexError) as error:
            raise MeshError(f"{path}, line {number}: {line.strip()!r} cannot be read: {error}") from error
    if not triangles:
        raise MeshError(f"{path} holds no faces (lines that begin with f)")
    return _gather(path, lists, list(vertices), triangles)


def _corner(text: str, lists: dict[str, list[list[float]]]) -> _Corner:
    """The numbers of a corner such as "3/1/2" or "-1//-1", all counted from 1; 0 where there is none."""
    found = [0, 0, 0]
    for place, (part, name) in enumerate(zip(text.split("/"), ("v", "vt", "vn"), strict=False)):
        if part:
            number, known = int(part), len(lists[name])
            number = known + 1 + number if number < 0 else number
            if not 1 <= number <= known:
                raise IndexError(f"there are {known} lines of {name} before it, not {part}")
            found[place] = number
    if not found[0]:
        raise ValueError("a corner needs a position")
    return found[0], found[1], found[2]


def _gather(
    path: Path,
    lists: dict[str, list[list[float]]],
    corners: list[_Corner],
    triangles: list[tuple[int, int, int]],
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None]:
    try:
        places, spots, normals = (
            np.array(lists[name], np.float64).reshape(-1, width)
            for name, width in (("v", 3), ("vt", 2), ("vn", 3))
        )
    except ValueError as error:
        raise MeshError(f"{path}: a vertex has too few numbers: {error}") from error
    index, faces = np.array(corners), np.array(triangles)
    chosen = places[index[:, 0] - 1]
    uvs = _taken(spots, index[:, 1])
    given = normals[index[:, 2] - 1] if (index[:, 2] > 0).all() else None
    if given is None:
        # Of the positions, so that corners which differ only in their texture coordinate share one.
        given = smooth_normals(places, index[:, 0][faces] - 1)[index[:, 0] - 1]
    return chosen, faces, given, uvs


def _taken(table: np.ndarray, numbers: np.ndarray) -> np.ndarray | None:
    """Rows by numbers counted from 1, zeros for 0; `None` if all are 0."""
    if not numbers.any():
        return None
    return np.where(numbers[:, None] > 0, table[np.maximum(numbers - 1, 0)], 0.0)
