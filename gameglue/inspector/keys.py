"""Key names of gameglue mapped to imgui's."""

from __future__ import annotations

from typing import Any

_NAMES = {
    "left": "left_arrow",
    "right": "right_arrow",
    "up": "up_arrow",
    "down": "down_arrow",
    "page up": "page_up",
    "page down": "page_down",
    "home": "home",
    "end": "end",
    "insert": "insert",
    "delete": "delete",
    "backspace": "backspace",
    "space": "space",
    "return": "enter",
    "enter": "keypad_enter",
    "escape": "escape",
    "tab": "tab",
}
_MODIFIERS = {"ctrl": "mod_ctrl", "shift": "mod_shift", "alt": "mod_alt", "meta": "mod_super"}


def key_of(imgui: Any, key: str) -> Any:
    """imgui's key, `None` for keys that text fields do not use."""
    if len(key) == 1 and key.isascii() and key.isalpha():
        return getattr(imgui.Key, key)
    return getattr(imgui.Key, _NAMES[key]) if key in _NAMES else None


def modifier_of(imgui: Any, key: str) -> Any:
    """imgui's modifier for "left ctrl", "right shift" and the like, else `None`."""
    name = _MODIFIERS.get(key.partition(" ")[2])
    return getattr(imgui.Key, name) if name is not None else None
