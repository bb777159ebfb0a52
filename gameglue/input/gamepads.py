"""Gamepads through pygame: connected devices and their events.

SDL knows the layout of most gamepads and names their events; the others are taken for Xbox
controllers, as most of what is sold calls itself one.
"""

from __future__ import annotations

import logging
from types import ModuleType
from typing import Any

from gameglue.input.events import (
    GamepadAxis,
    GamepadButton,
    GamepadConnected,
    GamepadDisconnected,
    InputEvent,
)

_log = logging.getLogger("gameglue")

# In SDL's order: SDL_GameControllerButton and SDL_GameControllerAxis.
_BUTTONS = (
    "a", "b", "x", "y", "back", "guide", "start", "left_stick", "right_stick", "left_shoulder",
    "right_shoulder", "dpad_up", "dpad_down", "dpad_left", "dpad_right",
)  # fmt: skip
_AXES = ("left_x", "left_y", "right_x", "right_y", "left_trigger", "right_trigger")

# The order in which Linux and Windows number the buttons and axes of an Xbox controller.
_RAW_BUTTONS = (
    "a", "b", "x", "y", "left_shoulder", "right_shoulder", "back", "start", "guide", "left_stick",
    "right_stick",
)  # fmt: skip
_RAW_AXES = ("left_x", "left_y", "left_trigger", "right_x", "right_y", "right_trigger")
_FULL = 32767.0


class Gamepads:
    """Opens connected gamepads, and converts pygame's events.

    pygame: the module. controllers: its module of gamepads with known layouts, `pygame._sdl2.controller`.
    """

    def __init__(self, pygame: ModuleType, controllers: Any) -> None:
        self._pygame = pygame
        self._controllers = controllers
        self._pads: dict[int, int] = {}
        self._opened: dict[int, Any] = {}
        self._raw: set[int] = set()
        self._hats: dict[int, tuple[int, int]] = {}

    def take(self, event: Any) -> list[InputEvent]:
        """Convert one pygame event; returns nothing if it is not about gamepads."""
        pygame, kind = self._pygame, event.type
        if kind == pygame.JOYDEVICEADDED:
            return self._open(event.device_index)
        if kind == pygame.JOYDEVICEREMOVED:
            return self._close(event.instance_id)
        pad = self._pads.get(getattr(event, "instance_id", -1))
        if pad is None:
            return []
        is_raw = event.instance_id in self._raw
        if kind in (pygame.CONTROLLERBUTTONDOWN, pygame.CONTROLLERBUTTONUP):
            return _button(pad, _BUTTONS, event.button, kind == pygame.CONTROLLERBUTTONDOWN)
        if kind == pygame.CONTROLLERAXISMOTION:
            return _axis(pad, _AXES, event.axis, event.value / _FULL, rests_at=0.0)
        if is_raw and kind in (pygame.JOYBUTTONDOWN, pygame.JOYBUTTONUP):
            return _button(pad, _RAW_BUTTONS, event.button, kind == pygame.JOYBUTTONDOWN)
        if is_raw and kind == pygame.JOYAXISMOTION:
            return _axis(pad, _RAW_AXES, event.axis, event.value, rests_at=-1.0)
        if is_raw and kind == pygame.JOYHATMOTION and event.hat == 0:
            return self._hat(pad, tuple(event.value))
        return []

    def _open(self, index: int) -> list[InputEvent]:
        pygame = self._pygame
        try:
            stick = pygame.joystick.Joystick(index)
            number = stick.get_instance_id()
            if number in self._pads:
                return []
            known = bool(self._controllers.is_controller(index))
            # Events come as long as somebody holds these.
            self._opened[number] = (stick, self._controllers.Controller(index) if known else None)
        except pygame.error as error:
            _log.warning("a gamepad was plugged in that cannot be opened: %s", error)
            return []
        pad = next(n for n in range(len(self._pads) + 1) if n not in self._pads.values())
        self._pads[number] = pad
        if not known:
            self._raw.add(number)
        return [GamepadConnected(pad, stick.get_name())]

    def _close(self, number: int) -> list[InputEvent]:
        pad = self._pads.pop(number, None)
        self._opened.pop(number, None)
        self._raw.discard(number)
        if pad is None:
            return []
        self._hats.pop(pad, None)
        return [GamepadDisconnected(pad)]

    def _hat(self, pad: int, now: tuple[int, int]) -> list[InputEvent]:
        before = self._hats.get(pad, (0, 0))
        self._hats[pad] = now
        events: list[InputEvent] = []
        for axis, (low, high) in enumerate((("dpad_left", "dpad_right"), ("dpad_down", "dpad_up"))):
            for name, side in ((low, -1), (high, 1)):
                if (before[axis] == side) != (now[axis] == side):
                    events.append(GamepadButton(pad, name, now[axis] == side))
        return events


def _button(pad: int, names: tuple[str, ...], number: int, down: bool) -> list[InputEvent]:
    return [GamepadButton(pad, names[number], down)] if 0 <= number < len(names) else []


def _axis(pad: int, names: tuple[str, ...], number: int, value: float, rests_at: float) -> list[InputEvent]:
    """One axis; triggers rest at `rests_at`, and y axes point down in SDL."""
    if not 0 <= number < len(names):
        return []
    name = names[number]
    if name.endswith("trigger"):
        value = (value - rests_at) / (1.0 - rests_at)
    elif name.endswith("_y"):
        value = -value
    return [GamepadAxis(pad, name, max(-1.0, min(1.0, value)))]


def open_gamepads(pygame: ModuleType) -> Gamepads | None:
    """Start pygame's gamepad events, also for connected gamepads; `None` if unavailable."""
    try:
        pygame.joystick.init()
        # It exists in pygame-ce only, and its C code links nothing that is not there already.
        from pygame._sdl2 import controller

        controller.init()
    except (ImportError, pygame.error) as error:
        _log.warning("no gamepads: %s", error)
        return None
    return Gamepads(pygame, controller)
