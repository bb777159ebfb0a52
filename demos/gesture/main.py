"""Cast spells by drawing their signs; an LSTM classifies the movement while you draw."""

from __future__ import annotations

from demos.gesture.autoplay import Autoplay
from demos.gesture.battle import Battle
from demos.gesture.camera import CameraWand
from demos.gesture.effects import Effects
from demos.gesture.view import View
from demos.gesture.wand import Wand
from gameglue import App, PlayOptions, ReportCallback


def build(app: App, options: PlayOptions) -> ReportCallback:
    """Load the network and create the scene."""
    # A GPU needs little of it. Without a window, frames may take longer.
    app.frame_budget_ms = 50.0 if app.headless else 8.0
    game = app.scene.create("gesture")
    wand = Wand.open(game, "gesture/gesture.onnx", options, {"batch": 1})
    camera = game.add_component(CameraWand, wand=wand)
    battle = game.add_component(Battle, wand=wand, effects=game.add_component(Effects))
    game.add_component(View, battle=battle, camera=camera)
    game.add_component(Autoplay, battle=battle).enabled = options.autoplay
    return lambda: {"score": battle.score, "wave": battle.wave, **wand.statistics}
