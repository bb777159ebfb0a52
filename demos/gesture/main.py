"""Cast spells by drawing them; an LSTM reads your hand, and the right sign destroys the foe."""

from __future__ import annotations

import numpy as np

from demos.gesture.battle import Battle
from demos.gesture.camera import CameraWand
from demos.gesture.effects import Effects
from demos.gesture.trail import STEPS
from demos.gesture.view import View
from demos.gesture.wand import AutoWand, Wand
from gameglue import App, Facts, ModelLoader, PlayOptions, default_choice, exact_choice, open_worker


def build(app: App, options: PlayOptions) -> Facts:
    """Load the network and raise the crystal."""
    choice = options.choice or default_choice(app.ctx is not None)[0]
    model = ModelLoader.load(app.resources.find("gesture/gesture.onnx"))
    worker = open_worker(model, choice, options.progress)
    worker.schedule(np.zeros((1, STEPS, 3), np.float32))  # a first run costs more; no frame should pay
    worker.peek_output().download_to_array()
    # Of which a graphics card takes little; where nobody watches, a frame may wait for a driver without one.
    app.frame_budget_ms = 50.0 if app.headless else 8.0
    label = f"{exact_choice(choice, worker).label} on {worker.plan_report().device}"

    game = app.scene.create("gesture")
    wand = game.add_component(Wand, worker=worker)
    auto = game.add_component(AutoWand, wand=wand) if options.autoplay else None
    camera = game.add_component(CameraWand, wand=wand)
    effects = game.add_component(Effects)
    battle = game.add_component(Battle, wand=wand, effects=effects, auto=auto)
    game.add_component(View, wand=wand, camera=camera, battle=battle, effects=effects, label=label)
    return lambda: {
        "backend": label,
        "score": battle.score,
        "wave": battle.wave,
        "spells that struck": f"{battle.cast_right} of {battle.cast_right + battle.cast_wrong}",
        "answers": wand.answers,
        "answer after": f"{wand.answer_ms:.1f} ms",
    }
