"""Finds demos, and defines what makes a folder a demo.

A demo is `demos/<name>/main.py` with `build(app, options)`. The first line of its docstring is the
description that `gameglue list` shows. `build` fills the app's scene; it may return a function whose result
goes into the report when the run is over. A folder of a game of one's own follows the same convention.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import sys
from dataclasses import dataclass
from pathlib import Path

from engine.base.errors import InputError
from gameglue.cli.console import command_line
from gameglue.host.play_options import Build


@dataclass(frozen=True)
class Demo:
    """A demo: its name, a one-line description, and its folder."""

    name: str
    description: str
    folder: Path
    own_folder: Path | None = None
    """Where a game that is no demo of gameglue's has its files."""
    own_build: Build | None = None
    """Its `build`, where it is running already."""

    def load(self) -> Build:
        """Import it and return its `build`. Raises `InputError` if another package took its place."""
        if self.own_build is not None:
            return self.own_build
        if self.own_folder is not None:
            return _load_own(self.own_folder)
        module = importlib.import_module(f"demos.{self.name}.main")
        found = Path(module.__file__ or "").resolve().parent
        if found != self.folder:
            raise InputError(
                f"`import demos.{self.name}` finds {found}, not gameglue's own {self.folder}: rename that, "
                "or run from elsewhere"
            )
        build: Build = module.build
        return build


def demos_folder() -> Path:
    """The folder of the demos: next to the package, in a checkout as in an installation."""
    return Path(__file__).resolve().parents[2] / "demos"


def find_demos(folder: Path | None = None) -> list[Demo]:
    """Every demo in `folder`, by name. None is imported."""
    place = demos_folder() if folder is None else folder
    return [
        Demo(main.parent.name, _first_line(main), main.parent.resolve())
        for main in sorted(place.glob("*/main.py"))
    ]


def find_demo(name: str) -> Demo:
    """The demo called `name`. Raises `InputError` with the names that are there."""
    demos = {demo.name: demo for demo in find_demos()}
    if name in demos:
        return demos[name]
    near = difflib.get_close_matches(name, demos, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise InputError(f"there is no demo {name!r}; {hint}demos: {', '.join(demos) or 'none'} (gameglue list)")


def find_game(name: str) -> Demo:
    """A demo by its name, or a game by its folder or main.py. Raises `InputError`."""
    path = Path(name)
    is_path = path.name != name or path.suffix == ".py" or path.is_dir()
    if not is_path or name in {demo.name for demo in find_demos()}:
        return find_demo(name)
    main = path if path.suffix == ".py" else path / "main.py"
    if main.name != "main.py" or not main.is_file():
        why = f"the folder {name} has no main.py" if path.is_dir() else f"there is no game at {name}"
        raise InputError(f"{why}: give a folder with a main.py, or a demo's name")
    if not defines_build(main):
        raise InputError(
            f"{main} has no build(app, options), which `gameglue play` and its options need: add one, as "
            f"`gameglue new` writes it, or run it as it is: {command_line('python', main)}"
        )
    folder = main.resolve().parent
    return Demo(folder.name, _first_line(main), folder, folder)


def parsed(path: Path) -> ast.Module:
    """A Python file as a syntax tree. Raises `InputError`."""
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not Python: {error}") from error


def defines_build(main: Path) -> bool:
    """Whether a main.py defines `build(app, options)`. Raises `InputError` for invalid Python."""
    return any(isinstance(node, ast.FunctionDef) and node.name == "build" for node in parsed(main).body)


def _load_own(folder: Path) -> Build:
    """`build` of a game's main.py, which finds the modules next to it as it does when it is run itself."""
    sys.path.insert(0, str(folder))
    # Another game's, played by this process before.
    sys.modules.pop("main", None)
    build: Build = importlib.import_module("main").build
    return build


def _first_line(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0].strip()
