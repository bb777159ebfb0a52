"""The guides' tables and pictures say what the sources say."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

import gameglue
from gameglue import App, MonoBehaviour
from tests.conftest import ROOT

GUIDES = ROOT / "docs" / "pages" / "guides"
IMAGES = ROOT / "docs" / "pages" / "images"
PICTURES = ROOT / "docs" / "pictures"

FIELDS = {
    "3d.md": ("Camera3D", "MeshRenderer", "DirectionalLight", "AmbientLight"),
    "particles.md": ("ParticleSystem",),
    "sound.md": ("AudioSource",),
    "sprites-and-cameras.md": (
        "Camera2D", "SpriteRenderer", "SpriteAnimator", "TextRenderer", "LineRenderer", "TileMap",
    ),
}  # fmt: skip
"""By page, the components whose fields its tables list, in that order."""

LARGEST = 60_000


def tables(page: str) -> list[list[tuple[str, str]]]:
    """Each table of fields on a page: the first two columns of its rows."""
    text = (GUIDES / page).read_text(encoding="utf-8")
    bodies = re.findall(r"^\| field \| default \| meaning \|\n\| --- .*\n((?:\|.*\n)+)", text, re.M)
    rows = [[row.split("|")[1:3] for row in body.splitlines()] for body in bodies]
    return [[(names.strip(), defaults.strip()) for names, defaults in table] for table in rows]


def fields_of(kind: type[MonoBehaviour]) -> dict[str, object]:
    """The serialized fields that a class and its bases annotate, with their defaults; `...` without one."""
    found: dict[str, object] = {}
    for owner in reversed(kind.__mro__):
        if issubclass(owner, MonoBehaviour) and owner is not MonoBehaviour:
            for name in owner.__annotations__:
                if not name.startswith("_"):
                    found[name] = vars(kind).get(name, vars(owner).get(name, ...))
    return found


@pytest.mark.parametrize("page", FIELDS)
def test_tables_list_every_field_with_its_default(page: str) -> None:
    found = tables(page)
    assert len(found) == len(FIELDS[page])
    for name, rows in zip(FIELDS[page], found, strict=True):
        declared = fields_of(getattr(gameglue, name))
        told: dict[str, str] = {}
        for names, defaults in rows:
            each = re.findall(r"`(\w+)`", names)
            values = re.findall(r"`([^`]*)`", defaults)
            told |= dict(
                zip(each, values * len(each) if len(values) == 1 else values or [""] * len(each), strict=True)
            )
        assert told.keys() == declared.keys(), name
        for field, default in told.items():
            if default:
                assert default.replace('"', "'") == repr(declared[field]), f"{name}.{field}"


def test_the_table_of_phases_is_the_frame() -> None:
    text = (GUIDES / "life-cycle.md").read_text(encoding="utf-8")
    body = text.partition("| phase | what happens |")[2].partition("\n\n")[0]
    told = re.findall(r"^\| `(\w+)` \|", body, re.M)
    with App("frame", headless=True) as app:
        # Where the processor draws, inference comes before the drawing.
        assert set(told) == set(app.frame.names)
        assert [p for p in told if p != "inference"] == [p for p in app.frame.names if p != "inference"]


def test_the_drawing_of_the_frame_is_up_to_date() -> None:
    drawing = runpy.run_path(str(PICTURES / "frame.py"))["drawing"]
    assert (IMAGES / "frame.svg").read_text(encoding="utf-8") == drawing()


@pytest.mark.parametrize(
    "script",
    [path for path in sorted(PICTURES.glob("*.py")) if "keep_picture(" in path.read_text()],
    ids=lambda path: path.stem,
)
def test_a_picture_is_small_and_its_page_makes_it(script: Path) -> None:
    for page, name in re.findall(
        r'^ +keep_picture\("([^"]+)", "([^"]+)"', script.read_text(encoding="utf-8"), re.M
    ):
        text = (ROOT / "docs" / "pages" / page).read_text(encoding="utf-8")
        assert f'app.screenshot("{name}")' in text or f"--screenshot {name} " in text
        assert f"images/{name}" in text
        assert (IMAGES / name).stat().st_size < LARGEST
