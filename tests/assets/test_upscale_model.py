"""The upscaler keeps what its card promises, on the game's own frames."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.demos.upscale.test_scene import psnr, stretched
from tests.peer import open_session

FOLDER = Path(__file__).parents[2] / "assets" / "upscale"

DRAW = """
import numpy as np
from assets.upscale.frames import frames
low, high = frames(range(1001, 1011), 1)
np.savez(PATH, low=low, high=high)
"""


def stated(row: str) -> float:
    """A figure of the card, in dB."""
    found = re.search(
        rf"^\| {row} \| ([\d.]+) dB \|$", (FOLDER / "README.md").read_text("utf-8"), re.MULTILINE
    )
    assert found is not None, f"the card has no row {row!r}"
    return float(found[1])


@pytest.mark.gl
def test_held_out_frames_are_enlarged_as_the_card_says(run_child: Callable[..., str], tmp_path: Path) -> None:
    path = tmp_path / "frames.npz"
    run_child(f"PATH = {str(path)!r}\n{DRAW}")
    drawn = np.load(path)
    session = open_session(FOLDER / "upscale.onnx")
    decibels = []
    for low, high in zip(drawn["low"], drawn["high"], strict=True):
        (large,) = session.run(None, {"small": (low[None] / 255).astype(np.float32)})
        native = high.transpose(1, 2, 0)
        bilinear = stretched(low.transpose(1, 2, 0))
        decibels.append((psnr(bilinear, native), psnr(large[0].transpose(1, 2, 0) * 255, native)))
    bilinear, network = np.mean(decibels, axis=0)
    # These are a sixth of the frames that the card's figures are means of.
    assert bilinear == pytest.approx(stated("bilinear interpolation"), abs=0.6)
    assert network == pytest.approx(stated("`upscale.onnx`"), abs=0.8)
    assert min(after - before for before, after in decibels) > 2.0


def test_errors_are_compared_as_numpy_does() -> None:
    rng = np.random.default_rng(0)
    names = ("native", "bilinear", "network")
    three = {name: rng.random((1, 3, 32, 48), np.float32) for name in names}
    session = open_session(FOLDER / "compare.onnx")
    (errors,) = session.run(None, three)
    expected = [((three[name] - three["native"]) ** 2).mean() for name in names[1:]]
    np.testing.assert_allclose(errors, expected, rtol=1e-5)
