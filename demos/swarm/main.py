"""Thousands of fish, steered by one network in one batch a frame; feed them, frighten them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from demos.swarm.panel import Panel
from demos.swarm.shoal import MODEL, Shoal, prepared
from demos.swarm.view import SeaView
from demos.swarm.world import Sea
from gameglue import (
    RIGHT,
    App,
    BackendType,
    Facts,
    ModelLoader,
    MonoBehaviour,
    PlayOptions,
    default_choice,
    open_worker,
)

FISH = 4096


class Player(MonoBehaviour):
    """The pointer feeds (left) and frightens (right); keys change the number of fish and the backend."""

    shoal: Shoal
    view: SeaView
    plays_itself: bool

    def update(self) -> None:
        """Do what the player asks for."""
        sea, place = self.shoal.sea, self.view.to_sea(*self.input.mouse_position)
        feeds, frightens = self.input.get_mouse_button(), self.input.get_mouse_button(RIGHT)
        if self.input.mouse_path:
            self.plays_itself = False
        if self.plays_itself:
            turn = self.time.time * 0.9
            place = (0.75 + 0.4 * np.cos(turn), 0.5 + 0.3 * np.sin(turn))
            feeds, frightens = turn % 3.0 < 1.2, turn % 6.0 > 4.0
        sea.ghost = place if frightens else None
        self.view.hand = place if feeds or frightens else None
        if feeds:
            sea.grow(place, radius=0.035)
        if self.input.get_key_down("up"):
            self.shoal.resize(sea.count * 2)
        if self.input.get_key_down("down"):
            self.shoal.resize(sea.count // 2)
        if self.input.get_key_down("b"):
            self.shoal.switch()
        if self.input.get_key_down("escape"):
            self.app.quit()


def build(app: App, options: PlayOptions) -> Facts:
    """Load the network and fill the scene."""
    choice = options.choice or default_choice(app.ctx is not None)[0]
    model = ModelLoader.load(app.resources.find(MODEL))
    on_gl = choice.backend is not BackendType.CPU and choice.device != "opencl"
    # Where the processor draws, a network on OpenGL waits for each picture, and most of that are fish.
    sea = Sea(FISH // 4 if on_gl and app.graphics.is_software else FISH, app.random)
    worker = prepared(open_worker(model, choice, options.progress), sea)
    app.frame_budget_ms = 5.0  # of 16.7: here the network is the game
    game = app.scene.create("swarm")
    shoal = game.add_component(Shoal, sea=sea, worker=worker, choice=choice)
    view = game.add_component(SeaView, shoal=shoal)
    game.add_component(Player, shoal=shoal, view=view, plays_itself=options.autoplay)
    game.add_component(Panel, shoal=shoal)
    return lambda: _facts(shoal)


def _facts(shoal: Shoal) -> Mapping[str, object]:
    """What the report tells about the network."""
    facts: dict[str, object] = {
        "backend": f"{shoal.choice.label} on {shoal.device}",
        "fish": shoal.sea.count,
        "answers": shoal.answered,
    }
    if shoal.waits:
        facts["answer after"] = f"{np.median(shoal.waits):.2f} ms (median)"
    return facts
