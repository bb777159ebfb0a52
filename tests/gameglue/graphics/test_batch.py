"""Quads of one kind have a program of their own where the processor draws; the picture stays the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gameglue import App, MonoBehaviour
from gameglue.graphics import batch
from gameglue.graphics.batch import GLYPH, MIXED, PICTURE, PLAIN, QUAD, QuadRun, View, by_kind

MakeApp = Callable[..., App]
VIEW = View.of_pixels(320, 240)


def run_of(*kinds_and_halves: tuple[float, float]) -> QuadRun:
    """Squares of the given kinds and half sides in pixels."""
    quads = np.zeros(len(kinds_and_halves), QUAD)
    for quad, (kind, half) in zip(quads, kinds_and_halves, strict=True):
        quad["shape"][2], quad["half"] = kind, half
    return QuadRun(VIEW, None, quads)


@pytest.mark.parametrize(
    ("quads", "pieces"),
    [
        ([(PLAIN, 4.0)], [(MIXED, 1)]),
        ([(PLAIN, 90.0)], [(PLAIN, 1)]),
        ([(PLAIN, 40.0), (PLAIN, 40.0)], [(PLAIN, 2)]),
        ([(PLAIN, 90.0), (GLYPH, 90.0)], [(PLAIN, 1), (MIXED, 1)]),
        ([(GLYPH, 4.0), (PLAIN, 4.0), (PICTURE, 90.0), (PLAIN, 4.0)], [(MIXED, 2), (PICTURE, 1), (MIXED, 1)]),
        # What adds its light is of the same kind.
        ([(PLAIN + batch.ADDS, 90.0), (PICTURE + batch.ADDS, 90.0)], [(PLAIN, 1), (PICTURE, 1)]),
    ],
)
def test_only_stretches_of_many_pixels_are_cut_out(
    quads: list[tuple[float, float]], pieces: list[tuple[float, int]]
) -> None:
    run = run_of(*quads)
    found = by_kind(run)
    assert [(kind, len(piece)) for kind, piece in found] == pieces
    assert np.array_equal(np.concatenate([piece for _, piece in found]), run.quads)


def test_soft_edges_count() -> None:
    run = run_of((PLAIN, 30.0))
    assert by_kind(run)[0][0] == MIXED
    run.quads["shape"][:, 3] = 30.0
    assert by_kind(run)[0][0] == PLAIN


@pytest.mark.gl
def test_programs_of_their_own_draw_the_same_picture(
    make_drawing_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_drawing_app()
    picture = app.graphics.texture(app.random.integers(0, 255, (24, 32, 4), np.uint8))

    class Draws(MonoBehaviour):
        def on_gui(self) -> None:
            gui = self.app.gui
            gui.rect(5, 5, 300, 200, "#204060", radius=12, color2="#c08040", shadow=10)
            gui.text("plain", 20, 20, 30)
            gui.image(picture, 60, 40, 180, 150, color="#ffffffc0", radius=20)
            gui.circles(app.random.uniform(0, 240, (40, 2)), 30.0, "#ff804060", softness=0.5, additive=True)
            gui.rect(20, 120, 250, 90, "#ffffff80", border=4, radius=9)
            gui.text("glyphs", 90, 140, 40, "black")
            gui.sprites(picture, [(100.0, 100.0), (250.0, 60.0)], 120.0, rotations=30.0, additive=True)

    app.scene.create("draws").add_component(Draws)

    def drawn() -> np.ndarray:
        app.random = np.random.default_rng(1)
        app.step()
        return app.graphics.read_pixels().astype(int)

    monkeypatch.setattr(app.graphics.device, "is_software", False)
    together = drawn()
    if PLAIN not in app.graphics._pipeline._programs:
        pytest.skip("a graphics card draws: it has one program")
    monkeypatch.setattr(app.graphics.device, "is_software", True)
    apart = drawn()
    assert together.std() > 20.0
    assert np.abs(together - apart).max() <= 1
