"""Finding demos, and the convention that makes a folder a demo.

A demo is `demos/<name>/main.py` with `build(app, options)`. The first line of its docstring is the
description that `gameglue list` shows. `build` fills the app's scene; it may return a function whose result
goes into the report when the run is over.
"""

from __future__ import annotations

import ast
import difflib
import importlib
from dataclasses import dataclass
from pathlib import Path

from engine.errors import InputError
from gameglue.playing import Build


@dataclass(frozen=True)
class Demo:
    """A demo that was found: its name, one line about it, and its folder."""

    name: str
    description: str
    folder: Path

    def load(self) -> Build:
        """Import it and return its `build`. Raises `InputError` if another package took its place."""
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
    """Where the demos lie: beside the package, in a checkout as in an installation."""
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


def _first_line(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0].strip()
