"""Finds the source files of a game, and the packages that they import."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gameglue.cli.demos import parsed

SKIPPED = frozenset({"__pycache__", "build", "dist", "node_modules", "out", "venv"})
"""Folders that are no part of a game; neither are those whose name begins with a dot."""


def files_of_folder(folder: Path) -> list[Path]:
    """Every file of a game's folder, except for what building and running it produce."""
    found = []
    for path in sorted(folder.rglob("*")):
        inner = path.relative_to(folder).parts
        if path.is_file() and not any(part in SKIPPED or part.startswith(".") for part in inner):
            found.append(path)
    return found


def files_of_script(script: Path) -> list[Path]:
    """A script, the modules next to it that it imports in any way, and its folder `assets`."""
    folder = script.parent
    found: dict[Path, None] = {}
    waiting = [script]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found[path] = None
        for item in imports_of(path):
            for name in item.modules:
                waiting += _local(folder, name)
    assets = folder / "assets"
    return [*found, *(files_of_folder(assets) if assets.is_dir() else ())]


def _local(folder: Path, module: str) -> list[Path]:
    """The files next to a script that a dotted name stands for."""
    top = folder / module.partition(".")[0]
    if (top / "__init__.py").is_file():
        return [path for path in files_of_folder(top) if path.suffix == ".py"]
    file = top.with_name(top.name + ".py")
    return [file] if file.is_file() else []


@dataclass(frozen=True)
class ImportLine:
    """An absolute import: the statement, and the modules that it names."""

    text: str
    modules: tuple[str, ...]


def imports_of(path: Path) -> Iterator[ImportLine]:
    """The absolute imports of a Python file, wherever they stand in it. Raises `InputError`."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield ImportLine(f"import {alias.name}", (alias.name,))
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module not in (None, "__future__"):
            assert node.module is not None
            names = [alias.name for alias in node.names if alias.name != "*"]
            text = f"from {node.module} import {', '.join(names)}" if names else f"import {node.module}"
            yield ImportLine(text, (node.module,))


def outside_imports(files: Iterable[Path], folder: Path) -> list[str]:
    """The statements by which a game's files import other packages, each once."""
    lines = {
        item.text: None
        for path in files
        if path.suffix == ".py"
        for item in imports_of(path)
        if not any(_local(folder, name) for name in item.modules)
    }
    return sorted(lines)
