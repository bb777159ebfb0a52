"""Input events: keys, text, pointer, gamepads, window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Protocol, get_args

LEFT = 0
"""The left mouse button."""
RIGHT = 1
"""The right mouse button."""
MIDDLE = 2
"""The middle mouse button."""


@dataclass(frozen=True)
class KeyEvent:
    """A key went down or up.

    Attributes:
        key: Name in lower case: 'a', 'space', 'left', 'return', 'escape', 'f3'.
        down: Whether it went down.
    """

    key: str
    down: bool


@dataclass(frozen=True)
class TextEvent:
    """Characters were typed, as the keyboard layout and input method make them."""

    text: str


@dataclass(frozen=True)
class MouseMoved:
    """The pointer moved.

    Attributes:
        x: Pixels from the left edge of the window.
        y: Pixels from the upper edge.
    """

    x: float
    y: float


@dataclass(frozen=True)
class MouseButton:
    """A mouse button went down or up.

    Attributes:
        button: `LEFT` (0), `RIGHT` (1) or `MIDDLE` (2).
        down: Whether it went down.
        x: Pixels from the left edge of the window.
        y: Pixels from the upper edge.
    """

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
class GamepadConnected:
    """A gamepad was plugged in.

    Attributes:
        pad: Its number from 0, the lowest that was free.
        name: Name of the device.
    """

    pad: int
    name: str


@dataclass(frozen=True)
class GamepadDisconnected:
    """A gamepad was unplugged; held buttons count as released.

    Attributes:
        pad: Its number.
    """

    pad: int


@dataclass(frozen=True)
class GamepadButton:
    """A button of a gamepad went down or up.

    Attributes:
        pad: Number of the gamepad.
        button: Name of the button, one of `PAD_BUTTONS`.
        down: Whether it went down.
    """

    pad: int
    button: str
    down: bool


@dataclass(frozen=True)
class GamepadAxis:
    """A stick or trigger moved.

    Attributes:
        pad: Number of the gamepad.
        axis: Name of the axis, one of `PAD_AXES`.
        value: Sticks from -1 to 1, right and up positive; triggers from 0 to 1.
    """

    pad: int
    axis: str
    value: float


@dataclass(frozen=True)
class Resized:
    """The window has a new size in pixels."""

    width: int
    height: int


@dataclass(frozen=True)
class FocusChanged:
    """The window gained or lost the keyboard focus."""

    focused: bool


@dataclass(frozen=True)
class QuitRequested:
    """The player closed the window, or the script ends the game."""


InputEvent = (
    KeyEvent
    | TextEvent
    | MouseMoved
    | MouseButton
    | MouseScrolled
    | GamepadConnected
    | GamepadDisconnected
    | GamepadButton
    | GamepadAxis
    | Resized
    | FocusChanged
    | QuitRequested
)

_KINDS: dict[str, type[InputEvent]] = {kind.__name__: kind for kind in get_args(InputEvent)}

PAD_BUTTONS = (
    "a", "b", "x", "y", "back", "guide", "start", "left_stick", "right_stick", "left_shoulder",
    "right_shoulder", "dpad_up", "dpad_down", "dpad_left", "dpad_right",
)  # fmt: skip
"""Buttons of a gamepad, named by their places on an Xbox controller: `a` is the lowest of the four."""

PAD_AXES = ("left_x", "left_y", "right_x", "right_y", "left_trigger", "right_trigger")
"""Sticks and triggers of a gamepad."""


class InputSource(Protocol):
    """Protocol of a source of events."""

    def events(self, time: float) -> Sequence[InputEvent]:
        """The events up to `time` (real seconds since the app began) that were not taken before."""
        ...


def event_to_dict(event: InputEvent) -> dict[str, object]:
    """An event as plain values, with its kind, for files."""
    return {"kind": type(event).__name__, **asdict(event)}


def event_from_dict(values: dict[str, object]) -> InputEvent:
    """Inverse of `event_to_dict`. Raises `KeyError` or `TypeError` for other data."""
    fields = dict(values)
    return _KINDS[str(fields.pop("kind"))](**fields)  # type: ignore[arg-type]
