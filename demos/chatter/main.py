"""Walk through a village where everybody talks; one small transformer predicts every word."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from demos.chatter.scenery import Scenery
from demos.chatter.village import PEOPLE, Feet, Person, Village
from demos.chatter.voices import Voices
from demos.chatter.words import MOODS, Vocabulary
from gameglue import App, ModelLoader, PlayOptions, ReportCallback, default_backend_choice, open_worker


def build(app: App, options: PlayOptions) -> ReportCallback:
    """Load the network and create the village."""
    choice = options.choice or default_backend_choice(app.ctx is not None)[0]
    app.frame_budget_ms = 6.0  # of 16.7 ms: little else happens here
    model = ModelLoader.load(app.resources.find("chatter/chatter.onnx"))
    words = Vocabulary(app.resources.find("chatter/words.txt"))
    count = len(PEOPLE) + 1
    worker = open_worker(model, choice, options.progress)
    worker.warm_up({"speakers": count}).wait()

    root = app.scene.create("village")
    voices = root.add_component(Voices, worker=worker, vocabulary=words, seed=options.seed or 0, count=count)
    people = []
    for row, (name, (trade, x, y)) in enumerate((PEOPLE | {"traveller": ("", 560, 470)}).items()):
        body = app.scene.create(name)
        body.transform.position = (x, y, 0.0)
        mood = app.python_random.choice(MOODS) if trade else "cheerful"
        people.append(body.add_component(Person, voices=voices, row=row, trade=trade, mood=mood))
    *villagers, player = people
    village = root.add_component(Village, people=villagers, player=player)
    player.game_object.add_component(Feet, village=village, autoplay=options.autoplay)
    backend = f"{choice.label} on {worker.plan_report().device}"
    root.add_component(Scenery, village=village, title=backend)
    return lambda: _facts(village, backend)


def _facts(village: Village, backend: str) -> Mapping[str, object]:
    """Figures for the report."""
    voices = village.player.voices
    told = f"{np.median(voices.step_ms or [0.0]):.2f} ms, up to {voices.loudest} speaking"
    said = " | ".join(village.heard[:6])
    return {"backend": backend, "words": voices.words, "a step for all": told, "sentences": said}
