"""Input from a window, gamepads, a script or a recording.

Sources yield events; `InputState` turns one frame's events into the state of keys, mouse, gamepads and named
actions. A scripted game and a played one therefore run through the same code, and a headless run can draw
with a mouse it does not have.
"""

from gameglue.input.actions import InputActions
from gameglue.input.events import (
    LEFT,
    MIDDLE,
    PAD_AXES,
    PAD_BUTTONS,
    RIGHT,
    FocusChanged,
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
    QuitRequested,
    Resized,
    TextEvent,
)
from gameglue.input.recording import InputRecording, InputReplay
from gameglue.input.script import InputScript
from gameglue.input.state import InputState

__all__ = [
    "LEFT",
    "MIDDLE",
    "PAD_AXES",
    "PAD_BUTTONS",
    "RIGHT",
    "FocusChanged",
    "GamepadAxis",
    "GamepadButton",
    "GamepadConnected",
    "GamepadDisconnected",
    "InputActions",
    "InputEvent",
    "InputRecording",
    "InputReplay",
    "InputScript",
    "InputSource",
    "InputState",
    "KeyEvent",
    "MouseButton",
    "MouseMoved",
    "MouseScrolled",
    "QuitRequested",
    "Resized",
    "TextEvent",
]
