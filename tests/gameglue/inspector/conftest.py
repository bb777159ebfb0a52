"""An inspector whose widgets tests can find: by the text that imgui knows them by."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gameglue import App, InputScript
from gameglue.inspector import overlay

MakeApp = Callable[..., App]


class Reloadable:
    """imgui, and where each of its widgets was in the last frame: label -> left, top, right, bottom."""

    def __init__(self, imgui: Any) -> None:
        self._imgui = imgui
        self.places: dict[str, list[tuple[float, float, float, float]]] = {}

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._imgui, name)
        if name == "new_frame":
            self.places.clear()
        if not name.islower() or name.startswith(("push", "pop", "begin", "end", "set", "get", "calc")):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            result = found(*arguments, **named)
            if arguments and isinstance(arguments[0], str):
                low, high = self._imgui.get_item_rect_min(), self._imgui.get_item_rect_max()
                self.places.setdefault(arguments[0], []).append((low.x, low.y, high.x, high.y))
            return result

        return call


class Hand:
    """A mouse and a keyboard for an app, frame by frame."""

    def __init__(self, app: App, script: InputScript, imgui: Reloadable) -> None:
        self.app = app
        self.imgui = imgui
        self._script = script

    def frames(self, count: int = 2) -> None:
        for _ in range(count):
            self.app.step(0.02)

    def place(self, label: str, which: int = 0, along: float = 0.5) -> tuple[float, float]:
        left, top, right, bottom = self.imgui.places[label][which]
        return left + along * (right - left), (top + bottom) / 2

    def click_at(self, x: float, y: float) -> None:
        now = self.app._player_time
        self._script.move(x, y, at=now + 0.01).click(x, y, at=now + 0.05, hold=0.04)
        self.frames(7)

    def click(self, label: str, which: int = 0, along: float = 0.5) -> None:
        self.click_at(*self.place(label, which, along))

    def double_click(self, label: str) -> None:
        x, y = self.place(label)
        now = self.app._player_time
        self._script.move(x, y, at=now + 0.01)
        self._script.click(x, y, at=now + 0.05, hold=0.02).click(x, y, at=now + 0.11, hold=0.02)
        self.frames(10)

    def drag(self, label: str, by: float, along: float = 0.5) -> None:
        x, y = self.place(label, 0, along)
        now = self.app._player_time
        self._script.move(x, y, at=now + 0.01)
        self._script.drag([(x, y), (x + by / 2, y), (x + by, y)], at=now + 0.05, duration=0.1)
        self.frames(12)

    def type(self, text: str) -> None:
        """Type into what has the keyboard, in the place of all that is there."""
        now = self.app._player_time
        self._script.press("left ctrl", at=now + 0.01, hold=0.06).press("a", at=now + 0.03, hold=0.02)
        self._script.type(text, at=now + 0.12).press("return", at=now + 0.16, hold=0.02)
        self.frames(14)

    def press(self, key: str) -> None:
        self._script.press(key, at=self.app._player_time + 0.01, hold=0.02)
        self.frames(4)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Reloadable:
    pytest.importorskip("imgui_bundle")
    watched = Reloadable(overlay.import_imgui())
    monkeypatch.setattr(overlay, "import_imgui", lambda: watched)
    return watched


@pytest.fixture
def hand(make_drawing_app: MakeApp, watched: Reloadable) -> Iterator[Hand]:
    """The hand over an empty game of 640 x 480 with the inspector shown."""
    script = InputScript()
    app = make_drawing_app(size=(640, 540), input_source=script)
    app.inspector.show(app)
    hand = Hand(app, script, watched)
    hand.frames()
    yield hand
    assert app.errors == []
