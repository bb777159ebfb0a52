"""Bindings of actions and axes as text: `"space"`, `"mouse left"`, `"pad left_x"`, `"a/d"`.

"space"             a key
"mouse left"        a mouse button: left, right, middle, back, forward, or 0 to 4
"mouse wheel"       how far wheel or pointer moved in this frame: wheel (notches), x, y (pixels, y up)
"pad a"             a button of any gamepad (`PAD_BUTTONS`); "pad2 a" of the second one only
"pad left_x"        a stick's axis or a trigger (`PAD_AXES`); "pad left_x-" its left half as 0 to 1
"-pad right_y"      the same with its sign reversed
"a/d"               an axis of two: what pulls it to -1, and what pulls it to 1
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from engine.base.spelling import suggestion
from gameglue.errors import GameError
from gameglue.input.events import PAD_AXES, PAD_BUTTONS

MOUSE_BUTTONS = {"left": 0, "right": 1, "middle": 2, "back": 3, "forward": 4}
MOUSE_MOTIONS = ("x", "y", "wheel")

NAMED_KEYS = frozenset(
    "alt gr,backspace,break,caps lock,clear,delete,down,end,enter,equals,escape,euro,help,home,insert,left,"
    "left alt,left ctrl,left meta,left shift,menu,numlock,page down,page up,power,print screen,return,right,"
    "right alt,right ctrl,right meta,right shift,scroll lock,space,sys req,tab,up,[*],[+],[-],[.],[/]".split(
        ","
    )
) | {f"f{n}" for n in range(1, 16)} | {f"[{n}]" for n in range(10)}  # fmt: skip
"""What keys are called that are not called by one character."""

_PAD = re.compile(r"(-?)pad(\d*) (\w+?)([+-]?)")


@dataclass(frozen=True)
class Control:
    """One key, button or axis.

    pad: the number of the gamepad, `None` for any. half: 1 or -1 where only that side of an axis counts.
    """

    kind: Literal["key", "mouse", "motion", "pad button", "pad axis"]
    name: str
    pad: int | None = None
    half: int = 0
    sign: int = 1

    def __str__(self) -> str:
        if self.kind == "key":
            return self.name
        if self.kind in ("mouse", "motion"):
            return f"{'-' if self.sign < 0 else ''}mouse {self.name}"
        number = "" if self.pad is None else str(self.pad + 1)
        half = {0: "", 1: "+", -1: "-"}[self.half]
        return f"{'-' if self.sign < 0 else ''}pad{number} {self.name}{half}"


@dataclass(frozen=True)
class Pair:
    """An axis made of two controls: one for -1, the other for 1."""

    negative: Control
    positive: Control

    def __str__(self) -> str:
        return f"{self.negative}/{self.positive}"


Binding = Control | Pair


def parse_binding(text: str) -> Binding:
    """Parse a binding. Raises `GameError` that suggests the likely one.

    >>> str(parse_binding("a/d")), parse_binding("pad2 a").pad
    ('a/d', 1)
    """
    if is_key(text):
        return Control("key", text)
    negative, slash, positive = text.partition("/")
    if slash and negative.strip() and positive.strip():
        return Pair(_parse_control(negative.strip()), _parse_control(positive.strip()))
    return _parse_control(text)


def controls_of(binding: Binding) -> tuple[Control, ...]:
    """The one or two controls of a binding."""
    return (binding,) if isinstance(binding, Control) else (binding.negative, binding.positive)


def _parse_control(text: str) -> Control:
    if is_key(text):
        return Control("key", text)
    pad = _PAD.fullmatch(text)
    if pad is not None:
        sign, number, name, half = pad[1], pad[2], pad[3], pad[4]
        index = int(number) - 1 if number else None
        if name in PAD_BUTTONS and not sign and not half and index != -1:
            return Control("pad button", name, index)
        if name in PAD_AXES and index != -1:
            return Control("pad axis", name, index, {"": 0, "+": 1, "-": -1}[half], -1 if sign else 1)
    sign, _, name = text.rpartition("mouse ")
    if name.isdecimal() and text == f"mouse {name}":
        name = next((known for known, number in MOUSE_BUTTONS.items() if number == int(name)), name)
        text = f"mouse {name}"
    if name in MOUSE_BUTTONS and text == f"mouse {name}":
        return Control("mouse", name)
    if name in MOUSE_MOTIONS and text in (f"mouse {name}", f"-mouse {name}"):
        return Control("motion", name, sign=-1 if sign else 1)
    raise GameError(f"unknown binding {text!r}{_guess(text) or ';'} {_FORMS}")


_FORMS = 'write a key ("space"), "mouse left", "pad a", "pad left_x", or two for an axis ("a/d")'


def is_key(text: str) -> bool:
    """Whether a key can have this name."""
    # Any single character of the player's keyboard is valid.
    return len(text) == 1 or text in NAMED_KEYS


def _guess(text: str) -> str:
    known = [
        *NAMED_KEYS,
        *(f"mouse {name}" for name in (*MOUSE_BUTTONS, *MOUSE_MOTIONS)),
        *(f"pad {name}" for name in (*PAD_BUTTONS, *PAD_AXES)),
    ]
    return suggestion(text, known)
