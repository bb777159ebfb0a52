"""The option `--minutes`: a run that has less time than its tests take."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.conftest import ROOT

FILE = "tests/engine/base/test_shapes.py"


def run(*options: str) -> tuple[list[str], str]:
    """The tests of the file in the order in which they ran, and all that pytest printed."""
    command = [sys.executable, "-m", "pytest", "-v", "-n", "0", *options, FILE]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)
    return re.findall(rf"^({FILE}::.*) (?:PASSED|SKIPPED)", done.stdout, re.MULTILINE), done.stdout


def test_no_test_begins_after_the_last_minute() -> None:
    tests, text = run("--minutes", "0")
    assert f"{len(tests)} tests not begun within 0 minutes (see --minutes)" in text
    assert f"= {len(tests)} skipped in" in text


def test_a_text_draws_which_come_first() -> None:
    tests, text = run("--minutes", "5")
    others, _ = run("--minutes", "5", "--draw", "other")
    assert f"= {len(tests)} passed in" in text
    assert "not begun" not in text
    assert sorted(tests) == sorted(others)
    assert tests != others
