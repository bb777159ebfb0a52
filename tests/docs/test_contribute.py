"""What "How it works" and "Contribute" say of the sources is there: files, folders, modules and names."""

from __future__ import annotations

import functools
import importlib
import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.backends.base import Backend
from tests.conftest import ROOT
from tests.docs.test_guides import IMAGES, PICTURES
from tests.test_imports import ENGINE_FOLDERS

CHAPTERS = ("how-it-works", "contribute")
PAGES = sorted(path for chapter in CHAPTERS for path in (ROOT / "docs" / "pages" / chapter).glob("*.md"))
NAMES = [path.relative_to(ROOT / "docs" / "pages").as_posix() for path in PAGES]
CHECKLISTS = (
    "index", "add-an-operator", "add-a-tuned-kernel", "add-a-backend", "add-a-demo", "write-documentation",
)  # fmt: skip

FOLDERS = "assets|building|demos|docs|engine|gameglue|tests"
PATH = re.compile(rf"(?<![\w./-])(?:{FOLDERS})/[\w./-]*\w/?|\.ci/\w+|pyproject\.toml|[A-Z]+\.md")
DOTTED = re.compile(r"(?<![\w./-])(?:building|demos|engine|gameglue|tests)(?:\.\w+)+(?![\w/])")
CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.M | re.S)
IDENTIFIER = re.compile(r"(?<!`)`(\w*[a-z]\w*)`(?!`)")
# Stands for what the reader chooses.
CHOSEN = re.compile(r"\bNAME\b")


def code_of(text: str) -> Iterator[str]:
    """What a page has as code: blocks, and what stands between backticks."""
    return (found[0] for found in CODE.finditer(text))


def paths_of(text: str) -> set[str]:
    """The files and folders that a page names."""
    found = {path for code in code_of(text) for path in PATH.findall(code)}
    return {path for path in found if not CHOSEN.search(path)}


def modules_of(text: str) -> set[str]:
    """The modules that a page names, and what is in them."""
    found = {name for code in code_of(text) for name in DOTTED.findall(code)}
    return {name for name in found if not CHOSEN.search(name)}


def is_there(name: str) -> bool:
    """Whether a dotted name is a module, or can be reached from one."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        file = ROOT.joinpath(*parts[:count])
        if not (file.with_suffix(".py").is_file() or file.is_dir()):
            continue
        found: object = importlib.import_module(".".join(parts[:count])) if parts[count:] else None
        for part in parts[count:]:
            if not hasattr(found, part) and part not in getattr(found, "__annotations__", {}):
                return False
            found = getattr(found, part, None)
        return True
    return False


@functools.cache
def words_of_sources() -> set[str]:
    """Every word of the project's Python files and of what configures it."""
    files = [path for folder in FOLDERS.split("|") for path in (ROOT / folder).rglob("*.py")]
    texts = (path.read_text(encoding="utf-8") for path in [*files, ROOT / "pyproject.toml"])
    return {word for text in texts for word in re.findall(r"\w+", text)}


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_names_without_a_module_occur_in_the_sources(page: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    named = {name for name in IDENTIFIER.findall(prose) if not CHOSEN.search(name)}
    assert named <= words_of_sources()


def test_the_steps_to_a_backend_are_its_methods() -> None:
    text = (ROOT / "docs" / "pages" / "contribute" / "add-a-backend.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[^|]*`) \|", text, re.MULTILINE)
    assert len(rows) > 8
    assert not [name for row in rows for name in IDENTIFIER.findall(row) if not hasattr(Backend, name)]


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_what_a_page_names_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    paths, modules = paths_of(text), modules_of(text)
    assert paths, "it names no file to open"
    assert not [path for path in paths if not (ROOT / path).exists()]
    assert not [name for name in modules if not is_there(name)]


def test_there_are_both_chapters() -> None:
    assert {name.partition("/")[0] for name in NAMES} == set(CHAPTERS)
    assert {f"contribute/{name}.md" for name in CHECKLISTS} <= set(NAMES)


SAMPLE = """\
Open `engine/api/worker.py` and `engine/no_such.py`, then `engine.api.worker.Worker.schedule`,
`engine.api.worker.Worker.no_such`, `engine.no_such`; engine/not_code.py is no code, `demos/NAME/main.py` is
chosen, and so is `README.md`.

```sh
python -m tests.no_such engine/operators/
```
"""


def test_the_check_finds_what_is_missing() -> None:
    assert {path for path in paths_of(SAMPLE) if not (ROOT / path).exists()} == {"engine/no_such.py"}
    assert paths_of(SAMPLE) == {"engine/api/worker.py", "engine/no_such.py", "engine/operators/", "README.md"}
    missing = {name for name in modules_of(SAMPLE) if not is_there(name)}
    assert missing == {"engine.api.worker.Worker.no_such", "engine.no_such", "tests.no_such"}
    assert is_there("engine.api.worker.Worker.schedule")


@pytest.mark.parametrize("name", ["layers", "inference", "game"])
def test_drawings_are_up_to_date(name: str) -> None:
    drawings = runpy.run_path(str(PICTURES / "architecture.py"))["DRAWINGS"]
    assert set(drawings) == {"layers", "inference", "game"}
    assert (IMAGES / f"{name}.svg").read_text(encoding="utf-8") == drawings[name]()
    assert f"images/{name}.svg" in (PAGES[0].parents[1] / "how-it-works" / "architecture.md").read_text(
        encoding="utf-8"
    )


def test_the_drawing_has_the_folders_in_their_order() -> None:
    assert tuple(runpy.run_path(str(PICTURES / "architecture.py"))["ENGINE"]) == ENGINE_FOLDERS
