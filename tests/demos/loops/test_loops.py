"""The examples for other frame loops, each in its own window: they get answers, and show the right ones."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pygame
import pytest

from demos.digits.strokes import pen_strokes
from demos.loops.pen import TURN

pytestmark = [pytest.mark.gl, pytest.mark.window]

ROOT = Path(__file__).parents[3]
NEEDS = {"pygame_loop": "pygame", "moderngl_window_loop": "moderngl_window", "arcade_loop": "arcade"}
GPUS = ("gpu_pixel", "gpu_compute")
DIGIT = 1
FRAMES = TURN * DIGIT + int(60 * pen_strokes(DIGIT)[-1].end) + 5


def play(loop: str, display: str, *options: object) -> str:
    if importlib.util.find_spec(NEEDS[loop]) is None:
        pytest.skip(f'{NEEDS[loop]} is not installed: pip install "gameglue[loops]"')
    result = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", f"demos.loops.{loop}", *map(str, options)],
        cwd=ROOT,
        env={**os.environ, "DISPLAY": display, "SDL_VIDEODRIVER": "x11"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr
    return result.stdout


def longest_bar(picture: Path) -> int:
    """Which of the ten bars at the right of a picture of 480 x 320 has the most orange in it."""
    pixels = pygame.surfarray.array3d(pygame.image.load(picture)).swapaxes(0, 1).astype(int)
    assert pixels.shape == (320, 480, 3)
    right = pixels[:, 335:]
    is_orange = (right[..., 0] > 150) & (right[..., 1] > 90) & (right[..., 2] < 80)
    found = [int(part.sum()) for part in np.array_split(is_orange, 10)]
    assert max(found) > 1000, found
    return found.index(max(found))


@pytest.mark.parametrize(
    ("loop", "backend"),
    [
        *(pytest.param(loop, kind, marks=pytest.mark.long) for loop in NEEDS for kind in GPUS),
        *((loop, "cpu") for loop in NEEDS),
    ],
)
def test_a_loop_reads_what_its_pen_writes(loop: str, backend: str, display: str, tmp_path: Path) -> None:
    picture = tmp_path / "picture.png"
    said = play(loop, display, "--type", backend, "--frames", FRAMES, "--screenshot", picture)
    answers = re.search(r"(\d+) answers", said)
    assert answers is not None
    # One question in each frame, answered by the next unless the machine is busy.
    assert FRAMES // 20 < int(answers[1]) <= FRAMES
    assert longest_bar(picture) == DIGIT


@pytest.mark.parametrize("loop", NEEDS)
def test_an_example_is_short_and_says_how_to_run_it(loop: str) -> None:
    text = (ROOT / "demos" / "loops" / f"{loop}.py").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 100
    assert f"python -m demos.loops.{loop}" in (ast.get_docstring(ast.parse(text)) or "")
