"""Public names are imported when they are used; both packages list them for Python and for type checkers."""

from __future__ import annotations

import ast
import inspect
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import engine
import gameglue
from tests.benchmarks.processes import ROOT

HEAVY = ("numpy", "onnx", "numba", "llvmlite", "moderngl", "pygame", "pyopencl", "yaml", "rich", "glm")


def imported_for_types(path: Path) -> dict[str, set[str]]:
    """By module, the names under `if TYPE_CHECKING:`."""
    found: dict[str, set[str]] = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for line in node.body:
                assert isinstance(line, ast.ImportFrom)
                assert line.module is not None
                found.setdefault(line.module, set()).update(alias.name for alias in line.names)
    return found


@pytest.mark.parametrize("package", [engine, gameglue])
def test_the_lists_of_names_agree(package: object) -> None:
    """Type checkers read one of them, Python the other."""
    path = Path(package.__file__)  # type: ignore[attr-defined]
    places = {module: set(names) for module, names in package._PLACES.items()}  # type: ignore[attr-defined]
    assert imported_for_types(path) == places
    listed = [name for names in places.values() for name in names]
    assert len(listed) == len(set(listed))
    assert set(package.__all__) <= set(listed)  # type: ignore[attr-defined]


@pytest.mark.parametrize("package", [engine, gameglue])
def test_every_name_is_there_and_is_listed_by_dir(package: object) -> None:
    for name in package.__all__:  # type: ignore[attr-defined]
        assert getattr(package, name) is not None
        assert name in dir(package)
    with pytest.raises(AttributeError, match="has no attribute 'Wroker'"):
        _ = package.Wroker  # type: ignore[attr-defined]


def test_the_public_surface_is_chosen() -> None:
    """What `from gameglue import *` brings: no internals, and nothing that hides the standard library's."""
    assert len(gameglue.__all__) <= 120
    assert "operator" not in gameglue.__all__
    internal = {"advance_loads", "pending_work", "reserve_game_core", "FRAME", "Pumpable"}
    assert not internal & set(dir(gameglue))
    for name in gameglue.__all__:
        public = getattr(gameglue, name)
        if inspect.isclass(public) or inspect.isfunction(public):
            assert public.__doc__, name
    for name in ("operator", "KeyEvent", "Profiler"):  # still importable by name
        assert getattr(gameglue, name)


def loaded_by(
    code: str, names: Sequence[str] = HEAVY, environment: Mapping[str, str] | None = None
) -> set[str]:
    """Those of some modules, by default the heavy packages, that a program has imported in the end."""
    text = f"import sys\n{code}\nprint(*[name for name in {tuple(names)} if name in sys.modules])"
    command = [sys.executable, "-c", text]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("package", ["engine", "gameglue"])
def test_an_import_loads_nothing_that_takes_long(package: str) -> None:
    assert loaded_by(f"import {package}\nprint()") == set()


HELP = "from gameglue.cli import main\ntry: main(['--help'])\nexcept SystemExit: print()"


def test_the_command_line_helps_at_once() -> None:
    """Without NumPy; the second is a generous limit for an interpreter that starts and prints."""
    assert loaded_by(HELP) == set()
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        command = [sys.executable, "-m", "gameglue", "--help"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
        seconds.append(time.perf_counter() - start)
    assert "gameglue play digits" in done.stdout
    assert min(seconds) < 1.0


def test_a_name_loads_what_it_needs() -> None:
    assert loaded_by("from gameglue import TensorShape\nprint()") <= {"numpy"}
    assert "moderngl" in loaded_by("from gameglue import App\nprint()")


@pytest.mark.parametrize("arguments", [["--help"], ["lst"], []])
def test_the_command_line_answers_without_the_engine(arguments: list[str]) -> None:
    code = (
        f"from gameglue.cli import main\ntry:\n    main({arguments})\nexcept SystemExit:\n    pass\nprint()"
    )
    assert loaded_by(code) == set()


FIRST_ANSWER = """
import numpy as np
from gameglue import ModelLoader, Worker
with Worker(ModelLoader.load("assets/digits/digits.onnx")) as worker:
    worker.schedule(np.zeros((1, 1, 28, 28), np.float32))
    worker.peek_output().download_to_array()
print()
"""


def test_a_warm_start_imports_neither_parsers_nor_what_makes_plans() -> None:
    names = ("onnx", "asyncio", "numba", "engine.backends.cpu.tuning")
    environment = os.environ | {"GAMEGLUE_STORED_PLANS": "on"}
    loaded = [loaded_by(FIRST_ANSWER, names, environment) for _ in range(2)]
    assert loaded[1] == set()
