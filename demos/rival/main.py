"""A fast duel against a network that learns from you while you play."""

from __future__ import annotations

import numpy as np

from demos.rival.match import Match
from demos.rival.school import School
from demos.rival.view import View
from gameglue import App, AudioSource, Brain, PlayOptions, ReportCallback


def build(app: App, options: PlayOptions) -> ReportCallback:
    """Load the network and create the scene."""
    game = app.scene.create("rival")
    brain = Brain.open(game, "rival/rival.onnx", options, {"batch": 1})
    school = game.add_component(School, strengths=np.load(app.resources.find("rival/rival.npy")))
    school.budget_ms *= 3 if app.headless else 1  # without a window, frames may take longer
    sound = game.add_component(AudioSource)
    match = game.add_component(Match, brain=brain, school=school, sound=sound, plays_itself=options.autoplay)
    game.add_component(View, match=match)
    return lambda: {
        **brain.statistics,
        "score": f"you {match.score[0]}, rival {match.score[1]}",
        "generation": school.evolution.generation,
        "rallies learned from": len(school.rallies),
    }
