"""The demo as it is played: by itself, with mouse and keys, and with a network that does not answer."""

from __future__ import annotations

import numpy as np
import pytest

from assets.smoke.model_card import measure
from demos.smoke.main import build
from demos.smoke.panels import Panels, pictures
from demos.smoke.simulation import Simulation
from gameglue import RIGHT, App, InputScript
from tests.demos.playing import Demo, Play, part, until


@pytest.fixture
def play(play_undrawn: Play) -> Play:
    """`play(script, **options)`: the demo in its first frame."""

    def start(script: InputScript | None = None, **options: object) -> Demo:
        app = play_undrawn(build, script, **options)
        app.step()
        return app

    return start


def run(app: App, steps: int) -> Simulation:
    """Play until the fluid has made so many steps."""
    sim = part(app, Simulation)
    until(app, lambda: sim.steps >= steps)
    return sim


@pytest.mark.long
def test_a_round_by_itself(play: Play) -> None:
    app = play(autoplay=True, seed=1)
    sim = run(app, 60)
    assert sim.steps >= 60
    network, classical = np.median(sim.left[20:], axis=0)
    assert network < 0.2
    assert classical < 0.6
    assert (sim.fluid.smoke.sum(axis=(1, 2, 3)) > 100).all()
    assert np.isfinite(sim.fluid.v).all()
    metadata = app.tell()
    assert metadata["steps"] == sim.steps
    assert "frame(s)" in metadata["pressure after"]


def test_frames_go_on_while_the_pressure_is_missing(play: Play) -> None:
    app = play(autoplay=True)
    sim = run(app, 5)
    app.inference.paused = True
    app.run(frames=10)
    before, v = sim.steps, sim.fluid.v.copy()
    app.run(frames=30)
    assert sim.steps == before
    np.testing.assert_array_equal(sim.fluid.v, v)
    app.inference.paused = False
    assert run(app, before + 3).steps >= before + 3


def test_the_mouse_blows_smoke_into_both_boxes(play: Play) -> None:
    app = play(InputScript().drag([(120, 250), (180, 250)], at=0.05, duration=0.5))
    sim = run(app, 12)
    app.run(frames=30)
    here = sim.fluid.smoke[:, 26:38, 18:36].max(axis=(1, 2, 3))
    assert (here > 0.3).all()


def test_the_stone_follows_the_right_button(play: Play) -> None:
    app = play(InputScript().drag([(150, 400), (250, 300), (250, 300)], at=0.05, duration=0.4, button=RIGHT))
    run(app, 3)
    app.run(frames=30)
    run(app, part(app, Simulation).steps + 3)
    x, y = part(app, Simulation).stone
    assert abs(x - (250 - 22) * 64 / (500 * 64 / 96)) < 1
    assert abs(y - (300 - 84) * 96 / 500) < 1
    assert part(app, Simulation).fluid.solid[:, int(y), int(x)].all()


def test_keys(play: Play) -> None:
    app = play(InputScript().press("3", at=0.05).press("v", at=0.1).press("c", at=0.4))
    app.run(frames=15)
    sim = part(app, Simulation)
    assert sim.iterations == 80
    assert sim.shows_divergence
    app.run(frames=15)
    assert sim.fluid.smoke.sum() < 600


def test_pictures_show_smoke_and_stones(play: Play) -> None:
    app = play()
    sim = part(app, Simulation)
    sim.fluid.smoke[:, 20, 20] = (2.0, 0.0, 0.0)
    shown = pictures(sim)
    assert shown.shape == (2, 96, 64, 3)
    assert (shown[:, 20, 20, 0] > 200).all()
    assert (shown[:, 20, 20, 1] < 40).all()
    assert (shown[sim.fluid.solid] == shown[0, 0, 0]).all()
    assert part(app, Panels)


@pytest.mark.long
def test_the_network_beats_forty_iterations(play: Play) -> None:
    """Roughly what the model card states, on fewer boxes."""
    figures = measure(play().resources.find("smoke/smoke.onnx"), 3, (40,), warm_up=60, measured=4, alone=30)
    assert figures.left["network"] < 0.15
    assert figures.left["network"] < figures.left["Jacobi 40"]
    assert figures.flow_error["network"] < 0.5 * figures.flow_error["Jacobi 40"]
