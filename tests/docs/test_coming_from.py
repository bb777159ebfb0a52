"""Pages for those who come from other libraries: what they name here exists."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

import gameglue
from engine import ModelLoader, Worker
from gameglue import App, MonoBehaviour
from gameglue.cli import build_parser
from gameglue.scripting.hooks import HOOKS
from tests.conftest import ROOT

PAGES = ROOT / "docs" / "pages" / "coming-from"
CODE = re.compile(r"`([^`]+)`")


class Something(MonoBehaviour):
    """What `self` is in the tables."""


def rows(name: str) -> list[tuple[str, str]]:
    """The tables of a page: their left and right columns."""
    lines = (PAGES / f"{name}.md").read_text(encoding="utf-8").splitlines()
    cells = [re.split(r" \| ", line.strip("| "), maxsplit=1) for line in lines if line.startswith("| ")]
    return [(left, right) for left, right in cells if not left.startswith("---") and right != "gameglue"]


@pytest.fixture(scope="module")
def objects() -> Iterator[dict[str, object]]:
    """The objects that the tables' lower-case names stand for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GAMEGLUE_NO_OPENGL", "1")
        with App("names", headless=True) as app:
            model = ModelLoader.load(app.resources.find("digits/digits.onnx"))
            thing = app.scene.create("x").add_component(Something)
            with Worker(model) as worker:
                worker.schedule([[[[0.0] * 28] * 28]])
                yield {
                    "self": thing,
                    "app": app,
                    "game_object": thing.game_object,
                    "transform": thing.transform,
                    "camera": gameglue.Camera2D,
                    "model": model,
                    "worker": worker,
                    "tensor": worker.peek_output(),
                }


@pytest.mark.parametrize("name", ["onnxruntime", "pygame-and-arcade", "ursina"])
def test_what_a_table_names_exists(name: str, objects: dict[str, object]) -> None:
    found = rows(name)
    assert len(found) > 14
    checked = 0
    for _, right in found:
        for code in CODE.findall(right):
            if code.startswith("gameglue "):
                assert code.split()[1] in build_parser().format_help()
                continue
            root, *attributes = re.split(r"[( =\[]", code.removeprefix("await "), maxsplit=1)[0].split(".")
            here = objects.get(root, getattr(gameglue, root, None))
            if here is None:
                assert root in HOOKS or root in FIELDS, f"{root!r} in {code!r}"
            for attribute in attributes:
                assert here is not None, code
                here = getattr(here, attribute)
                checked += 1
    assert checked > 10


FIELDS = {"texture", "width", "clip", "mesh", "device", "play", "allow_fallback", "magnitude"}
"""Fields and arguments that rows name without their class."""
