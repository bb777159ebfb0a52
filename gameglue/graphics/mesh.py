"""`Mesh`: triangles with normals and texture coordinates, as plain arrays that know no GPU."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Self

import numpy as np

from gameglue.errors import MeshError
from gameglue.graphics.obj_file import read_obj
from gameglue.graphics.primitives import call_of, records_source
from gameglue.graphics.surface_normals import smooth_normals
from gameglue.scene.vector import Vec3

_FORMS = ("box", "plane", "quad", "sphere", "torus", "cylinder")


class Mesh:
    """A surface made of triangles, counter-clockwise when seen from outside.

    Made by `Mesh.box()`, `sphere()`, `plane()`, `quad()`, `cylinder()`, `torus()`, from an .obj file by
    `Mesh.load(path)`, or from arrays. A component's field also takes a file name or a form, such as
    `mesh="torus(1.0, tube=0.3)"`. Objects with the same mesh are drawn together.

    Args:
        positions: Vertices, (n, 3).
        triangles: Vertex numbers, (m, 3); by default every three vertices make a triangle.
        normals: Vectors of any length, (n, 3); by default computed from the triangles that share a vertex.
        uvs: Texture coordinates, (n, 2), (0, 0) at the bottom left and (1, 1) at the top right.
        name: Name for messages.

    Raises:
        MeshError: The arrays do not fit each other.

    Attributes:
        name: Name for messages.
        triangles: Vertex numbers, (m, 3) uint32.
    """

    def __init__(
        self,
        positions: np.ndarray,
        triangles: np.ndarray | None = None,
        *,
        normals: np.ndarray | None = None,
        uvs: np.ndarray | None = None,
        name: str = "mesh",
    ) -> None:
        self.name = name
        self.source: str | None = None
        """What a field makes it from again: a form's name, or `None` if it is none."""
        self.version = 0
        """Grows with every `write`, so that a copy can be compared."""
        places = _rows(name, "positions", positions, 3)
        count = len(places)
        if triangles is None:
            if count % 3:
                raise MeshError(f"{name}: {count} positions make no whole triangles; give triangles=(m, 3)")
            triangles = np.arange(count).reshape(-1, 3)
        corners = np.asarray(triangles)
        if corners.ndim != 2 or corners.shape[1] != 3 or not np.issubdtype(corners.dtype, np.integer):
            raise MeshError(f"{name}: triangles must be (m, 3) integers, got {corners.dtype} {corners.shape}")
        if corners.size and not 0 <= corners.min() <= corners.max() < count:
            found = f"{corners.min()} to {corners.max()}"
            raise MeshError(f"{name}: triangle indices are {found}, but there are {count} vertices")
        self.triangles = corners.astype(np.uint32)
        self.vertices = np.zeros((count, 8), np.float32)
        """(n, 8) float32: position, normal of length 1, texture coordinates."""
        if uvs is not None:
            self.vertices[:, 6:8] = _rows(name, "uvs", uvs, 2, count)
        self.write(places, normals)

    def write(self, positions: np.ndarray, normals: np.ndarray | None = None) -> None:
        """Replace the vertex positions, (n, 3) with unchanged n; normals are recomputed unless given."""
        count = len(self.vertices)
        places = _rows(self.name, "positions", positions, 3, count)
        given = smooth_normals(places, self.triangles) if normals is None else normals
        directions = _rows(self.name, "normals", given, 3, count)
        length = np.linalg.norm(directions, axis=1, keepdims=True)
        self.vertices[:, 0:3] = places
        self.source = None
        self.vertices[:, 3:6] = directions / np.where(length > 0.0, length, 1.0)
        self.version += 1

    @property
    def positions(self) -> np.ndarray:
        """(n, 3) float32; change them with `write`."""
        return self.vertices[:, 0:3]

    @property
    def normals(self) -> np.ndarray:
        """(n, 3) float32, of length 1."""
        return self.vertices[:, 3:6]

    @property
    def uvs(self) -> np.ndarray:
        """(n, 2) float32."""
        return self.vertices[:, 6:8]

    @classmethod
    def named(cls, text: str) -> Self | None:
        """A built-in mesh by name, with arguments as in Python: "box", "plane(8, 8)"; `None` if unknown.

        Raises:
            MeshError: The form does not take these arguments.
        """
        call = call_of(text)
        if call is None or call[0] not in _FORMS:
            return None
        name, arguments, keywords = call
        try:
            made: Self = getattr(cls, name)(*arguments, **keywords)
        except (TypeError, ValueError) as error:
            raise MeshError(f"no mesh {text!r}: {error}") from error
        return made

    # -- forms ----------------------------------------------------------------------------------

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a Wavefront .obj file: its triangles and polygons; materials are left out.

        Raises:
            MeshError: A line cannot be read; the message names it.
        """
        places, corners, normals, uvs = read_obj(Path(path))
        return cls(places, corners, normals=normals, uvs=uvs, name=Path(path).stem)

    @classmethod
    @records_source
    def box(cls, size: Iterable[float] | float = 1.0) -> Self:
        """A box around the origin, `size` long along x, y and z; each face shows the whole texture."""
        # A face's normal, and which way is up on it; its right is their cross product.
        faces = (("+x", "+y"), ("-x", "+y"), ("+y", "-z"), ("-y", "+z"), ("+z", "+y"), ("-z", "+y"))
        corners = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]], np.float64)
        places, normals = [], []
        for normal, up in ((_axis(face), _axis(above)) for face, above in faces):
            right = np.cross(up, normal)
            places.append((normal + corners[:, :1] * right + corners[:, 1:] * up) / 2)
            normals.append(np.tile(normal, (4, 1)))
        quads = np.arange(24).reshape(6, 4)
        scaled = np.concatenate(places) * np.asarray(Vec3.of(size))
        triangles = quads[:, [0, 1, 2, 0, 2, 3]].reshape(-1, 3)
        return cls(
            scaled,
            triangles,
            normals=np.concatenate(normals),
            uvs=np.tile(corners / 2 + 0.5, (6, 1)),
            name="box",
        )

    @classmethod
    @records_source
    def plane(cls, width: float = 1.0, depth: float = 1.0, *, cells: int = 1) -> Self:
        """Flat ground that faces up.

        Args:
            width: Size along x.
            depth: Size along z.
            cells: Squares per side.
        """
        uv = _lattice("plane", cells, cells, least=1)
        places = np.stack(((uv[:, 0] - 0.5) * width, np.zeros(len(uv)), (0.5 - uv[:, 1]) * depth), axis=1)
        up = np.tile((0.0, 1.0, 0.0), (len(uv), 1))
        return cls(places, _cells(cells, cells), normals=up, uvs=uv, name="plane")

    @classmethod
    @records_source
    def quad(cls, width: float = 1.0, height: float = 1.0) -> Self:
        """An upright rectangle that faces the z axis, such as an image on a wall."""
        uv = _lattice("quad", 1, 1, least=1)
        places = np.stack(((uv[:, 0] - 0.5) * width, (uv[:, 1] - 0.5) * height, np.zeros(4)), axis=1)
        towards = np.tile((0.0, 0.0, 1.0), (4, 1))
        return cls(places, _cells(1, 1), normals=towards, uvs=uv, name="quad")

    @classmethod
    @records_source
    def sphere(cls, radius: float = 0.5, *, segments: int = 32, rings: int = 16) -> Self:
        """A sphere.

        Args:
            radius: Radius.
            segments: Divisions around the y axis.
            rings: Divisions from pole to pole.
        """
        uv = _lattice("sphere", segments, rings, least=2)
        around, down = 2 * np.pi * uv[:, 0], np.pi * (uv[:, 1] - 0.5)
        normals = np.stack(
            (np.cos(down) * np.sin(around), np.sin(down), np.cos(down) * np.cos(around)), axis=1
        )
        return cls(normals * radius, _cells(segments, rings), normals=normals, uvs=uv, name="sphere")

    @classmethod
    @records_source
    def torus(cls, radius: float = 0.5, tube: float = 0.2, *, segments: int = 48, sides: int = 24) -> Self:
        """A ring around the y axis.

        Args:
            radius: Radius to the middle of the tube.
            tube: Radius of the tube.
            segments: Divisions around the y axis.
            sides: Divisions around the tube.
        """
        uv = _lattice("torus", segments, sides, least=3)
        around, about = 2 * np.pi * uv[:, 0], 2 * np.pi * uv[:, 1]
        outward = np.stack((np.sin(around), np.zeros(len(uv)), np.cos(around)), axis=1)
        normals = outward * np.cos(about)[:, None]
        normals[:, 1] = np.sin(about)
        return cls(
            outward * radius + normals * tube, _cells(segments, sides), normals=normals, uvs=uv, name="torus"
        )

    @classmethod
    @records_source
    def cylinder(
        cls, radius: float = 0.5, height: float = 1.0, *, top: float | None = None, segments: int = 32
    ) -> Self:
        """An upright cylinder with lids, or a cone.

        Args:
            radius: Lower radius.
            height: Height.
            top: Upper radius, by default `radius`; 0 makes a cone.
            segments: Divisions around the y axis.
        """
        upper = radius if top is None else top
        uv = _lattice("cylinder", segments, 1, least=3)
        around = 2 * np.pi * uv[:, 0]
        outward = np.stack((np.sin(around), np.zeros(len(uv)), np.cos(around)), axis=1)
        places = outward * np.where(uv[:, 1] > 0.5, upper, radius)[:, None]
        places[:, 1] = (uv[:, 1] - 0.5) * height
        slope = outward * height
        slope[:, 1] = radius - upper
        parts = [(places, slope, uv)]
        triangles = [_cells(segments, 1)]
        rim = outward[: segments + 1]
        for sign, edge in ((1.0, upper), (-1.0, radius)):
            lid = np.concatenate((rim * edge, np.zeros((1, 3))))
            lid[:, 1] = sign * height / 2
            flat = np.tile((0.0, sign, 0.0), (len(lid), 1))
            spread = np.concatenate((rim[:, [0, 2]] * (1.0, -sign) / 2 + 0.5, [[0.5, 0.5]]))
            first = sum(len(part[0]) for part in parts)
            edges = np.arange(segments)
            fan = np.stack((edges, edges + 1, np.full(segments, segments + 1)), axis=1)
            triangles.append((fan if sign > 0 else fan[:, ::-1]) + first)
            parts.append((lid, flat, spread))
        places, slope, uv = (np.concatenate(column) for column in zip(*parts, strict=True))
        return cls(places, np.concatenate(triangles), normals=slope, uvs=uv, name="cylinder")

    def __repr__(self) -> str:
        return f"<Mesh {self.name!r}, {len(self.vertices)} vertices, {len(self.triangles)} triangles>"


def _axis(text: str) -> np.ndarray:
    """A direction written as "+x", as (3,)."""
    return np.eye(3)["xyz".index(text[1])] * (1.0 if text[0] == "+" else -1.0)


def _rows(name: str, what: str, array: np.ndarray, width: int, count: int | None = None) -> np.ndarray:
    rows = np.asarray(array, np.float64)
    if rows.ndim != 2 or rows.shape[1] != width or count not in (None, len(rows)):
        raise MeshError(
            f"{name}: {what} must be ({'n' if count is None else count}, {width}), got {rows.shape}"
        )
    if not np.isfinite(rows).all():
        raise MeshError(f"{name}: {what} hold numbers that are not finite")
    return rows


def _lattice(name: str, across: int, up: int, *, least: int) -> np.ndarray:
    """((up + 1) * (across + 1), 2) points from (0, 0) to (1, 1), rows from the bottom."""
    if min(across, up) < least and not (up == 1 and across >= least):
        raise MeshError(f"a {name} needs at least {least} parts a side, got {across} and {up}")
    u, v = np.meshgrid(np.linspace(0.0, 1.0, across + 1), np.linspace(0.0, 1.0, up + 1))
    return np.stack((u.ravel(), v.ravel()), axis=1)


def _cells(across: int, up: int) -> np.ndarray:
    """Two triangles for each cell of a lattice, counter-clockwise where u is right and v is up."""
    row, column = np.mgrid[:up, :across].reshape(2, -1)
    corner = row * (across + 1) + column
    right, above = corner + 1, corner + across + 1
    first = np.stack((corner, right, above + 1), axis=1)
    second = np.stack((corner, above + 1, above), axis=1)
    return np.concatenate((first, second))
