"""What tests of pictures share."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
_ALONE = "GAMEGLUE_TEST_ALONE"


def passes_alone(test: str) -> bool:
    """Run a test, by its node, in a process of its own; False in that process, where it goes on itself.

    For what is counted in the whole process, where apps of earlier tests may still be at work.
    """
    if os.environ.get(_ALONE):
        return False
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", test]
    environment = {**os.environ, _ALONE: "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    return True
