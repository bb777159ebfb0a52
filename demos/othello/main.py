"""Play Othello against a network with tree search; it thinks in batches, and the board never freezes."""

from __future__ import annotations

import numpy as np

from demos.othello.board import Board
from demos.othello.match import BATCH, STRENGTHS, Match
from demos.othello.panels import Panels
from gameglue import App, Facts, ModelLoader, PlayOptions, default_choice, exact_choice, open_worker


def build(app: App, options: PlayOptions) -> Facts:
    """Load the network and set up the board."""
    choice = options.choice or default_choice(app.ctx is not None)[0]
    model = ModelLoader.load(app.resources.find("othello/othello.onnx"))
    worker = open_worker(model, choice, options.progress)
    worker.schedule(np.zeros((BATCH, 3, 8, 8), np.float32))  # a first run costs more; no frame should pay
    worker.peek_output("policy").download_to_array()
    # Of which a graphics card takes little; where nobody watches, a frame may wait for a driver without one.
    app.frame_budget_ms = 50.0 if app.headless else 8.0
    label = f"{exact_choice(choice, worker).label} on {worker.plan_report().device}"

    game = app.scene.create("othello")
    match = game.add_component(Match, worker=worker, autoplay=options.autoplay)
    game.add_component(Board, match=match)
    game.add_component(Panels, match=match, label=label)
    return lambda: {
        "backend": label,
        "strength": STRENGTHS[match.strength].name,
        "moves played": len(match.history) - 1,
        "discs (black, white)": (match.position.black.bit_count(), match.position.white.bit_count()),
        "simulations a second": round(match.speed),
        "batch of positions judged in": f"{match.answer_ms:.1f} ms",
    }
