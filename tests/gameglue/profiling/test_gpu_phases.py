"""Timestamps around the phases that draw, in a real context."""

from __future__ import annotations

from collections.abc import Callable

import moderngl
import pytest

from engine.device.gl.functions import GLFunctions
from gameglue import App
from gameglue.profiling.gpu_phases import DRAWING, GPUPhases

pytestmark = pytest.mark.gl


def test_each_phase_that_draws_has_a_time_in_order(game: moderngl.Context, game_gl: GLFunctions) -> None:
    told: list[tuple[str, float, float]] = []
    phases = GPUPhases(game_gl, lambda *found: told.append(found))
    target = game.framebuffer([game.texture((64, 64), 4)])
    for _ in range(3):
        for name in ("update", "draw", "render_image", "gui", "inference", "present", "end_of_frame"):
            phases.begin(name)
            target.use()
            target.clear(0.5, 0.5, 0.5, 1.0)
        phases.end_frame()
    game.finish()
    phases.end_frame()
    assert [name for name, _, _ in told] == [*DRAWING] * 3
    for _, start, end in told:
        assert start <= end
    phases.release()


def test_a_renderer_on_the_processor_is_left_alone(make_drawing_app: Callable[..., App]) -> None:
    """Timestamps would make it wait for what it has drawn before."""
    app = make_drawing_app()
    if not app.graphics.is_software:
        pytest.skip("a graphics card draws here")
    assert GPUPhases.of(app.graphics, lambda *found: None) is None
    app.profiler.record()
    app.step()
    recording = app.profiler.stop()
    assert recording is not None
    assert recording.gpu_phases == {}
