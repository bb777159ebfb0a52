"""The generated reference is complete: public names, fields, exceptions, options and variables have words."""

from __future__ import annotations

import importlib.util
import inspect
import re
from types import ModuleType

import pytest

import gameglue
from engine.api import operator_support
from gameglue import MonoBehaviour
from gameglue.cli import COMMANDS
from gameglue.cli.environment import VARIABLES
from gameglue.scripting.hooks import HOOKS
from tests.conftest import ROOT


def _module(name: str) -> ModuleType:
    # By its path: packages may bring a module called `docs`.
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


reference = _module("reference")
PAGES = dict(reference.pages())


def rows(page: str) -> dict[str, list[str]]:
    """The rows of a page's tables by their first cell."""
    cells = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    return {row[0].strip("`"): row for row in cells}


def test_every_public_name_is_on_one_page() -> None:
    listed = [name for _, _, names in reference.TOPICS.values() for name in names]
    assert len(listed) == len(set(listed))
    on_errors = set(re.findall(r'<span id="(\w+)">', PAGES["reference/errors.md"]))
    assert sorted(set(gameglue.__all__) - set(listed) - on_errors) == []
    assert [name for name in listed if reference.named(name) is None] == []


def test_every_public_member_is_documented() -> None:
    """What mkdocstrings gives an entry; a strict build compares the same list with the pages' anchors."""
    pytest.importorskip("griffe")
    expected = {a: there for page in _module("members").anchors().values() for a, there in page.items()}
    assert len(expected) > 1000
    assert {"gameglue.Vec3.x", "gameglue.App.random", "gameglue.host.clock.Time.delta_time"} <= set(expected)
    assert [anchor for anchor, is_documented in expected.items() if not is_documented] == []
    assert "gameglue.InputState.filter" not in expected


def test_every_error_has_cause_and_cure() -> None:
    page = PAGES["reference/errors.md"]
    errors = [row for name, row in rows(page).items() if name.startswith("<span")]
    assert len(errors) > 20
    assert [row[0] for row in errors if not all(row)] == []
    names = [name for name in gameglue.__all__ if name.endswith(("Error", "Pending"))]
    assert [name for name in names if f'id="{name}"' not in page] == []


def components() -> list[type[MonoBehaviour]]:
    """The component classes among the public names."""
    found = (getattr(gameglue, name) for name in gameglue.__all__)
    return [kind for kind in found if inspect.isclass(kind) and issubclass(kind, MonoBehaviour)]


@pytest.mark.parametrize("kind", components(), ids=lambda kind: kind.__name__)
def test_every_field_has_a_row_with_its_meaning(kind: type[MonoBehaviour]) -> None:
    if kind is MonoBehaviour:
        return
    section = PAGES["reference/components.md"].split(f"## {kind.__name__}\n")[1].split("\n## ")[0]
    own = {name: f for name, f in reference.fields_of(kind).items() if f.owner is kind}
    table = rows(section)
    assert [name for name in own if len(table.get(name, [])) < 4 or not table[name][-1]] == []


def test_types_units_and_ranges_are_told() -> None:
    table = rows(PAGES["reference/components.md"])
    assert table["field_of_view"][1:4] == ["`float`", "`60.0`", "degrees"]
    assert table["spread"][1:5] == ["`float`", "`360.0`", "degrees", "0.0 to 360.0"]
    assert table["mesh"][1:3] == ["`Mesh`", "required"]
    assert "Span" not in PAGES["reference/components.md"]


def test_every_hook_is_told() -> None:
    assert {f"{hook.name}({', '.join(('self', *hook.parameters))})" for hook in HOOKS.values()} <= set(
        rows(PAGES["reference/scripting.md"])
    )


def test_the_command_line_has_every_command() -> None:
    page = PAGES["reference/command-line.md"]
    assert [name for name in COMMANDS if f"\n## {name}\n" not in page] == []
    assert "--screenshot FILE" in rows(page.split("\n## play\n")[1].split("\n## ")[0])


def test_every_operator_has_a_row() -> None:
    names = {row.name for row in operator_support.supported()}
    assert names <= set(rows(PAGES["reference/operators.md"]))


def test_every_environment_variable_is_told() -> None:
    read: set[str] = set()
    for folder in ("engine", "gameglue", "building"):
        for path in (ROOT / folder).rglob("*.py"):
            read |= set(re.findall(r"GAMEGLUE_[A-Z_]+[A-Z]", path.read_text(encoding="utf-8")))
    told = {variable.name for variable in VARIABLES}
    assert sorted(read - told) == []
    assert sorted(name for name in told - read if name.startswith("GAMEGLUE")) == []
