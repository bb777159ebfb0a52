"""A run without a window that stands still says where, on its error output."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gameglue.errors import FrameError
from gameglue.host.watchdog import VARIABLE, Watchdog

STANDS_STILL = """
import sys, time
from gameglue import App, MonoBehaviour

class Slow(MonoBehaviour):
    def update(self):
        time.sleep(SECONDS if self.app.time.frame_count == 2 else 0.0)

with App("slow", headless=True) as app:
    app.scene.create("slow", Slow)
    app.run(frames=3)
print("done")
"""


def stacks(seconds: float, **environment: str) -> str:
    """What a child writes to its error output, in which a frame stands still for so long."""
    child = subprocess.run(
        [sys.executable, "-c", STANDS_STILL.replace("SECONDS", str(seconds))],
        env={**os.environ, "GAMEGLUE_NO_OPENGL": "1", **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert child.stdout == "done\n"
    return child.stderr


def test_a_frame_that_does_not_end_is_shown_with_its_stack() -> None:
    told = stacks(4.0, **{VARIABLE: "1"})
    assert "Timeout" in told
    assert "in update" in told
    assert "in step" in told


def test_frames_that_end_are_not_shown() -> None:
    assert "Timeout" not in stacks(0.0, **{VARIABLE: "60"})
    assert "Timeout" not in stacks(0.5)


def test_the_variable_goes_before_what_a_game_says(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Watchdog(3.0).seconds == 3.0
    monkeypatch.setenv(VARIABLE, "0")
    assert Watchdog(3.0).seconds == 0.0
    for wrong in ("soon", "-1", "inf", "nan"):
        monkeypatch.setenv(VARIABLE, wrong)
        with pytest.raises(FrameError, match=VARIABLE):
            Watchdog(0.0)
