"""A fast duel against a network that learns from you while you play."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from demos.rival.match import Match
from demos.rival.school import Mind, School
from demos.rival.view import View
from gameglue import App, AudioSource, Facts, ModelLoader, PlayOptions, default_choice, open_worker


def build(app: App, options: PlayOptions) -> Facts:
    """Load the network and fill the scene."""
    choice = options.choice or default_choice(app.ctx is not None)[0]
    model = ModelLoader.load(app.resources.find("rival/rival.onnx"))
    strengths = np.load(app.resources.find("rival/rival.npy"))
    worker = open_worker(model, choice, options.progress)
    worker.warm_up({"batch": 1}).wait()
    game = app.scene.create("rival")
    mind = game.add_component(Mind, worker=worker)
    school = game.add_component(School, mind=mind, strengths=strengths)
    school.budget_ms *= 3 if app.headless else 1  # nobody waits for frames that are not shown
    voice = game.add_component(AudioSource)
    match = game.add_component(Match, mind=mind, school=school, sound=voice, plays_itself=options.autoplay)
    game.add_component(View, match=match, backend=choice.label)
    return lambda: _facts(match, choice.label)


def _facts(match: Match, backend: str) -> Mapping[str, object]:
    """What the report tells about the duel."""
    mind, school = match.mind, match.school
    facts: dict[str, object] = {
        "backend": f"{backend} on {mind.worker.plan_report().device}",
        "score": f"you {match.score[0]}, rival {match.score[1]}",
        "generation": school.evolution.generation,
        "rallies learned from": len(school.rallies),
        "answers": mind.answered,
    }
    if mind.waits:
        facts["answer after"] = f"{np.median(mind.waits):.2f} ms (median)"
    return facts
