"""The demo as it is played: what is shown belongs together, and the figures are those of what is shown."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from demos.upscale.city import City
from demos.upscale.main import build
from demos.upscale.upscaler import Upscaler
from demos.upscale.view import BOX, View
from gameglue import App, BackendType, InputScript, TextureConverter
from tests.demos.playing import Play, part

SIZE = (480, 320)
ASSETS = Path(__file__).parents[3] / "assets"


@pytest.fixture
def play(play_drawn: Play) -> Play:
    """`play(script, kind=..., **options)`: the demo."""
    return partial(play_drawn, build, size=SIZE)


def psnr(picture: np.ndarray, native: np.ndarray) -> float:
    difference = picture.astype(float) - native
    return float(10 * np.log10(255**2 / (difference**2).mean()))


def stretched(low: np.ndarray) -> np.ndarray:
    """Twice as large by bilinear interpolation, pixel by pixel: pixels are squares, edges are repeated."""
    for axis in (0, 1):
        size = low.shape[axis]
        at = np.clip((np.arange(2 * size) + 0.5) / 2 - 0.5, 0, size - 1)
        first = np.floor(at).astype(int)
        share = (at - first).reshape((-1, 1, 1) if axis == 0 else (1, -1, 1))
        before, after = (low.take(np.minimum(first + k, size - 1), axis).astype(float) for k in (0, 1))
        low = before * (1 - share) + after * share
    return low


@pytest.mark.gl
@pytest.mark.parametrize("kind", [BackendType.CPU, BackendType.GPU_PIXEL])
def test_the_network_wins_and_the_figures_are_those_of_what_is_shown(
    kind: BackendType, play: Play, gl_device: Any
) -> None:
    app = play(kind=kind, autoplay=True)
    upscaler, city = part(app, Upscaler), part(app, City)
    city.clock, city.moves = 7.0, False  # every picture is the same
    for _ in range(3000):
        app.step()
        if upscaler.images > 1 and upscaler.measured:
            break
    shot = upscaler.shown
    low, large, native = (target.read() for target in (shot.low, shot.large, shot.native))
    width, height = upscaler.size
    assert low.shape == (height // 2, width // 2, 3)
    assert large.shape == native.shape == (height, width, 3)
    bilinear, network = upscaler.measured[-1]
    assert bilinear == pytest.approx(psnr(stretched(low), native), abs=0.02)
    assert network == pytest.approx(psnr(large, native), abs=0.05)
    assert network > bilinear + 1.0
    metadata = app.tell()
    assert metadata["PSNR"] == f"bilinear {bilinear:.2f} dB, network {network:.2f} dB"
    assert not gl_device.counters.blocking


@pytest.mark.gl
def test_on_the_gpu_no_picture_leaves_it(play: Play, gl_device: Any) -> None:
    app = play(kind=BackendType.GPU_PIXEL)
    upscaler = part(app, Upscaler)
    staged = TextureConverter.counters.staged_down
    app.step()
    while upscaler.images < 2:
        app.step()
    assert TextureConverter.counters.staged_down == staged
    # But for the two errors of `compare.onnx`.
    assert gl_device.counters.bytes_down <= 64


@pytest.mark.gl
def test_the_divider_follows_the_mouse(play: Play) -> None:
    app = play(InputScript().drag([(60, 100), (246, 120)], at=0.05, duration=0.1), autoplay=True)
    view = part(app, View)
    app.run(frames=15)
    assert view.split == pytest.approx((246 * 2 - BOX.x) / BOX.width)
    assert not view.autoplay


@pytest.mark.gl
def test_keys_fly_freeze_and_leave(play: Play) -> None:
    script = InputScript().press("w", at=0.05, hold=0.3).press("space", at=0.4).press("escape", at=0.6)
    app = play(script)
    city = part(app, City)
    before = city.height
    app.run(frames=22)
    assert city.height > before + 0.8
    app.run(frames=8)
    clock = city.clock
    app.run(frames=60)
    assert city.clock == clock
    assert app.is_quitting


def test_fares_are_counted_where_the_taxi_meets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GAMEGLUE_NO_OPENGL", "1")
    with App("test", size=SIZE, headless=True, on_error="raise", seed=2) as app:
        city = app.scene.create("city").add_component(City, fare_at=-2.0, fare_height=1.0, height=1.0)
        app.run(frames=30)
        assert city.fares == 1
        assert city.fare_at > 6.0
        city.fare_at, city.height = -2.49, city.fare_height - 3.0
        app.run(frames=2)
        assert city.fares == 1


def test_it_runs_without_opengl(play_undrawn: Play) -> None:
    app = play_undrawn(build, size=SIZE, autoplay=True)
    app.run(frames=5)
    assert app.tell()["images"] == 0
