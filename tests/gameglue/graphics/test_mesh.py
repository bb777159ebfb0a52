"""Meshes against geometry: areas, volumes and outward faces known from formulas."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from gameglue import App, Mesh, MeshError, MeshRenderer, ResourceError

MESHES = {
    "box": (Mesh.box((1, 2, 3)), 22.0, 6.0),
    "sphere": (Mesh.sphere(0.5, segments=64, rings=32), math.pi, math.pi / 6),
    "torus": (Mesh.torus(0.5, 0.2, segments=64, sides=32), 4 * math.pi**2 * 0.1, 2 * math.pi**2 * 0.5 * 0.04),
    "cylinder": (Mesh.cylinder(0.5, 2.0, segments=64), 2.5 * math.pi, 0.5 * math.pi),
    "cone": (
        Mesh.cylinder(0.5, 1.0, top=0.0, segments=64),
        math.pi * (0.25 + 0.5 * math.hypot(0.5, 1.0)),
        math.pi / 12,
    ),
}


def faces(mesh: Mesh) -> np.ndarray:
    """(m, 3) vectors along the triangles' outward normals, twice as long as their areas."""
    a, b, c = (mesh.positions[mesh.triangles[:, k]].astype(np.float64) for k in range(3))
    return np.cross(b - a, c - a)


@pytest.mark.parametrize("name", MESHES)
def test_forms_have_the_area_and_volume_of_their_formulas(name: str) -> None:
    mesh, area, volume = MESHES[name]
    across = faces(mesh)
    assert np.linalg.norm(across, axis=1).sum() / 2 == pytest.approx(area, rel=0.01)
    # By the divergence theorem, which is right (and positive) only if every triangle faces outward.
    assert (mesh.positions[mesh.triangles[:, 0]] * across).sum() / 6 == pytest.approx(volume, rel=0.01)


@pytest.mark.parametrize(
    "mesh", [m for m, _, _ in MESHES.values()] + [Mesh.plane(2, 3, cells=3), Mesh.quad()]
)
def test_normals_have_length_one_and_agree_with_the_triangles(mesh: Mesh) -> None:
    assert np.linalg.norm(mesh.normals, axis=1) == pytest.approx(1.0, abs=1e-6)
    along = (faces(mesh)[:, None] * mesh.normals[mesh.triangles]).sum(axis=2)
    assert along.min() > -1e-6
    assert 0.0 <= mesh.uvs.min() <= mesh.uvs.max() <= 1.0


def test_plane_and_quad_face_up_and_towards_the_viewer() -> None:
    assert np.allclose(Mesh.plane().normals, (0, 1, 0))
    assert np.allclose(Mesh.quad().normals, (0, 0, 1))
    top_left = Mesh.quad(2, 4).positions[(Mesh.quad().uvs == (0, 1)).all(axis=1)]
    assert top_left.tolist() == [[-1, 2, 0]]


def test_arrays_without_triangles_and_normals() -> None:
    mesh = Mesh(np.array([[0, 0, 0], [2, 0, 0], [0, 3, 0]]))
    assert mesh.triangles.tolist() == [[0, 1, 2]]
    assert np.allclose(mesh.normals, (0, 0, 1))
    version = mesh.version
    mesh.write(np.array([[0, 0, 0], [0, 2, 0], [0, 0, 3]]))
    assert np.allclose(mesh.normals, (1, 0, 0))
    assert mesh.version > version


