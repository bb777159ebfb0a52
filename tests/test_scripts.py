"""Scripts run in processes of their own, whether those are forked or fresh."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.scripts import run_script

SCRIPT = """
import atexit, os, sys
import beside
was_here = "numpy" in sys.modules
atexit.register(lambda: print("ended"))
print(__name__, __file__ == sys.argv[0], sys.argv[1:], os.getcwd(), os.environ["TOLD"], [sys.stdin.read()])
print("HOME" in os.environ, hasattr(sys, "mine"), was_here, sys.modules["__main__"].was_here is was_here)
sys.mine = 1
os.environ["MINE"] = "1"
raise ValueError("no")
"""


@pytest.mark.parametrize("is_fresh", [True, False])
def test_a_script_has_a_process_of_its_own(is_fresh: bool, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    (tmp_path / "beside.py").write_text("")
    folder = tmp_path / "folder"
    folder.mkdir()
    has_imports = not is_fresh and sys.platform.startswith("linux")
    for told in ("one", "two"):
        done = run_script(script, "a", "b", folder=folder, environment={"TOLD": told}, is_fresh=is_fresh)
        assert done.stdout.splitlines() == [
            f"__main__ True ['a', 'b'] {folder} {told} ['']",
            f"False False {has_imports} True",
            "ended",
        ]
        assert done.returncode == 1
        assert done.stderr.endswith(
            f'{script}", line 10, in <module>\n    raise ValueError("no")\nValueError: no\n'
        )


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere subprocess ends it")
def test_a_script_that_hangs_is_ended(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import time\ntime.sleep(100)\n")
    done = run_script(script, folder=tmp_path, environment={}, timeout=1)
    assert done.returncode < 0
    assert f'"{script}", line 2' in done.stderr
    script.write_text("raise SystemExit(3)")
    assert run_script(script, folder=tmp_path, environment={}).returncode == 3
