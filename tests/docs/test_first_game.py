"""The network of the page "Your first game", against a star's own rule."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.docs.test_pages import play, steps
from tests.peer import open_session

PAGE = "start/first-game.md"


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder, once every step of the page was taken; its games end early, as they render 1,045 frames."""
    folder = tmp_path_factory.mktemp("first_game")
    play(PAGE, folder, 10)
    return folder


def test_there_is_something_to_type() -> None:
    files = [step.file for step in steps(PAGE) if step.kind == "file"]
    assert {"star.py", "main.py", "make_brain.py", "basket.py", "assets/game.scene"} <= set(files)


@pytest.mark.long
def test_the_games_play_to_their_end(tmp_path: Path) -> None:
    play(PAGE, tmp_path, 0)


def test_the_network_foresees_what_stars_do(typed: Path) -> None:
    """Step by step, not by the formula that it was trained with."""
    session = open_session(typed / "assets" / "brain.onnx")
    random = np.random.default_rng(5)
    x, y, drift = random.uniform(0, 1, 50), random.uniform(0, 0.9, 50), random.uniform(-1.2, 1.2, 50)
    (said,) = session.run(None, {"star": np.stack((x, y, drift), 1).astype(np.float32)})
    steps_down = 2000
    for _ in range(steps_down):
        is_falling = y < 1
        x = np.where(is_falling, x + drift / steps_down, x)
        drift = np.where(x < 0, abs(drift), np.where(x > 1, -abs(drift), drift))
        y = np.where(is_falling, y + 1 / steps_down, y)
    assert np.median(np.abs(np.asarray(said)[:, 0] - x)) < 0.03
