"""Mouse and keyboard, from a window, from a script, or from a recording.

Sources yield events; `InputState` turns one frame's events into what components ask for. A scripted game and
a played one therefore run through the same code, and a headless run can draw with a mouse it does not have.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from gameglue.errors import GameError

LEFT, RIGHT, MIDDLE = 0, 1, 2


@dataclass(frozen=True)
class KeyEvent:
    """A key went down or up. Names are lower case: 'a', 'space', 'left', 'return', 'escape', 'f3'."""

    key: str
    down: bool


@dataclass(frozen=True)
class TextEvent:
    """Characters were typed, as the keyboard layout and input method make them."""

    text: str


@dataclass(frozen=True)
class MouseMoved:
    """The pointer is at `x`, `y` in pixels from the window's top left corner."""

    x: float
    y: float


@dataclass(frozen=True)
class MouseButton:
    """A button (0 left, 1 right, 2 middle) went down or up at `x`, `y`."""

    button: int
    down: bool
    x: float
    y: float


@dataclass(frozen=True)
class MouseScrolled:
    """The wheel turned by `dx`, `dy` notches; up and right are positive."""

    dx: float
    dy: float


@dataclass(frozen=True)
class Resized:
    """The window has a new size in pixels."""

    width: int
    height: int


@dataclass(frozen=True)
class QuitRequested:
    """The player closed the window, or the script ends the game."""


InputEvent = KeyEvent | TextEvent | MouseMoved | MouseButton | MouseScrolled | Resized | QuitRequested

_KINDS: dict[str, type[InputEvent]] = {
    kind.__name__: kind
    for kind in (KeyEvent, TextEvent, MouseMoved, MouseButton, MouseScrolled, Resized, QuitRequested)
}


class InputSource(Protocol):
    """Where events come from."""

    def events(self, time: float) -> Sequence[InputEvent]:
        """The events up to `time` (real seconds since the app began) that were not taken before."""
        ...


