"""`InputScript`: events at given times, written by hand."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from engine.base.spelling import suggestion
from gameglue.errors import GameError
from gameglue.input.events import (
    LEFT,
    PAD_AXES,
    PAD_BUTTONS,
    GamepadAxis,
    GamepadButton,
    GamepadConnected,
    GamepadDisconnected,
    InputEvent,
    KeyEvent,
    MouseButton,
    MouseMoved,
    QuitRequested,
    TextEvent,
    event_from_dict,
    event_to_dict,
)
from gameglue.input.names import button_number, check_key


class InputScript:
    """Events at given times, written by hand. Methods return the script, so calls can be chained.

    Examples:
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
        """Add events at `at` seconds, after those already there."""
        position = len(self._timeline)
        while position > self._next and self._timeline[position - 1][0] > at:
            position -= 1
        self._timeline[position:position] = [(at, event) for event in events]
        return self

    def press(self, key: str, *, at: float, hold: float = 0.05) -> InputScript:
        """Press a key and release it.

        Args:
            key: Name of the key.
            at: Time in seconds.
            hold: Seconds until it is released.

        Raises:
            GameError: No keyboard has the key.
        """
        check_key(key)
        return self.add(at, KeyEvent(key, True)).add(at + hold, KeyEvent(key, False))

    def type(self, text: str, *, at: float) -> InputScript:
        """Type `text`."""
        return self.add(at, TextEvent(text))

    def move(self, x: float, y: float, *, at: float) -> InputScript:
        """Move the pointer.

        Args:
            x: Pixels from the left.
            y: Pixels from the top.
            at: Time in seconds.
        """
        return self.add(at, MouseMoved(x, y))

    def click(
        self, x: float, y: float, *, at: float, button: int | str = LEFT, hold: float = 0.05
    ) -> InputScript:
        """Press and release a mouse button.

        Args:
            x: Pixels from the left.
            y: Pixels from the top.
            at: Time in seconds.
            button: 0 or "left", 1 or "right", 2 or "middle".
            hold: Seconds until it is released.

        Raises:
            GameError: There is no such button.
        """
        button = button_number(button)
        self.add(at, MouseMoved(x, y), MouseButton(button, True, x, y))
        return self.add(at + hold, MouseButton(button, False, x, y))

    def drag(
        self, points: Sequence[tuple[float, float]], *, at: float, duration: float, button: int | str = LEFT
    ) -> InputScript:
        """Drag with a mouse button at constant speed.

        Args:
            points: Pixels (x, y) to move through.
            at: Time in seconds.
            duration: Seconds from the first to the last point.
            button: 0 or "left", 1 or "right", 2 or "middle".

        Raises:
            GameError: There are fewer than 2 points, or no such button.
        """
        button = button_number(button)
        if len(points) < 2:
            raise GameError(f"a drag needs at least 2 points, got {len(points)}")
        (x0, y0), (x1, y1) = points[0], points[-1]
        self.add(at, MouseMoved(x0, y0), MouseButton(button, True, x0, y0))
        for i, (x, y) in enumerate(points[1:], start=1):
            self.add(at + duration * i / (len(points) - 1), MouseMoved(x, y))
        return self.add(at + duration, MouseButton(button, False, x1, y1))

    def connect_gamepad(self, *, at: float, pad: int = 0, name: str = "scripted gamepad") -> InputScript:
        """Connect a gamepad.

        Args:
            at: Time in seconds.
            pad: Number of the gamepad.
            name: Its name.
        """
        return self.add(at, GamepadConnected(pad, name))

    def disconnect_gamepad(self, *, at: float, pad: int = 0) -> InputScript:
        """Disconnect a gamepad."""
        return self.add(at, GamepadDisconnected(pad))

    def pad_press(self, button: str, *, at: float, pad: int = 0, hold: float = 0.05) -> InputScript:
        """Press a gamepad's button and release it.

        Args:
            button: One of `PAD_BUTTONS`.
            at: Time in seconds.
            pad: Number of the gamepad.
            hold: Seconds until it is released.
        """
        _check_name(button, PAD_BUTTONS, "button")
        self.add(at, GamepadButton(pad, button, True))
        return self.add(at + hold, GamepadButton(pad, button, False))

    def pad_tilt(
        self, axis: str, value: float, *, at: float, pad: int = 0, hold: float | None = None
    ) -> InputScript:
        """Move an axis of a stick, or a trigger.

        Args:
            axis: One of `PAD_AXES`.
            value: Its position, -1 to 1; triggers 0 to 1.
            at: Time in seconds.
            pad: Number of the gamepad.
            hold: Seconds until it is released; `None` leaves it there.
        """
        _check_name(axis, PAD_AXES, "axis")
        self.add(at, GamepadAxis(pad, axis, value))
        return self if hold is None else self.add(at + hold, GamepadAxis(pad, axis, 0.0))

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
        rows = [{"at": at, **event_to_dict(event)} for at, event in self._timeline]
        Path(path).write_text(json.dumps(rows, indent=1), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> InputScript:
        """Read a script.

        Raises:
            GameError: The file holds anything else.
        """
        try:
            rows = json.loads(Path(path).read_text(encoding="utf-8"))
            timeline = []
            for row in rows:
                values = dict(row)
                timeline.append((float(values.pop("at")), event_from_dict(values)))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise GameError(
                f"{path} is not an input script: {error!r}; InputScript.save writes one"
            ) from error
        return cls(timeline)


def _check_name(name: str, known: Sequence[str], what: str) -> None:
    if name not in known:
        raise GameError(
            f"a gamepad has no {what} {name!r}{suggestion(name, known) or ';'} it has: {', '.join(known)}"
        )
