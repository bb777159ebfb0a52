"""Gamepads: pygame's events, with and without a layout that SDL knows, become ours; they come and go."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pygame
import pytest

from gameglue.input import (
    PAD_AXES,
    PAD_BUTTONS,
    GamepadAxis,
    GamepadButton,
    GamepadConnected,
    GamepadDisconnected,
)
from gameglue.input.gamepads import _AXES, _BUTTONS, Gamepads


class Stick:
    """A joystick as pygame would open it: device 0 has instance 10, device 1 instance 11, and so on."""

    def __init__(self, index: int) -> None:
        if index > 5:
            raise pygame.error("no such device")
        self._number = 10 + index

    def get_instance_id(self) -> int:
        return self._number

    def get_name(self) -> str:
        return f"stick {self._number}"


@pytest.fixture
def pads() -> Gamepads:
    """Gamepads over a pygame without hardware; devices 0 and 1 have a layout that SDL knows."""
    module: Any = SimpleNamespace(
        **{name: getattr(pygame, name) for name in dir(pygame) if name.startswith(("JOY", "CONTROLLER"))},
        error=pygame.error,
        joystick=SimpleNamespace(Joystick=Stick),
    )
    controllers = SimpleNamespace(is_controller=lambda index: index < 2, Controller=lambda index: object())
    return Gamepads(module, controllers)


def event(kind: int, **values: Any) -> pygame.event.Event:
    return pygame.event.Event(kind, **values)


def plug_in(pads: Gamepads, device: int) -> list[object]:
    return list(pads.take(event(pygame.JOYDEVICEADDED, device_index=device)))


def test_numbers_are_given_anew_when_gamepads_come_and_go(pads: Gamepads) -> None:
    assert plug_in(pads, 0) == [GamepadConnected(0, "stick 10")]
    assert plug_in(pads, 1) == [GamepadConnected(1, "stick 11")]
    assert plug_in(pads, 1) == []
    assert pads.take(event(pygame.JOYDEVICEREMOVED, instance_id=10)) == [GamepadDisconnected(0)]
    assert pads.take(event(pygame.JOYDEVICEREMOVED, instance_id=10)) == []
    assert plug_in(pads, 2) == [GamepadConnected(0, "stick 12")]
    assert plug_in(pads, 9) == []


def test_a_known_layout_tells_its_buttons_by_name(pads: Gamepads) -> None:
    plug_in(pads, 0)
    take, pad = pads.take, {"instance_id": 10}
    assert take(event(pygame.CONTROLLERBUTTONDOWN, button=pygame.CONTROLLER_BUTTON_X, **pad)) == [
        GamepadButton(0, "x", True)
    ]
    assert take(event(pygame.CONTROLLERBUTTONUP, button=pygame.CONTROLLER_BUTTON_DPAD_LEFT, **pad)) == [
        GamepadButton(0, "dpad_left", False)
    ]
    # SDL's y axes point down.
    up = event(pygame.CONTROLLERAXISMOTION, axis=pygame.CONTROLLER_AXIS_LEFTY, value=-32768, **pad)
    assert take(up) == [GamepadAxis(0, "left_y", 1.0)]
    pulled = event(pygame.CONTROLLERAXISMOTION, axis=pygame.CONTROLLER_AXIS_TRIGGERRIGHT, value=32767, **pad)
    assert take(pulled) == [GamepadAxis(0, "right_trigger", 1.0)]
    # The same movement comes as a joystick's, too.
    assert take(event(pygame.JOYBUTTONDOWN, button=2, **pad)) == []
    assert take(event(pygame.JOYAXISMOTION, axis=0, value=0.5, **pad)) == []


def test_the_order_of_names_is_sdls() -> None:
    for name in PAD_BUTTONS:
        constant = {"left_stick": "LEFTSTICK", "right_stick": "RIGHTSTICK"}.get(name, name.upper())
        constant = constant.replace("LEFT_SHOULDER", "LEFTSHOULDER").replace(
            "RIGHT_SHOULDER", "RIGHTSHOULDER"
        )
        assert _BUTTONS[getattr(pygame, f"CONTROLLER_BUTTON_{constant}")] == name
    for name in PAD_AXES:
        side, part = name.split("_")
        constant = f"TRIGGER{side.upper()}" if part == "trigger" else f"{side.upper()}{part.upper()}"
        assert _AXES[getattr(pygame, f"CONTROLLER_AXIS_{constant}")] == name


def test_another_stick_is_taken_for_an_xbox_controller(pads: Gamepads) -> None:
    plug_in(pads, 3)
    take, pad = pads.take, {"instance_id": 13}
    assert take(event(pygame.JOYBUTTONDOWN, button=0, **pad)) == [GamepadButton(0, "a", True)]
    assert take(event(pygame.JOYBUTTONDOWN, button=40, **pad)) == []
    assert take(event(pygame.JOYAXISMOTION, axis=1, value=0.5, **pad)) == [GamepadAxis(0, "left_y", -0.5)]
    # Triggers rest at -1 there.
    assert take(event(pygame.JOYAXISMOTION, axis=2, value=-1.0, **pad)) == [
        GamepadAxis(0, "left_trigger", 0.0)
    ]
    assert take(event(pygame.JOYAXISMOTION, axis=5, value=1.0, **pad)) == [
        GamepadAxis(0, "right_trigger", 1.0)
    ]
    assert take(event(pygame.JOYHATMOTION, hat=0, value=(1, 0), **pad)) == [
        GamepadButton(0, "dpad_right", True)
    ]
    assert take(event(pygame.JOYHATMOTION, hat=0, value=(-1, 1), **pad)) == [
        GamepadButton(0, "dpad_left", True),
        GamepadButton(0, "dpad_right", False),
        GamepadButton(0, "dpad_up", True),
    ]


def test_what_nobody_plugged_in_is_ignored(pads: Gamepads) -> None:
    assert pads.take(event(pygame.JOYBUTTONDOWN, button=0, instance_id=99)) == []
    assert pads.take(event(pygame.USEREVENT)) == []