class InputScript:
    """Events at given times, written by hand or recorded. Methods return the script, so calls can be chained.

    >>> script = InputScript().click(100, 80, at=0.5).press("space", at=1.0)
    >>> [type(event).__name__ for event in script.events(0.6)]
    ['MouseMoved', 'MouseButton', 'MouseButton']
    """

    def __init__(self, timeline: Iterable[tuple[float, InputEvent]] = ()) -> None:
        self._timeline: list[tuple[float, InputEvent]] = sorted(timeline, key=lambda entry: entry[0])
        self._next = 0

    @property
    def timeline(self) -> tuple[tuple[float, InputEvent], ...]:
        """All events with their times in seconds."""
        return tuple(self._timeline)

    @property
    def duration(self) -> float:
        """The time of the last event."""
        return self._timeline[-1][0] if self._timeline else 0.0

    def add(self, at: float, *events: InputEvent) -> InputScript:
        """Put events at `at` seconds, after whatever is there already."""
        position = len(self._timeline)
        while position > self._next and self._timeline[position - 1][0] > at:
            position -= 1
        self._timeline[position:position] = [(at, event) for event in events]
        return self

    def press(self, key: str, *, at: float, hold: float = 0.05) -> InputScript:
        """Press a key and release it `hold` seconds later."""
        return self.add(at, KeyEvent(key, True)).add(at + hold, KeyEvent(key, False))

    def click(self, x: float, y: float, *, at: float, button: int = LEFT, hold: float = 0.05) -> InputScript:
        """Press and release a mouse button."""
        self.add(at, MouseMoved(x, y), MouseButton(button, True, x, y))
        return self.add(at + hold, MouseButton(button, False, x, y))

    def drag(
        self, points: Sequence[tuple[float, float]], *, at: float, duration: float, button: int = LEFT
    ) -> InputScript:
        """Hold a button and move through `points` at even speed, within `duration` seconds."""
        if len(points) < 2:
            raise GameError(f"a drag needs at least 2 points, got {len(points)}")
        (x0, y0), (x1, y1) = points[0], points[-1]
        self.add(at, MouseMoved(x0, y0), MouseButton(button, True, x0, y0))
        for i, (x, y) in enumerate(points[1:], start=1):
            self.add(at + duration * i / (len(points) - 1), MouseMoved(x, y))
        return self.add(at + duration, MouseButton(button, False, x1, y1))

    def quit(self, *, at: float) -> InputScript:
        """End the game."""
        return self.add(at, QuitRequested())

    def events(self, time: float) -> Sequence[InputEvent]:
        """The events up to `time` that were not taken before."""
        first = self._next
        while self._next < len(self._timeline) and self._timeline[self._next][0] <= time + 1e-9:
            self._next += 1
        return [event for _, event in self._timeline[first : self._next]]

    def rewind(self) -> None:
        """Play again from the start."""
        self._next = 0

    def save(self, path: str | Path) -> None:
        """Write the script as JSON."""
        rows = [{"at": at, "kind": type(event).__name__, **asdict(event)} for at, event in self._timeline]
        Path(path).write_text(json.dumps(rows, indent=1), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> InputScript:
        """Read what `save` wrote. Raises `GameError` for anything else."""
        try:
            rows = json.loads(Path(path).read_text(encoding="utf-8"))
            timeline = []
            for row in rows:
                values = dict(row)
                at, kind = float(values.pop("at")), _KINDS[values.pop("kind")]
                timeline.append((at, kind(**values)))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise GameError(
                f"{path} is not an input script: {error!r}; InputScript.save writes one"
            ) from error
        return cls(timeline)


class InputState:
    """What components see as `self.input`: the state of mouse and keyboard in this frame.

    Positions are in pixels from the top left corner of the window. `..._down` and `..._up` are true in the
    one frame in which it happened, also when a key went down and up between two frames.
    """

    def __init__(self) -> None:
        self.sources: list[InputSource] = []
        self.recording: InputScript | None = None
        self.mouse_position: tuple[float, float] = (0.0, 0.0)
        self.mouse_delta: tuple[float, float] = (0.0, 0.0)
        self.mouse_scroll: tuple[float, float] = (0.0, 0.0)
        self.mouse_path: list[tuple[float, float]] = []
        """Every pointer position of this frame, oldest first: a fast stroke has several."""
        self.text = ""
        self.events: list[InputEvent] = []
        self._keys: set[str] = set()
        self._keys_down: set[str] = set()
        self._keys_up: set[str] = set()
        self._buttons: set[int] = set()
        self._buttons_down: set[int] = set()
        self._buttons_up: set[int] = set()

    def begin_frame(self, time: float) -> None:
        """Take this frame's events from all sources; called by the host."""
        self.events = [event for source in self.sources for event in source.events(time)]
        self.text = ""
        self.mouse_scroll = (0.0, 0.0)
        self.mouse_path = []
        for changed in (self._keys_down, self._keys_up, self._buttons_down, self._buttons_up):
            changed.clear()
        before = self.mouse_position
        for event in self.events:
            self._take(event)
        x, y = self.mouse_position
        self.mouse_delta = (x - before[0], y - before[1])
        if self.recording is not None:
            self.recording.add(time, *self.events)

    def _take(self, event: InputEvent) -> None:
        match event:
            case KeyEvent(key, True):
                self._keys.add(key)
                self._keys_down.add(key)
            case KeyEvent(key, False):
                self._keys.discard(key)
                self._keys_up.add(key)
            case MouseMoved(x, y):
                self._move_to(x, y)
            case MouseButton(button, down, x, y):
                self._move_to(x, y)
                (self._buttons.add if down else self._buttons.discard)(button)
                (self._buttons_down if down else self._buttons_up).add(button)
            case MouseScrolled(dx, dy):
                self.mouse_scroll = (self.mouse_scroll[0] + dx, self.mouse_scroll[1] + dy)
            case TextEvent(text):
                self.text += text

    def _move_to(self, x: float, y: float) -> None:
        self.mouse_position = (x, y)
        if not self.mouse_path or self.mouse_path[-1] != (x, y):
            self.mouse_path.append((x, y))

    def get_key(self, key: str) -> bool:
        """True while the key is held."""
        return key in self._keys

    def get_key_down(self, key: str) -> bool:
        """True in the frame in which the key went down."""
        return key in self._keys_down

    def get_key_up(self, key: str) -> bool:
        """True in the frame in which the key went up."""
        return key in self._keys_up

    def get_mouse_button(self, button: int = LEFT) -> bool:
        """True while the button (0 left, 1 right, 2 middle) is held."""
        return button in self._buttons

    def get_mouse_button_down(self, button: int = LEFT) -> bool:
        """True in the frame in which the button went down."""
        return button in self._buttons_down

    def get_mouse_button_up(self, button: int = LEFT) -> bool:
        """True in the frame in which the button went up."""
        return button in self._buttons_up

    def get_axis(self, negative: str, positive: str) -> float:
        """-1, 0 or 1 from two keys: `get_axis("left", "right")`."""
        return float(positive in self._keys) - float(negative in self._keys)
