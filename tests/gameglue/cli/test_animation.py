"""`gameglue play --animation`: the last seconds of a run as an animated picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gameglue.cli import main
from gameglue.cli.animation import PER_SECOND, SECONDS, WIDTH

MAIN = """
from gameglue import MonoBehaviour, SpriteRenderer, play

class Mover(MonoBehaviour):
    def update(self):
        self.transform.translate((self.time.delta_time * 2, 0))

def build(app, options):
    ball = app.scene.create("ball", position=(-4, 0))
    ball.add_component(SpriteRenderer, color="orange", width=1.0, height=1.0)
    ball.add_component(Mover)

if __name__ == "__main__":
    raise SystemExit(play(build))
"""


def columns(picture: Image.Image) -> float:
    """Where the orange is, as a share of the width."""
    pixels = np.asarray(picture.convert("RGB")).astype(int)
    found = ((pixels[..., 0] > 180) & (pixels[..., 2] < 90)).nonzero()[1]
    return float(found.mean()) / pixels.shape[1]


@pytest.mark.gl
@pytest.mark.parametrize("suffix", [".gif", ".png"])
def test_an_animation_has_the_speed_of_the_game(tmp_path: Path, suffix: str) -> None:
    (tmp_path / "main.py").write_text(MAIN)
    file = tmp_path / f"run{suffix}"
    options = ["--headless", "--frames", "120", "--size", "600x400", "--animation", str(file)]
    assert main(["play", str(tmp_path), *options, "--report", str(tmp_path / "r.json")]) == 0
    with Image.open(file) as opened:
        assert opened.size == (WIDTH, 320)
        assert opened.n_frames == 120 // 5  # 12 pictures for 60 frames of a second
        places = []
        for number in range(opened.n_frames):
            opened.seek(number)
            places.append(columns(opened))
            assert abs(opened.info["duration"] - 1000 / PER_SECOND) < 10
    # The camera shows 15 units across, the ball moves 2 units a second from -4 on.
    moved = np.diff(places) * 15 * PER_SECOND
    np.testing.assert_allclose(moved, 2.0, atol=0.35)


@pytest.mark.gl
def test_only_the_last_seconds_are_kept(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(MAIN)
    file = tmp_path / "run.gif"
    frames = int(60 * SECONDS) + 60
    options = ["--headless", "--frames", str(frames), "--size", "90x60", "--animation", str(file)]
    assert main(["play", str(tmp_path), *options, "--report", str(tmp_path / "r.json")]) == 0
    with Image.open(file) as opened:
        assert opened.n_frames <= SECONDS * PER_SECOND


def test_another_suffix_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "main.py").write_text(MAIN)
    assert main(["play", str(tmp_path), "--headless", "--animation", "run.mp4"]) == 2
    assert "--animation writes .gif, .png, .webp; run.mp4 is none of them" in capsys.readouterr().err
