"""What the window tells: the title, the network and its times, the keys."""

from __future__ import annotations

import time

import numpy as np

from demos.swarm.shoal import Shoal
from gameglue import MonoBehaviour, Palette

_KEYS = (
    ("left button", "feed"),
    ("right button", "frighten"),
    ("up / down", "more or fewer fish"),
    ("B", "CPU or GPU"),
    ("F3", "profiler"),
    ("Esc", "quit"),
)
_GLASS = "#0b1e2ae0"
_WIDTH = 226


class Panel(MonoBehaviour):
    """The title and the keys, and a card with the figures."""

    shoal: Shoal

    def awake(self) -> None:
        """Figures change a few times a second, so that they can be read."""
        self._rows: list[tuple[str, str]] = []
        self._since, self._frames = time.perf_counter(), 0
        self._tell(0.0)

    def update(self) -> None:
        """Take new figures when it is time."""
        self._frames += 1
        passed = time.perf_counter() - self._since
        if passed > 0.3:
            self._tell(self._frames / passed)
            self._since, self._frames = time.perf_counter(), 0

    def _tell(self, pace: float) -> None:
        shoal, sea = self.shoal, self.shoal.sea
        batch = shoal.worker.costs.total_ms
        wait = f"{np.median(shoal.waits):.1f} ms" if shoal.waits else "..."
        self._rows = [
            ("fish", f"{sea.count:,}"),
            ("network, all fish", f"{batch:.2f} ms"),
            ("network, one fish", f"{1e6 * batch / sea.count:.0f} ns"),
            ("answers after", wait),
            ("runs on", shoal.choice.label),
            ("frames a second", f"{pace:.0f}"),
            ("fed", f"{sea.eating.mean():.0%}"),
            ("caught", f"{sea.caught:,}"),
        ]

    def on_gui(self) -> None:
        """Draw all of it over the sea."""
        gui, shoal = self.app.gui, self.shoal
        width, height = self.app.size
        told = "each fish senses food, its neighbours and sharks; one network steers all of them"
        wide = gui.measure("swarm", size=24)[0]
        gui.rect(14, 12, wide + gui.measure(told, size=14)[0] + 44, 40, _GLASS, radius=12)
        gui.text("swarm", 28, 32, size=24, valign="center")
        gui.text(told, 42 + wide, 34, size=14, color=Palette.MUTED, valign="center")
        left, top = width - _WIDTH - 14, 62.0
        tall = 22 * len(self._rows) + 46 + 22 * bool(shoal.message)
        gui.rect(left, top, _WIDTH, tall, _GLASS, radius=12)
        gui.text("one batch a frame", left + 16, top + 12, size=14, color=Palette.ACCENT)
        for i, (name, value) in enumerate(self._rows):
            y = top + 38 + 22 * i
            gui.text(name, left + 16, y, size=13, color=Palette.MUTED)
            gui.text(value, left + _WIDTH - 16, y, size=13, align="right")
        if shoal.message:
            gui.text(shoal.message[:32], left + 16, top + tall - 28, size=13, color=Palette.WARN)
        x, y = 24.0, height - 30.0
        room = sum(gui.measure(key + meaning, size=13)[0] + 41 for key, meaning in _KEYS)
        gui.rect(14, y - 18, room, 36, _GLASS, radius=12)
        for key, meaning in _KEYS:
            box = gui.measure(key, size=13)[0] + 14
            gui.rect(x, y - 12, box, 24, Palette.RAISED, radius=5)
            gui.text(key, x + box / 2, y, size=13, align="center", valign="center")
            x += box + 7
            x += gui.text(meaning, x, y, size=13, color=Palette.MUTED, valign="center") + 20
