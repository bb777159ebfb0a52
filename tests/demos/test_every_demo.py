"""Every demo that is listed plays by itself on every backend, and draws something."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from assets.screenshots.record import RUNS
from assets.screenshots.record import command as record_command
from gameglue.cli.animation import PER_SECOND, SECONDS
from gameglue.cli.demos import find_demos
from gameglue.cli.play import add_options

ROOT = Path(__file__).parents[2]
DEMOS = [demo.name for demo in find_demos()]

FRAMES = 300

BLANK = 20
"""Colours that a picture of nothing but a background and a title would not reach."""


def test_the_games_are_there() -> None:
    expected = {"chatter", "digits", "gesture", "othello", "painter", "rival", "smoke", "swarm", "upscale"}
    assert expected <= set(DEMOS)


@pytest.mark.parametrize("name", DEMOS)
def test_a_demo_is_told_in_a_line_and_has_a_picture_in_the_readme(name: str) -> None:
    (demo,) = (demo for demo in find_demos() if demo.name == name)
    assert 20 < len(demo.description) < 110
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"gameglue play {name}" in readme
    assert (demo.folder / "README.md").is_file()
    assert (ROOT / "assets" / name / "README.md").is_file(), "no model card"
    assert f"](assets/screenshots/{name}.gif)" in readme
    picture = ROOT / "assets" / "screenshots" / f"{name}.gif"
    assert picture.stat().st_size < 2_000_000
    with Image.open(picture) as opened:
        assert opened.n_frames > 30
        assert opened.n_frames <= SECONDS * PER_SECOND


def test_one_program_records_every_picture() -> None:
    assert sorted(RUNS) == sorted(DEMOS)
    pictures = ROOT / "assets" / "screenshots"
    assert {path.stem for path in pictures.glob("*.gif")} == set(RUNS)
    options = argparse.ArgumentParser()
    add_options(options)
    for name, (seed, frames) in RUNS.items():
        play, demo, *rest = record_command(name, pictures / f"{name}.gif")
        assert (play, demo) == ("play", name)
        told = options.parse_args(rest)
        assert (told.seed, told.frames, told.animation) == (seed, frames, pictures / f"{name}.gif")
        assert frames >= SECONDS * 60, "the picture would be shorter than the others"


@pytest.mark.long
@pytest.mark.gl
@pytest.mark.parametrize("backend", ["cpu", "gpu_compute", "gpu_pixel"])
@pytest.mark.parametrize("name", DEMOS)
def test_a_demo_plays_on_every_backend(name: str, backend: str, tmp_path: Path) -> None:
    picture, report = tmp_path / "picture.png", tmp_path / "report.json"
    command = [sys.executable, "-m", "gameglue", "play", name, "--headless", "--frames", str(FRAMES)]
    command += ["--backend", backend, "--seed", "1", "--screenshot", str(picture), "--report", str(report)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(report.read_text(encoding="utf-8"))["measured"] == FRAMES
    colors = Image.open(picture).convert("RGB").getcolors(1 << 24)
    assert colors is not None
    assert len(colors) > BLANK
