"""gameglue hands on every name of the engine, and notices when another `engine` is in its place."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import engine
import gameglue

ROOT = Path(gameglue.__file__).parent.parent


def import_in(folder: Path, code: str = "import gameglue") -> subprocess.CompletedProcess[str]:
    """Run code in a game's folder, which comes first where Python looks for modules."""
    script = folder / "game.py"
    script.write_text(code)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, str(script)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_every_public_name_of_the_engine_is_handed_on() -> None:
    for name in engine.__all__:
        assert getattr(gameglue, name) is getattr(engine, name)
        assert name in gameglue.__all__


def test_no_name_is_taken_twice() -> None:
    assert len(gameglue.__all__) == len(set(gameglue.__all__))
    for name in gameglue.__all__:
        assert hasattr(gameglue, name), name


def test_a_games_own_engine_file_is_named_and_not_run(tmp_path: Path) -> None:
    (tmp_path / "engine.py").write_text("raise SystemExit('the game engine ran')")
    result = import_in(tmp_path)
    assert result.returncode == 1
    assert f"ImportError: {tmp_path / 'engine.py'} hides gameglue's own package `engine`" in result.stderr
    assert "Rename that file" in result.stderr


def test_a_games_own_engine_package_is_named(tmp_path: Path) -> None:
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "__init__.py").write_text("")
    result = import_in(tmp_path)
    assert f"ImportError: {tmp_path / 'engine' / '__init__.py'} hides" in result.stderr


def test_an_engine_that_was_imported_before_is_named(tmp_path: Path) -> None:
    code = "import sys, types\nsys.modules['engine'] = types.ModuleType('engine')\n"
    code += "sys.modules['engine'].__file__ = 'made_up.py'\nimport gameglue"
    assert "ImportError: made_up.py hides" in import_in(tmp_path, code).stderr


def test_a_folder_without_init_does_not_hide_the_engine(tmp_path: Path) -> None:
    """Python prefers a real package further on to a folder that merely has the name."""
    (tmp_path / "engine").mkdir()
    result = import_in(tmp_path)
    assert result.returncode == 0, result.stderr
