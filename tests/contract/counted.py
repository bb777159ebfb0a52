"""Plays scenarios on one backend and prints what blocked, a line of JSON for each.

python -m tests.contract.counted gl_pixel "varying shapes"
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from gameglue import App, MonoBehaviour
from tests.contract.place import Place
from tests.contract.scenarios import SCENARIOS, Scenario
from tests.contract.size_scenarios import SIZE_SCENARIOS

SETTLE_FRAMES = 5
LEAST_FRAMES = 20
MOST_FRAMES = 50_000


class Spinner(MonoBehaviour):
    """Something to draw, so that there is a picture in flight."""

    def update(self) -> None:
        self.transform.rotate(30 * self.time.delta_time)

    def on_gui(self) -> None:
        self.app.gui.rect(20, 20, 40, 30, color=(0.9, 0.4, 0.1, 1))


def play(app: App, place: Place, name: str) -> dict[str, object]:
    """Play one scenario in the app's loop, its end included; what to report of it."""
    played = app.scene.create(name)
    scenario: Scenario = played.add_component({**SCENARIOS, **SIZE_SCENARIOS}[name])
    scenario.enabled = False
    scenario.prepare(place)
    scenario.enabled = True
    frames = 0
    with place.counting() as blocking:
        while frames < LEAST_FRAMES or not scenario.is_done and frames < MOST_FRAMES:
            app.step()
            frames += 1
        is_done = scenario.is_done
        played.destroy()
        for _ in range(3):
            app.step()
    return {"scenario": name, "done": is_done, "frames": frames, "blocking": blocking}


def main(arguments: Sequence[str]) -> None:
    """Play what was asked for on a backend."""
    place = Place(arguments[0])
    app = App("counted", size=(64, 64), context=place.game, on_error="raise")
    app.scene.create("spinner", Spinner)
    app.run(SETTLE_FRAMES)
    for name in arguments[1:]:
        print(json.dumps(play(app, place, name)), flush=True)
    app.dispose()
    place.release()


if __name__ == "__main__":
    main(sys.argv[1:])
