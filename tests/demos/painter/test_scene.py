"""The demo as it is played: it shows the network's painting, mixed by the slider, and nothing waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from demos.painter.main import STYLES, build
from demos.painter.painter import Painter
from demos.painter.panel import Panel
from gameglue import BackendType, Camera3D, InputScript, TextureConverter
from tests.demos.playing import Demo, Play, part
from tests.peer import open_session

SIZE = (240, 160)
FOLDER = Path(__file__).parents[3] / "assets" / "painter"


@pytest.fixture
def play(play_drawn: Play) -> Play:
    """`play(script, kind=..., **options)`: the demo, painting half of its pixels."""

    def start(script: InputScript | None = None, **options: Any) -> Demo:
        app = play_drawn(build, script, size=SIZE, **options)
        painter = part(app, Painter)
        painter.scale, painter.detail = 0.5, 1.0
        return app

    return start


def painted_by_onnxruntime(style: str, picture: np.ndarray) -> np.ndarray:
    """What the network makes of a picture (rows, columns, 3) at half the size."""
    rows, columns = picture.shape[0] // 2, picture.shape[1] // 2
    small = picture.reshape(rows, 2, columns, 2, 3).mean(axis=(1, 3)).astype(np.float32) / 255
    session = open_session(FOLDER / f"{style}.onnx")
    (painting,) = session.run(None, {"picture": small.transpose(2, 0, 1)[None]})
    return np.asarray(painting[0].transpose(1, 2, 0) * 255)


@pytest.mark.gl
@pytest.mark.parametrize("kind", [BackendType.CPU, BackendType.GPU_PIXEL])
def test_the_painting_is_the_networks(kind: BackendType, play: Play, gl_device: Any) -> None:
    app = play(kind=kind)
    app.step()
    painter = part(app, Painter)
    app.time.time_scale = 0.0  # the scene stands still, so that a late painting is of the same picture
    before = painter.pictures
    for _ in range(3000):
        app.step()
        if painter.pictures > before + 2:
            break
    assert painter.painting is not None
    assert painter.scene_picture is not None
    expected = painted_by_onnxruntime(STYLES[0], painter.scene_picture.read())
    painting = painter.painting.read()
    assert painting.shape == (80, 120, 3)
    assert len(np.unique(painting)) > 100
    assert np.abs(painting - expected).max() < 2.0
    assert app.tell()["paintings"] == painter.pictures
    assert not gl_device.counters.blocking


@pytest.mark.gl
def test_on_the_gpu_no_picture_leaves_it(play: Play, gl_device: Any) -> None:
    app = play(kind=BackendType.GPU_PIXEL)
    app.step()
    painter, staged = part(app, Painter), TextureConverter.counters.staged_down
    gl_device.counters.reset()
    for _ in range(3000):
        app.step()
        if painter.pictures > 1:
            break
    assert painter.pictures > 1
    assert TextureConverter.counters.staged_down == staged
    assert gl_device.counters.bytes_down == 0


@pytest.mark.gl
def test_the_slider_mixes_the_painting_with_the_scene(play: Play) -> None:
    app = play()
    app.step()
    panel, painter = part(app, Panel), part(app, Painter)
    panel.enabled = False
    while painter.painting is None:
        app.step()
    app.time.time_scale = 0.0
    until = painter.pictures + 2
    while painter.pictures < until:
        app.step()
    shown = {}
    for strength in (0.0, 0.5, 1.0):
        painter.strength = strength
        app.step()
        shown[strength] = app.graphics.read_pixels().astype(int)
    assert painter.scene_picture is not None
    np.testing.assert_array_equal(shown[0.0], painter.scene_picture.read())
    assert np.abs(shown[1.0] - shown[0.0]).mean() > 10
    middle = (shown[0.0] + shown[1.0]) / 2
    # The scene stands still, so all three are of one picture.
    assert np.abs(shown[0.5] - middle).max() <= 1.5


@pytest.mark.gl
def test_mouse_and_keys_set_strength_and_style(play: Play) -> None:
    app = play(autoplay=True)
    panel, painter = part(app, Panel), part(app, Painter)
    left, middle, length = panel.slider
    places = panel.page.to_window([(left + length, middle), (left + 0.25 * length, middle)])
    script = InputScript().drag([(x, y) for x, y in places.tolist()], at=0.1, duration=0.1)
    script.press("2", at=0.3).press("right", at=0.4, hold=0.25).press("space", at=0.8, hold=0.5)
    app.input.sources.append(script)
    app.run(frames=15)
    assert painter.strength == pytest.approx(0.25, abs=0.01)
    assert not panel.autoplay
    app.run(frames=30)
    assert painter.style == STYLES[1]
    assert 0.4 < painter.strength < 0.6
    app.run(frames=10)
    assert painter.strength == 0.0
    app.run(frames=40)
    assert painter.strength > 0.4


@pytest.mark.gl
def test_r_paints_more_pixels(play: Play) -> None:
    app = play(InputScript().press("r", at=0.1).press("escape", at=0.5))
    painter = part(app, Painter)
    sizes = []
    for _ in range(12):
        app.step()
        sizes.append(painter.size)
    assert sizes[0] == (120, 80)
    assert sizes[-1] == (240, 160)
    app.run(frames=60)
    assert app.is_quitting


@pytest.mark.gl
def test_the_camera_keeps_the_island_in_sight(play: Play) -> None:
    app = play()
    camera = part(app, Camera3D)
    for _ in range(5):
        app.step(3.0)
        place = camera.world_to_screen((0.0, 1.5, 0.0))
        assert place == pytest.approx((SIZE[0] / 2, SIZE[1] / 2), abs=1.0)


def test_it_runs_without_opengl(play_undrawn: Play) -> None:
    app = play_undrawn(build, size=SIZE, autoplay=True)
    app.run(frames=5)
    assert app.tell()["paintings"] == 0
