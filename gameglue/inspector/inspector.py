"""`Inspector`: shows and hides the overlay, and captures its input."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.device.native.child_processes import is_frozen
from gameglue.errors import EngineError, GameError
from gameglue.graphics.colors import Palette
from gameglue.input import InputEvent, KeyEvent
from gameglue.inspector.overlay import InspectorOverlay

if TYPE_CHECKING:
    from gameglue.host.app import App
    from gameglue.scene.game_object import GameObject

_log = logging.getLogger("gameglue")

_HINT_SECONDS = 5.0


class Inspector:
    """Hierarchy and components of everything in the game, live: `app.inspector`.

    It needs imgui-bundle (`pip install "gameglue[inspector]"`) and OpenGL, and reports what is missing.

    Attributes:
        key: Key that shows and hides it; "" for none. In a built game it does nothing.
        pause_key: Key that halts the game, while the inspector is shown.
        step_key: Key that runs one frame of a halted game.
        visible: Whether it is shown.
    """

    def __init__(self, key: str = "f2", pause_key: str = "f6", step_key: str = "f7") -> None:
        self.key = key
        self.pause_key = pause_key
        self.step_key = step_key
        self.visible = False
        self._overlay: InspectorOverlay | None = None
        self._hint = ""
        self._hint_until = 0.0

    @property
    def selected(self) -> GameObject | None:
        """The object whose components are shown."""
        return self._overlay.selected if self._overlay is not None else None

    def select(self, app: App, owner: GameObject | None) -> None:
        """Show the inspector with the components of `owner`."""
        self.show(app)
        assert self._overlay is not None
        self._overlay.selected = owner

    def show(self, app: App, visible: bool = True) -> None:
        """Show or hide it, as its key does.

        Raises:
            GameError: There is no imgui-bundle, or no OpenGL.
        """
        if visible and self._overlay is None:
            if app.graphics.ctx is None:
                raise GameError("the inspector draws with OpenGL, and there is none here")
            self._overlay = InspectorOverlay(app)
        self.visible = visible
        if not visible and self._overlay is not None:
            self._overlay.let_go()

    # -- for the host ---------------------------------------------------------------------------

    def take(self, app: App, events: list[InputEvent]) -> list[InputEvent]:
        """Handle the keys and capture the overlay's input; returns the other events."""
        left: list[InputEvent] = []
        for event in events:
            if isinstance(event, KeyEvent) and event.key == self.key and not is_frozen():
                if event.down:
                    self._toggle(app)
                continue
            command = self._command(app, event) if self.visible else None
            if command is not None:
                if isinstance(event, KeyEvent) and event.down:
                    command()
            elif not self.visible or self._overlay is None or not self._overlay.take(event):
                left.append(event)
        return left

    def draw(self, app: App) -> None:
        """Draw the overlay if it is visible."""
        if self.visible and self._overlay is not None:
            try:
                self._overlay.draw(app)
            except Exception:  # noqa: BLE001 - a tool's fault, or the game's own code: the game continues
                _log.exception("the inspector raised and is closed; %s opens a new one", self.key.upper())
                self.dispose()
        elif self._hint and app._player_time < self._hint_until:
            app.gui.text(self._hint, 16, 16, size=14, color=Palette.WARN)
            app.graphics.draw_gui()

    def dispose(self) -> None:
        """Free the GPU objects."""
        if self._overlay is not None:
            self._overlay.dispose()
            self._overlay = None
        self.visible = False

    def _toggle(self, app: App) -> None:
        try:
            self.show(app, not self.visible)
        except EngineError as error:
            if not self._hint:
                _log.warning("%s", error)
            self._hint, self._hint_until = str(error), app._player_time + _HINT_SECONDS

    def _command(self, app: App, event: InputEvent) -> Callable[[], None] | None:
        """What a key does that belongs to the inspector."""
        if not isinstance(event, KeyEvent):
            return None
        if event.key == self.pause_key:
            return lambda: setattr(app, "halted", not app.halted)
        if event.key == self.step_key:
            return app.single_step
        return None
