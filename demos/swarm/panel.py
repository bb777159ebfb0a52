"""The title, the keys and a card with figures."""

from __future__ import annotations

from demos.swarm.shoal import Shoal
from gameglue import MonoBehaviour, Page, Palette

_TOLD = "each fish senses food, neighbours and sharks; one network steers them all"
_KEYS = {"left button": "feed", "right button": "frighten", "up / down": "more or fewer fish"}
_KEYS |= {"B": "CPU or GPU", "F3": "profiler", "Esc": "quit"}
_GLASS = "#0b1e2ae0"
_WIDTH = 226


class Panel(MonoBehaviour):
    """Draws the title, the keys and a card with figures."""

    shoal: Shoal

    def awake(self) -> None:
        """Update the figures a few times a second, so that they are readable."""
        self._since, self._frame = 0.0, self.time.frame_count
        self._tell()
        self.invoke_repeating(self._tell, 0.3, 0.3)

    def _tell(self) -> None:
        now, frame = self.time.unscaled_time, self.time.frame_count
        pace = (frame - self._frame) / max(now - self._since, 1e-3)
        self._since, self._frame = now, frame
        shoal, sea = self.shoal, self.shoal.sea
        batch = shoal.worker.costs.total_ms
        wait = f"{shoal.latency_ms:.1f} ms" if shoal.latency_ms else "..."
        self._rows = {
            "fish": f"{sea.count:,}",
            "network, all fish": f"{batch:.2f} ms",
            "network, one fish": f"{1e6 * batch / sea.count:.0f} ns",
            "answer after": wait,
            "runs on": shoal.runs_on.label,
            "frames a second": f"{pace:.0f}",
            "fed": f"{sea.eating.mean():.0%}",
            "caught": f"{sea.caught:,}",
        }

    def on_gui(self) -> None:
        """Draw over the sea."""
        page, message = Page(self.app.gui, fill=True), self.shoal.message
        page.heading("swarm", _TOLD, x=28, y=32, back=_GLASS)
        page.keys(_KEYS, x=24, y=page.height - 30, back=_GLASS)
        left, tall = page.width - _WIDTH - 14, 22 * len(self._rows) + 46 + 22 * bool(message)
        title = "one batch a frame"
        room = page.card(left, 62, _WIDTH, tall, title, color=_GLASS, title_color=Palette.ACCENT)
        page.rows(room.x, room.y + 8, room.width, self._rows, size=13, step=22)
        page.text(message[:32], room.x, 62 + tall - 20, 13, Palette.WARN)
