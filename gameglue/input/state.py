"""`InputState`: what components see as `self.input`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NoReturn, TypeVar

from engine.base.spelling import answers_spelling, suggestion
from gameglue.errors import GameError
from gameglue.input.actions import InputActions, index_of
from gameglue.input.bindings import MOUSE_BUTTONS, Binding, Control, Pair, controls_of
from gameglue.input.events import (
    LEFT,
    PAD_AXES,
    PAD_BUTTONS,
    GamepadAxis,
    GamepadButton,
    GamepadConnected,
    GamepadDisconnected,
    InputEvent,
    InputSource,
    KeyEvent,
    MouseButton,
    MouseMoved,
    MouseScrolled,
    TextEvent,
)
from gameglue.input.names import button_number, check_key
from gameglue.input.recording import InputRecording, InputReplay

T = TypeVar("T")

PRESS_POINT = 0.5
"""How far a stick or trigger has to move for the actions that it is bound to."""

_MOUSE_NAMES = {number: name for name, number in MOUSE_BUTTONS.items()}


@answers_spelling
class InputState:
    """Mouse, keyboard, gamepads and named actions in this frame.

    Positions are in pixels from the top left corner of the window. `..._down` and `..._up` are true in the
    one frame in which it happened, also when a key went down and up between two frames.

    Attributes:
        sources: Where events come from: the window, and an `InputScript`.
        mouse_position: Position of the pointer (x, y) in pixels.
        mouse_delta: How far the pointer moved since the last frame (x, y), in pixels.
        mouse_scroll: How far the wheel turned in this frame (x, y), in notches; up and right are positive.
        text: Characters typed in this frame.
        events: All events of this frame, oldest first.
    """

    def __init__(self) -> None:
        self.sources: list[InputSource] = []
        self.filter: Callable[[list[InputEvent]], list[InputEvent]] | None = None
        """Takes the events that are not meant for the game out: an overlay that has the mouse."""
        self.actions = InputActions()
        """What actions and axes there are; may be changed at any time."""
        self.recording: InputRecording | None = None
        """What every frame is added to; `app.record_input()` begins one."""
        self.replay: InputReplay | None = None
        """What is played in the place of all sources."""
        self.mouse_position: tuple[float, float] = (0.0, 0.0)
        self.mouse_delta: tuple[float, float] = (0.0, 0.0)
        self.mouse_scroll: tuple[float, float] = (0.0, 0.0)
        self.mouse_path: list[tuple[float, float]] = []
        """Every pointer position of this frame, oldest first: a fast stroke has several."""
        self.text = ""
        self.events: list[InputEvent] = []
        self.gamepads: dict[int, str] = {}
        """The names of the gamepads that are connected, by their numbers."""
        self.pressed: list[str] = []
        """What went down in this frame, as bindings are written: for a menu that asks for a new key."""
        self._seen: set[str] = set()
        self._keys: set[str] = set()
        self._keys_down: set[str] = set()
        self._keys_up: set[str] = set()
        self._buttons: set[int] = set()
        self._buttons_down: set[int] = set()
        self._buttons_up: set[int] = set()
        self._pad_buttons: set[tuple[int, str]] = set()
        self._pad_buttons_down: set[tuple[int, str]] = set()
        self._pad_buttons_up: set[tuple[int, str]] = set()
        self._pad_axes: dict[tuple[int, str], float] = {}
        self._held: set[str] = set()
        self._actions_down: set[str] = set()
        self._actions_up: set[str] = set()
        self._index: dict[tuple[str, str], list[str]] = {}
        self._revision = -1

    # -- for the host ---------------------------------------------------------------------------

    def begin_frame(self, time: float, delta: float = 0.0, *, records: bool = True) -> None:
        """Take this frame's events from all sources; called by the host.

        time, delta: real seconds since the app began, and since the last frame. records: whether the frame
        goes into the recording; those in which the game stands still do not.
        """
        events = [event for source in self.sources for event in source.events(time)]
        if self.filter is not None:
            events = self.filter(events)
        self.events = events if self.replay is None else self.replay.take(events)
        self.text = ""
        self.mouse_scroll = (0.0, 0.0)
        self.mouse_path = []
        self.pressed = []
        for changed in (
            self._keys_down,
            self._keys_up,
            self._buttons_down,
            self._buttons_up,
            self._pad_buttons_down,
            self._pad_buttons_up,
            self._actions_down,
            self._actions_up,
        ):
            changed.clear()
        if self._revision != self.actions.revision:
            self._follow_bindings()
        before = self.mouse_position
        for event in self.events:
            self._take(event)
        x, y = self.mouse_position
        self.mouse_delta = (x - before[0], y - before[1])
        if self.recording is not None and records:
            self.recording.add_frame(delta, self.events)

    def _take(self, event: InputEvent) -> None:
        match event:
            case KeyEvent(key, down):
                self._seen.add(key)
                _change(down, key, self._keys, self._keys_down, self._keys_up)
                self._changed("key", key, down)
            case MouseMoved(x, y):
                self._move_to(x, y)
            case MouseButton(button, down, x, y):
                self._move_to(x, y)
                _change(down, button, self._buttons, self._buttons_down, self._buttons_up)
                self._changed("mouse", _MOUSE_NAMES.get(button, ""), down)
            case MouseScrolled(dx, dy):
                self.mouse_scroll = (self.mouse_scroll[0] + dx, self.mouse_scroll[1] + dy)
            case TextEvent(text):
                self.text += text
            case GamepadConnected(pad, name):
                self.gamepads[pad] = name
            case GamepadDisconnected(pad):
                self._let_go_of(pad)
            case GamepadButton(pad, name, down):
                button_sets = self._pad_buttons, self._pad_buttons_down, self._pad_buttons_up
                _change(down, (pad, name), *button_sets)
                self._changed("pad button", name, down)
            case GamepadAxis(pad, name, value):
                before = self._pad_axes.get((pad, name), 0.0)
                self._pad_axes[pad, name] = value
                crossed = abs(before) <= PRESS_POINT < abs(value)
                half = "" if name.endswith("trigger") else "+" if value > 0 else "-"
                self._changed("pad axis", name, crossed, half)

    def _move_to(self, x: float, y: float) -> None:
        self.mouse_position = (x, y)
        if not self.mouse_path or self.mouse_path[-1] != (x, y):
            self.mouse_path.append((x, y))

    def _let_go_of(self, pad: int) -> None:
        self.gamepads.pop(pad, None)
        for owner, button in sorted(self._pad_buttons):
            if owner == pad:
                self._take(GamepadButton(pad, button, False))
        for owner, axis in tuple(self._pad_axes):
            if owner == pad:
                del self._pad_axes[owner, axis]
                self._changed("pad axis", axis, False)

    def _changed(self, kind: str, name: str, down: bool, half: str = "") -> None:
        """Record a change of a control's state, and update the actions that are bound to it."""
        if down and name:
            prefix = {"key": "", "mouse": "mouse "}.get(kind, "pad ")
            self.pressed.append(f"{prefix}{name}{half}")
        for action in self._index.get((kind, name), ()):
            self._follow(action)

    def _follow(self, action: str) -> None:
        held = any(self._is_held(binding) for binding in self.actions.of_action(action))
        if held != (action in self._held):
            _change(held, action, self._held, self._actions_down, self._actions_up)

    def _follow_bindings(self) -> None:
        """Update the held actions after bindings have changed; none of them counts as newly pressed."""
        self._revision = self.actions.revision
        self._index = index_of(self.actions)
        self._held &= set(self.actions.actions)
        for action in self.actions.actions:
            self._follow(action)
        # What a player presses to choose it in a menu is held from then on, but does not begin the action.
        self._actions_down.clear()

    # -- keys and mouse -------------------------------------------------------------------------

    def get_key(self, key: str) -> bool:
        """True while the key is held."""
        return key in self._keys or self._no_key(key)

    def get_key_down(self, key: str) -> bool:
        """True in the frame in which the key went down."""
        return key in self._keys_down or self._no_key(key)

    def get_key_up(self, key: str) -> bool:
        """True in the frame in which the key went up."""
        return key in self._keys_up or self._no_key(key)

    def get_mouse_button(self, button: int | str = LEFT) -> bool:
        """True while the button is held: 0 or "left", 1 "right", 2 "middle", 3 "back", 4 "forward"."""
        return button_number(button) in self._buttons

    def get_mouse_button_down(self, button: int | str = LEFT) -> bool:
        """True in the frame in which the button went down."""
        return button_number(button) in self._buttons_down

    def get_mouse_button_up(self, button: int | str = LEFT) -> bool:
        """True in the frame in which the button went up."""
        return button_number(button) in self._buttons_up

    def _no_key(self, key: str) -> bool:
        """False for a key that is not held. Raises `GameError` for what no keyboard has."""
        if key not in self._seen:
            check_key(key)
        return False

    # -- gamepads -------------------------------------------------------------------------------

    def get_pad_button(self, button: str, pad: int | None = None) -> bool:
        """True while the button (`PAD_BUTTONS`) is held, on gamepad `pad` or on any."""
        return _has(self._pad_buttons, button, pad)

    def get_pad_button_down(self, button: str, pad: int | None = None) -> bool:
        """True in the frame in which the button went down."""
        return _has(self._pad_buttons_down, button, pad)

    def get_pad_button_up(self, button: str, pad: int | None = None) -> bool:
        """True in the frame in which the button went up."""
        return _has(self._pad_buttons_up, button, pad)

    def get_pad_axis(self, axis: str, pad: int | None = None) -> float:
        """The position of a stick's axis or trigger (`PAD_AXES`), outside `actions.dead_zone`.

        -1 to 1, right and up positive, or 0 to 1; without `pad`, of the gamepad where it is farthest out.
        """
        if axis not in PAD_AXES:
            _raise_unknown("gamepad has no axis", axis, PAD_AXES)
        values = [v for (owner, name), v in self._pad_axes.items() if name == axis and pad in (None, owner)]
        value = max(values, key=abs, default=0.0)
        zone = self.actions.dead_zone
        past = (abs(value) - zone) / (1.0 - zone)
        return math.copysign(min(past, 1.0), value) if past > 0.0 else 0.0

    # -- actions and axes -----------------------------------------------------------------------

    def get_action(self, name: str) -> bool:
        """True while something that the action is bound to is held.

        Raises:
            GameError: There is no such action.
        """
        self.actions.of_action(name)
        return name in self._held

    def get_action_down(self, name: str) -> bool:
        """True in the frame in which the action began."""
        self.actions.of_action(name)
        return name in self._actions_down

    def get_action_up(self, name: str) -> bool:
        """True in the frame in which the action ended."""
        self.actions.of_action(name)
        return name in self._actions_up

    def get_axis(self, name: str, positive: str | None = None) -> float:
        """An axis by name, from -1 to 1: `get_axis("horizontal")`. With two names: two keys.

        What is bound to it and farthest out counts. Bound to `mouse x`, `y` or `wheel` it may go further.
        `get_axis("left", "right")` is -1, 0 or 1 from these two keys.

        Raises:
            GameError: There is no such axis.
        """
        if positive is not None:
            if name in self.actions.axes and positive in self.actions.axes:
                raise GameError(
                    f"get_axis takes one axis, or two keys: get_axis({name!r}) and get_axis({positive!r})"
                )
            return float(self.get_key(positive)) - float(self.get_key(name))
        values = [self._axis_value(binding) for binding in self.actions.of_axis(name)]
        return max(values, key=abs, default=0.0)

    def _axis_value(self, binding: Binding) -> float:
        if isinstance(binding, Pair):
            # An inverted or half-counted control pulls with what it gives, never the other way.
            return max(self._value(binding.positive), 0.0) - max(self._value(binding.negative), 0.0)
        return self._value(binding)

    def _is_held(self, binding: Binding) -> bool:
        return any(self._value(control) > PRESS_POINT for control in controls_of(binding))

    def _value(self, control: Control) -> float:
        """The state of a control as a number."""
        match control.kind:
            case "key":
                return float(control.name in self._keys)
            case "mouse":
                return float(MOUSE_BUTTONS[control.name] in self._buttons)
            case "motion":
                dx, dy = self.mouse_delta
                motion = {"x": dx, "y": -dy, "wheel": self.mouse_scroll[1]}
                return control.sign * motion[control.name]
            case "pad button":
                return float(_has(self._pad_buttons, control.name, control.pad))
            case "pad axis":
                value = self.get_pad_axis(control.name, control.pad)
                return control.sign * (max(control.half * value, 0.0) if control.half else value)


def _change(down: bool, what: T, held: set[T], downs: set[T], ups: set[T]) -> None:
    (held.add if down else held.discard)(what)
    (downs if down else ups).add(what)


def _has(buttons: set[tuple[int, str]], button: str, pad: int | None) -> bool:
    if button not in PAD_BUTTONS:
        _raise_unknown("gamepad has no button", button, PAD_BUTTONS)
    if pad is not None:
        return (pad, button) in buttons
    return any(name == button for _, name in buttons)


def _raise_unknown(what: str, name: str, known: Iterable[str]) -> NoReturn:
    raise GameError(f"a {what} {name!r}{suggestion(name, known) or ';'} it has: {', '.join(known)}")
