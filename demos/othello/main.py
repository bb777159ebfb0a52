"""Play Othello against a network with tree search; it evaluates positions in batches over the frames."""

from __future__ import annotations

from demos.othello.match import BATCH, STRENGTHS, Match
from demos.othello.view import View
from gameglue import App, Brain, PlayOptions, ReportCallback


def build(app: App, options: PlayOptions) -> ReportCallback:
    """Load the network and create the board."""
    # A GPU needs little of it. Without a window, frames may take longer.
    app.frame_budget_ms = 50.0 if app.headless else 8.0
    game = app.scene.create("othello")
    brain = Brain.open(game, "othello/othello.onnx", options, {"batch": BATCH})
    match = game.add_component(Match, brain=brain, autoplay=options.autoplay)
    game.add_component(View, match=match)
    return lambda: {
        **brain.statistics,
        "moves played": f"{len(match.history) - 1}, at strength {STRENGTHS[match.strength].name}",
        "discs (black, white)": (match.position.black.bit_count(), match.position.white.bit_count()),
        "simulations a second": round(match.speed),
    }
