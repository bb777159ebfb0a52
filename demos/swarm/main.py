"""Thousands of fish, steered by one network in one batch a frame; feed them, frighten them."""

from __future__ import annotations

import numpy as np

from demos.swarm.panel import Panel
from demos.swarm.shoal import MODEL, Shoal
from demos.swarm.view import SeaView
from demos.swarm.world import Sea
from gameglue import (
    RIGHT,
    App,
    BackendType,
    MonoBehaviour,
    PlayOptions,
    ReportCallback,
    default_backend_choice,
)

FISH = 4096


class Player(MonoBehaviour):
    """Reads the mouse and the keys: left feeds, right frightens, keys change the number and the backend."""

    shoal: Shoal
    view: SeaView
    plays_itself: bool

    def update(self) -> None:
        """Read the mouse and the keys."""
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


def build(app: App, options: PlayOptions) -> ReportCallback:
    """Load the network and create the scene."""
    choice = options.choice or default_backend_choice(app.ctx is not None)[0]
    on_gl = choice.backend is not BackendType.CPU and choice.device != "opencl"
    # Where the processor draws, a network on OpenGL waits for each frame to be drawn.
    sea = Sea(FISH // 4 if on_gl and app.graphics.is_software else FISH, app.random)
    app.frame_budget_ms = 5.0  # of 16.7: here the network is the game
    game = app.scene.create("swarm")
    shoal = Shoal.open(game, MODEL, options, {"batch": sea.count}, sea=sea)
    view = game.add_component(SeaView, shoal=shoal)
    game.add_component(Player, shoal=shoal, view=view, plays_itself=options.autoplay)
    game.add_component(Panel, shoal=shoal)
    return lambda: {"fish": sea.count, **shoal.statistics}
