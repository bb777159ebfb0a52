"""The demo as it is played, without a window."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from demos.swarm.main import FISH, Player, build
from demos.swarm.shoal import MOST, Shoal
from gameglue import BACKEND_CHOICES, App, BackendChoice, BackendType, CLDevice, DeviceError, InputScript
from tests.demos.playing import Demo, Play, part, until

_NEXT = (*BACKEND_CHOICES[1:], BACKEND_CHOICES[0])


@pytest.fixture
def play(play_undrawn: Play) -> Play:
    """`play(script, **options)`: the demo in its first frame."""

    def start(script: InputScript | None = None, **options: object) -> Demo:
        app = play_undrawn(build, script, size=(480, 320), **options)
        app.step()
        return app

    return start


def test_the_network_steers_and_the_scripted_player_plays(play: Play) -> None:
    app = play(autoplay=True)
    shoal = part(app, Shoal)
    app.run(frames=20)
    until(app, lambda: shoal.result_count >= 3)
    assert shoal.steering.shape == (FISH, 2)
    assert np.ptp(shoal.steering, axis=0).min() > 0.5
    assert part(app, Player).plays_itself
    assert app.tell()["fish"] == FISH


def test_keys_change_the_number_of_fish_within_bounds(play: Play) -> None:
    app = play(InputScript().press("up", at=0.1))
    shoal = part(app, Shoal)
    until(app, lambda: shoal.sea.count == 2 * FISH)
    answered = shoal.result_count
    until(app, lambda: shoal.result_count > answered + 2)
    assert len(shoal.steering) == 2 * FISH
    shoal.resize(FISH)
    until(app, lambda: shoal.sea.count == FISH)
    shoal.resize(2 * MOST)
    shoal.resize(1)
    assert not shoal.is_loading


def test_the_pointer_feeds_and_frightens(play: Play) -> None:
    app = play(
        InputScript()
        .drag([(100, 100), (120, 110)], at=0.1, duration=0.2)
        .drag([(300, 200), (310, 210)], at=0.5, duration=0.3, button=1),
        autoplay=True,
    )
    sea = part(app, Shoal).sea
    sea.food[:] = 0.0
    app.run(frames=12)
    # 320 pixels are one height of the sea, which has 40 rows of cells.
    assert sea.food[int(100 / 320 * 40), int(100 / 320 * 40)] > 0.5
    assert not part(app, Player).plays_itself
    app.run(frames=25)
    assert sea.ghost == pytest.approx((300 / 320, 200 / 320), abs=0.05)
    app.run(frames=20)
    assert sea.ghost is None


def test_b_goes_on_past_backends_that_are_missing(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    real = App.load_worker

    def load(app: App, model: Any, choice: BackendChoice, **options: Any) -> Any:
        asked.append(choice)
        if choice.backend is not BackendType.CPU:
            raise DeviceError("not in this test\nsecond line")
        return real(app, model, choice, **options)

    monkeypatch.setattr(App, "load_worker", load)
    app = play()
    shoal = part(app, Shoal)
    first = shoal.worker
    for label in ("gpu_compute (gl)", "gpu_compute (opencl)", "gpu_pixel"):
        shoal.switch()
        until(app, lambda: not shoal.is_loading)
        assert shoal.message == f"no {label}: not in this test"
        assert shoal.runs_on.label == "cpu"
    shoal.switch()
    until(app, lambda: not shoal.is_loading)
    assert asked == list(_NEXT)
    assert shoal.worker is not first
    assert first.is_disposed
    answered = shoal.result_count
    until(app, lambda: shoal.result_count > answered)


@pytest.mark.long
@pytest.mark.opencl
def test_b_takes_the_next_backend_beside_the_frames(play: Play) -> None:
    try:
        CLDevice()
    except DeviceError as error:
        pytest.skip(str(error))
    app = play()
    shoal = part(app, Shoal)
    shoal.switch()
    until(app, lambda: not shoal.is_loading, 120.0)  # what OpenGL compute says here does not matter
    frames = app.time.frame_count
    while shoal.runs_on.label != "gpu_compute (opencl)":
        shoal.switch()
        until(app, lambda: not shoal.is_loading, 120.0)
    assert app.time.frame_count > frames + 1
    answered = shoal.result_count
    until(app, lambda: shoal.result_count > answered + 1)