def test_computed_normals_of_a_ball_point_outward() -> None:
    ball = Mesh.sphere(segments=48, rings=24)
    again = Mesh(ball.positions, ball.triangles)
    inner = np.abs(ball.uvs[:, 0] - 0.5) < 0.49  # Where the texture's ends meet, vertices are double.
    assert (again.normals * ball.normals).sum(axis=1)[inner].min() > 0.99


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ((np.zeros((4, 3)),), "4 positions make no whole triangles"),
        ((np.zeros((3, 2)),), r"positions must be \(n, 3\), got \(3, 2\)"),
        ((np.zeros((3, 3)), np.array([[0, 1, 3]])), "triangle indices are 0 to 3, but there are 3 vertices"),
        ((np.zeros((3, 3)), np.array([[0.0, 1, 2]])), r"triangles must be \(m, 3\) integers"),
        ((np.full((3, 3), np.nan),), "not finite"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(arguments: tuple[np.ndarray, ...], fault: str) -> None:
    with pytest.raises(MeshError, match=fault):
        Mesh(*arguments)
    with pytest.raises(MeshError, match="at least"):
        Mesh.torus(segments=2)


CUBE = """# a cube of quads, one corner counted from the end
v -1 -1 -1\nv 1 -1 -1\nv 1 1 -1\nv -1 1 -1\nv -1 -1 1\nv 1 -1 1\nv 1 1 1\nv -1 1 1
vt 0 0\nvt 1 0\nvt 1 1\nvt 0 1
g sides\nusemtl red
f 5/1 6/2 7/3 -1/4
f 2/1 1/2 4/3 3/4
f 6/1 2/2 3/3 7/4
f 1/1 5/2 8/3 4/4
f 8/1 7/2 3/3 4/4
f 1/1 2/2 6/3 5/4
"""


def test_an_obj_file_becomes_a_mesh(tmp_path: Path, app: App) -> None:
    path = tmp_path / "cube.obj"
    path.write_text(CUBE)
    mesh = Mesh.load(path)
    assert (mesh.name, len(mesh.triangles)) == ("cube", 12)
    across = faces(mesh)
    assert (mesh.positions[mesh.triangles[:, 0]] * across).sum() / 6 == pytest.approx(8.0)
    # Corners at one place share a normal, which lies between those of the three faces around them.
    assert ((mesh.normals * mesh.positions) > 0).all()
    app.resources.roots.append(tmp_path)
    renderer = app.scene.create("cube").add_component(MeshRenderer, mesh="cube.obj")
    assert renderer.mesh.name == "cube"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("v 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3", "too few numbers"),
        ("v 0 0 zero", "line 1: 'v 0 0 zero' cannot be read"),
        ("v 0 0 0\nf 1 2 3", "line 2: .* there are 1 lines of v before it"),
        ("v 0 0 0\n", "holds no faces"),
    ],
)
def test_a_broken_obj_file_is_reported_with_its_line(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "broken.obj"
    path.write_text(text)
    with pytest.raises(MeshError, match=fault):
        Mesh.load(path)


def test_an_obj_file_may_bring_normals(tmp_path: Path) -> None:
    path = tmp_path / "flat.obj"
    path.write_text("v 0 0 0\nv 1 0 0\nv 0 1 0\nvn 0 0 -2\nf 1//1 2//1 3//1\n")
    assert np.allclose(Mesh.load(path).normals, (0, 0, -1))
    with pytest.raises(MeshError, match="cannot read"):
        Mesh.load(tmp_path / "missing.obj")


@pytest.mark.parametrize(
    "text",
    ["box", "box((1.0, 2.0, 3.0))", "torus(1.0, tube=0.3)", "plane(8.0, 4.0, cells=3)", "cylinder(top=0.5)"],
)
def test_forms_have_names_that_make_them_again(text: str, app: App) -> None:
    made = Mesh.named(text)
    assert made is not None
    assert made.source == text
    renderer = app.scene.create("thing").add_component(MeshRenderer, mesh=text)
    assert np.array_equal(renderer.mesh.vertices, made.vertices)
    made.write(made.positions * 2)
    assert made.source is None, "what was changed is no form any more"


def test_a_form_made_in_code_tells_its_name() -> None:
    for mesh in (Mesh.box((1, 2, 3)), Mesh.sphere(0.25, segments=8), Mesh.cylinder(top=None), Mesh.quad()):
        again = Mesh.named(mesh.source or "")
        assert again is not None
        assert np.array_equal(again.vertices, mesh.vertices)
    assert Mesh(np.zeros((3, 3))).source is None


def test_what_is_no_form_is_looked_for_among_the_files(app: App) -> None:
    assert Mesh.named("load('/etc/passwd')") is None
    assert Mesh.named("castle.obj") is None
    with pytest.raises(MeshError, match="numbers and tuples"):
        Mesh.named("box(open('x'))")
    with pytest.raises(MeshError, match=r"no mesh 'sphere\(1, 2, 3, 4\)'"):
        Mesh.named("sphere(1, 2, 3, 4)")
    with pytest.raises(ResourceError, match=r"no file 'bx'"):
        app.scene.create("thing").add_component(MeshRenderer, mesh="bx")
