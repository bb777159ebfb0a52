"""The README's first game, typed as it stands there: its files saved, its commands run, in their order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.gameglue.cli.test_play import read_png, report_of

SECTION = (ROOT / "README.md").read_text(encoding="utf-8").split("## Your first game in ten minutes\n")[1]
STEPS = re.findall(
    r"^`(\w+\.py)`\n\n```py\n(.*?)^```$|^```sh\n(.*?)^```$",
    SECTION.split("\n## ")[0],
    re.DOTALL | re.MULTILINE,
)


def run(folder: Path, command: str) -> str:
    """What a command of the README prints, where there is no display."""
    program, *arguments = command.split()
    assert program == "python"
    variables = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY")}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**variables, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder, once everything is typed."""
    folder = tmp_path_factory.mktemp("first_game")
    for name, text, commands in STEPS:
        if name:
            (folder / name).write_text(text, encoding="utf-8")
        for command in commands.splitlines():
            run(folder, command)
            if command == "python main.py":
                report = report_of(folder / "out" / f"{folder.name}.json")
                assert (report["frames"], report["facts"]["component errors"]) == (600, 0)
    return folder


def test_there_is_something_to_type() -> None:
    assert [name or commands.strip() for name, _, commands in STEPS] == [
        "star.py",
        "main.py",
        "python main.py",
        "make_brain.py",
        "python make_brain.py",
        "basket.py",
        "main.py",
        "python main.py",
    ]


def test_the_network_catches_stars(typed: Path) -> None:
    run(typed, "python main.py --seed 1 --frames 1800 --screenshot s.png --report r.json")
    facts = report_of(typed / "r.json")["facts"]
    assert facts["of"] >= 10
    assert facts["caught"] >= 0.8 * facts["of"]
    picture = read_png(typed / "s.png")[:, :, :3].astype(int)
    # The basket (blue) is on the floor, and the star (amber) is in the picture.
    for colour, least in (((0x4C, 0xC2, 0xFF), 1000), ((0xFF, 0xB4, 0x54), 150)):
        assert (np.abs(picture - colour).sum(axis=2) < 30).sum() > least
    basket = (np.abs(picture - (0x4C, 0xC2, 0xFF)).sum(axis=2) < 30).nonzero()[0]
    assert basket.mean() > 600


def test_the_network_foresees_what_stars_do(typed: Path) -> None:
    """Against a star's own rule, step by step, not against the formula that it was trained with."""
    import onnxruntime  # the test alone needs it

    session = onnxruntime.InferenceSession(typed / "brain.onnx", providers=["CPUExecutionProvider"])
    random = np.random.default_rng(5)
    x, y, drift = random.uniform(0, 1, 50), random.uniform(0, 0.9, 50), random.uniform(-1.2, 1.2, 50)
    (said,) = session.run(None, {"star": np.stack((x, y, drift), 1).astype(np.float32)})
    steps = 2000
    for _ in range(steps):
        is_falling = y < 1
        x = np.where(is_falling, x + drift / steps, x)
        drift = np.where(x < 0, abs(drift), np.where(x > 1, -abs(drift), drift))
        y = np.where(is_falling, y + 1 / steps, y)
    assert np.median(np.abs(np.asarray(said)[:, 0] - x)) < 0.03
