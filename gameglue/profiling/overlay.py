"""The frame-time graph over the game; F3 shows and hides it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gameglue.graphics.colors import Palette
from gameglue.profiling.report import Spread

if TYPE_CHECKING:
    from gameglue.app import App

_FRAMES = 180


class FrameOverlay:
    """Draws the latest frame times against the frame's budget, and the costliest phases."""

    def __init__(self, key: str = "f3") -> None:
        self.key = key
        self.visible = False

    def draw(self, app: App) -> None:
        """Follow the key, and draw with `app.gui` if visible."""
        if app.input.get_key_down(self.key):
            self.visible = not self.visible
        if not self.visible:
            return
        gui, profiler = app.gui, app.profiler
        width, height = 300.0, 208.0
        x, y = gui.width - width - 12, 12.0
        target = 1e3 / app.target_frame_rate
        work = profiler.work.latest(_FRAMES) * 1e3
        spread = Spread.of(work / 1e3)
        gui.rect(x, y, width, height, (*Palette.PANEL_RGB, 0.92), radius=8, shadow=14)
        gui.text("frame", x + 14, y + 10, size=13, color=Palette.MUTED)
        gui.text(f"{spread.median:.2f} ms", x + 62, y + 8, size=16, color=Palette.TEXT)
        gui.text(f"p99 {spread.p99:.2f}", x + width - 14, y + 10, size=13, color=Palette.MUTED, align="right")
        top = max(target * 1.25, spread.p99 * 1.1)
        gui.plot(x + 14, y + 34, width - 28, 72, work, low=0.0, high=top, color=Palette.ACCENT)
        line = y + 34 + 72 * (1 - target / top)
        gui.line(x + 14, line, x + width - 14, line, (*Palette.WARN_RGB, 0.7), width=1)
        means = {n: float(np.mean(r.latest(_FRAMES))) * 1e3 for n, r in profiler.phases.items()}
        longest = sorted(means.items(), key=lambda item: -item[1])[:5]
        scale = max(max(means.values(), default=0.0), 1e-6)
        for i, (name, mean) in enumerate(longest):
            row = y + 114 + i * 18
            gui.text(name, x + 14, row, size=12, color=Palette.MUTED)
            gui.rect(x + 108, row + 4, max(130 * mean / scale, 2), 8, Palette.ACCENT, radius=3)
            gui.text(f"{mean:.2f}", x + width - 14, row, size=12, color=Palette.TEXT, align="right")
