"""Type checkers understand the public API: the files of `USER_CODE` say what they must find."""

from __future__ import annotations

import json
import os
import shutil
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


USER_CODE = ("typed_user_code.py", "typed_star_import.py")
MISSING = ("GPUCompute", "Schedule", "nothing", "Wroker")


@pytest.fixture
def user(tmp_path: Path) -> Path:
    """A folder with a user's files, who has no settings of ours."""
    folder = tmp_path / "user"
    folder.mkdir()
    for name in USER_CODE:
        shutil.copy(ROOT / "tests" / name, folder)
    return folder


def mypy(folder: Path, *names: str) -> subprocess.CompletedProcess[str]:
    """What mypy reports."""
    pytest.importorskip("mypy")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file=",
        f"--cache-dir={folder.parent}/cache",
    ]
    command += ["--follow-imports=silent", "--ignore-missing-imports", *names]
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.long
def test_mypy_understands_user_code(user: Path) -> None:
    done = mypy(user, *USER_CODE)
    assert done.returncode == 0, done.stdout
    (user / "wrong.py").write_text(WRONG, encoding="utf-8")
    done = mypy(user, "wrong.py")
    for name in MISSING:
        assert f'has no attribute "{name}"' in done.stdout


def test_pyright_understands_user_code(user: Path) -> None:
    """As editors do: basedpyright is pyright that installs without a Node.js of one's own."""
    pytest.importorskip("basedpyright")
    (user / "wrong.py").write_text(WRONG, encoding="utf-8")
    settings = {"extraPaths": [str(ROOT)], "typeCheckingMode": "strict", "include": ["."]}
    (user / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run(command, cwd=user, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] == len(USER_CODE) + 1
    errors = [(Path(e["file"]).name, e["message"]) for e in found["generalDiagnostics"]]
    assert [error for error in errors if error[0] != "wrong.py"] == []
    for name in MISSING:
        assert any(f'"{name}"' in message for _, message in errors), errors
