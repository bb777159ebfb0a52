"""The profiler overlay: F3 shows and hides it, F4 switches pages.

While it is shown, hooks, workers and tensors are recorded; hidden, nothing is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gameglue.graphics.colors import Palette
from gameglue.profiling.layer_page import LayerPage
from gameglue.profiling.overlay_pages import FramePage, OverlayPage, Panel, WorkersPage
from gameglue.profiling.recording import ProfileRecording
from gameglue.profiling.tensor_page import TensorPage

if TYPE_CHECKING:
    from gameglue.host.app import App

_EVENTS, _FRAMES = 6000, 600
_WIDTH, _HEIGHT = 372.0, 330.0
_KEYS = "F3 hide   F4 page   F5 choose"


class FrameOverlay:
    """Overlay pages about frame times, drawn with `app.gui`.

    key: shows and hides it. page_key: turns to the next page. choose_key: the next worker or tensor, on the
    pages that show one of several. NaN in any tensor that is read back raises a banner on every page.
    """

    def __init__(self, key: str = "f3", page_key: str = "f4", choose_key: str = "f5") -> None:
        self.key = key
        self.page_key = page_key
        self.choose_key = choose_key
        self.visible = False
        self.pages: list[OverlayPage] = [FramePage(), WorkersPage(), LayerPage(), TensorPage()]
        self.page = 0
        self._records = False

    def draw(self, app: App) -> None:
        """Handle the keys, and draw if visible."""
        if app.input.get_key_down(self.key):
            self.show(app, not self.visible)
        if not self.visible:
            return
        if app.input.get_key_down(self.page_key):
            self.page = (self.page + 1) % len(self.pages)
        page = self.pages[self.page]
        recording = app.profiler.recording
        if recording is None:
            return
        if app.input.get_key_down(self.choose_key):
            page.choose(recording)
        panel = self._frame(app, page)
        page.draw(app, recording, panel)
        self._alarm(app, recording)

    def show(self, app: App, visible: bool = True) -> None:
        """Show or hide it, as its key does."""
        self.visible = visible
        if visible and app.profiler.recording is None:
            # The game's own recording continues when this one is hidden.
            app.profiler.record(ProfileRecording(events=_EVENTS, frames=_FRAMES))
            self._records = True
        elif not visible and self._records:
            app.profiler.stop()
            self._records = False

    def _frame(self, app: App, page: OverlayPage) -> Panel:
        """The panel with its tabs; returns the room inside."""
        gui = app.gui
        x, y = gui.width - _WIDTH - 12, 12.0
        gui.rect(x, y, _WIDTH, _HEIGHT, (*Palette.PANEL_RGB, 0.985), radius=8, shadow=14)
        along = x + 14
        for other in self.pages:
            chosen = other is page
            color = Palette.TEXT if chosen else Palette.MUTED
            wide = gui.text(other.title, along, y + 10, size=13, color=color)
            if chosen:
                gui.rect(along, y + 29, wide, 2, Palette.ACCENT, radius=1)
            along += wide + 18
        gui.text(_KEYS, x + 14, y + _HEIGHT - 20, size=11, color=Palette.MUTED)
        return Panel(gui, x + 14, y + 40, _WIDTH - 28, _HEIGHT - 66)

    def _alarm(self, app: App, recording: ProfileRecording) -> None:
        """A banner for the first tensor that held NaN or infinity."""
        found = list(recording.nan_alarm.found.values())
        if not found:
            return
        gui, more = app.gui, f"  and {len(found) - 1} more" if len(found) > 1 else ""
        text = f"{found[0]}{more}"
        wide = gui.measure(text, size=13)[0] + 28
        x, y = gui.width - wide - 12, 12.0 + _HEIGHT + 10
        gui.rect(x, y, wide, 30, Palette.BAD, radius=6, shadow=10)
        gui.text(text, x + 14, y + 15, size=13, color="#20090a", valign="center")
