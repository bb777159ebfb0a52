"""Type checkers understand the public API: `tests/typed_user_code.py` says what they must find."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.processes import ROOT

WRONG = """
from gameglue import BackendType, ModelLoader, Worker
worker = Worker(ModelLoader.load("net.onnx"), BackendType.GPUCompute)
worker.Schedule(1)
worker.peek_output().nothing
import gameglue
gameglue.Wroker
"""


def checked(path: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    """What mypy says to a file of a user's, who has no settings of ours."""
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={cache}"]
    command += ["--follow-imports=silent", "--ignore-missing-imports", str(path)]
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    return subprocess.run(command, cwd=path.parent, env=environment, capture_output=True, text=True)


@pytest.mark.long
def test_user_code_is_understood(tmp_path: Path) -> None:
    user = tmp_path / "user" / "game.py"
    user.parent.mkdir()
    user.write_text((ROOT / "tests" / "typed_user_code.py").read_text(encoding="utf-8"), encoding="utf-8")
    done = checked(user, tmp_path / "cache")
    assert done.returncode == 0, done.stdout
    user.write_text(WRONG, encoding="utf-8")
    done = checked(user, tmp_path / "cache")
    for name in ("GPUCompute", "Schedule", "nothing", "Wroker"):
        assert f'has no attribute "{name}"' in done.stdout
