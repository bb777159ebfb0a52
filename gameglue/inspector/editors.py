"""Editors for field types."""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum
from typing import Any, Literal, get_args, get_origin

import numpy as np

from gameglue.graphics.colors import Color, parse_color
from gameglue.graphics.device import RenderTarget, Texture
from gameglue.scene.game_object import GameObject
from gameglue.scene.vector import Quaternion, Vec3
from gameglue.scripting.behaviour import MonoBehaviour
from gameglue.scripting.fields import Field

_LONGEST = 60
_LARGEST = 1 << 30
"""The largest whole number that can be dragged: imgui's have 32 bits, and sliders take half of them."""
_PREVIEW = 96.0

Edited = tuple[bool, object]
"""Whether it was changed, and the value then."""


class Editors:
    """Shows field values, and edits those of supported types."""

    def __init__(self, imgui: Any, show_texture: Callable[[Any], Any]) -> None:
        self._imgui = imgui
        self._show_texture = show_texture

    def edit(self, field: Field, value: object) -> Edited:
        """Draw the editor in the rest of the line."""
        label, annotation = f"##{field.name}", _without_none(field.annotation)
        if get_origin(annotation) is Literal:
            return self._choose(label, list(get_args(annotation)), value)
        if isinstance(value, Enum):
            return self._choose(label, list(type(value)), value, lambda member: str(member.name))
        if _is_color(field, annotation, value):
            return self._color(label, value)
        if isinstance(value, bool):
            return tuple(self._imgui.checkbox(label, value))
        if isinstance(value, int | float | np.integer | np.floating):
            return self._number(label, field, value)
        if isinstance(value, str):
            return tuple(self._imgui.input_text(label, value))
        if isinstance(value, Vec3):
            changed, numbers = self._imgui.drag_float3(label, list(value), 0.02, 0.0, 0.0, "%.2f")
            return changed, Vec3(*numbers)
        if isinstance(value, Quaternion):
            changed, degrees = self._imgui.drag_float3(label, list(value.euler()), 0.5, 0.0, 0.0, "%.1f")
            return changed, Quaternion.from_euler(degrees)
        if isinstance(value, tuple) and 2 <= len(value) <= 4 and all(_is_number(v) for v in value):
            return self._numbers(label, value)
        self._show(value)
        return False, value

    def chosen_object(self, value: object) -> GameObject | None:
        """For a reference to an object: a button with its name; the object if that was pressed."""
        owner = value.game_object if isinstance(value, MonoBehaviour) else value
        if not isinstance(owner, GameObject):
            return None
        kind = f"  ({type(value).__name__})" if isinstance(value, MonoBehaviour) else ""
        return owner if self._imgui.button(f"{owner.name}{kind}") else None

    def _number(self, label: str, field: Field, value: Any) -> Edited:
        imgui, limits = self._imgui, field.range
        unit = "" if limits is None else f" {limits.unit}".rstrip().replace("%", "%%")
        is_whole = isinstance(value, int | np.integer) and field.annotation is not float
        if is_whole and abs(int(value)) > _LARGEST:
            self._show(value)
            return False, value
        if limits is not None and max(abs(limits.low), abs(limits.high)) <= _LARGEST:
            clamp = imgui.SliderFlags_.always_clamp
            if is_whole:
                low, high = math.ceil(limits.low), math.floor(limits.high)
                return tuple(imgui.slider_int(label, int(value), low, high, f"%d{unit}", clamp))
            ends = float(limits.low), float(limits.high)
            return tuple(imgui.slider_float(label, float(value), *ends, f"%.3f{unit}", clamp))
        if is_whole:
            return tuple(imgui.drag_int(label, int(value), 0.1))
        speed = max(abs(float(value)) * 0.01, 0.005) if math.isfinite(value) else 0.01
        return tuple(imgui.drag_float(label, float(value), speed, format=f"%.3f{unit}"))

    def _numbers(self, label: str, value: tuple[Any, ...]) -> Edited:
        if any(abs(v) > _LARGEST for v in value if isinstance(v, int)):
            self._show(value)
            return False, value
        if all(isinstance(v, int) for v in value):
            edit = getattr(self._imgui, f"drag_int{len(value)}")
            changed, numbers = edit(label, list(value), 0.1)
        else:
            edit = getattr(self._imgui, f"drag_float{len(value)}")
            changed, numbers = edit(label, [float(v) for v in value], 0.02, 0.0, 0.0, "%.2f")
        return changed, tuple(numbers)

    def _choose(
        self, label: str, options: list[Any], value: object, name: Callable[[Any], str] = str
    ) -> Edited:
        current = options.index(value) if value in options else -1
        changed, index = self._imgui.combo(label, current, [name(option) for option in options])
        return changed, options[index] if changed else value

    def _color(self, label: str, value: Any) -> Edited:
        imgui = self._imgui
        before = imgui.ImVec4(*(channel / 255 for channel in parse_color(value)))
        changed, color = imgui.color_edit4(label, before)
        if not changed:
            return False, value
        channels = (color.x, color.y, color.z, color.w)
        if not isinstance(value, str):
            return True, channels[: len(value)]
        digits = "".join(f"{round(channel * 255):02x}" for channel in channels)
        return True, f"#{digits.removesuffix('ff') if len(digits) == 8 else digits}"

    def _show(self, value: object) -> None:
        """A value that cannot be edited."""
        imgui = self._imgui
        if isinstance(value, GameObject | MonoBehaviour):
            return
        if isinstance(value, Texture | RenderTarget):
            imgui.text(f"{value.size[0]} x {value.size[1]}")
            if value.texture is not None:
                width = min(_PREVIEW, float(value.size[0]))
                size = imgui.ImVec2(width, width * value.size[1] / value.size[0])
                top, bottom = (1.0, 0.0) if value.bottom_up else (0.0, 1.0)
                corners = imgui.ImVec2(0.0, top), imgui.ImVec2(1.0, bottom)
                imgui.image(self._show_texture(value.texture), size, *corners)
            return
        text = f"{value.dtype} {value.shape}" if isinstance(value, np.ndarray) else _written(value)
        imgui.text_disabled(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")
        imgui.set_item_tooltip(text[:1000])


def _written(value: object) -> str:
    try:
        return repr(value)
    except Exception as error:  # noqa: BLE001 - the game's own code
        return f"{type(value).__name__}, whose repr raises {error!r}"


def _without_none(annotation: Any) -> Any:
    """`X` of `X | None`."""
    left = [kind for kind in get_args(annotation) if kind is not type(None)]
    return left[0] if len(left) == 1 and type(None) in get_args(annotation) else annotation


def _is_color(field: Field, annotation: Any, value: object) -> bool:
    if annotation != Color and not (isinstance(value, str) and "color" in field.name):
        return False
    try:
        parse_color(value)
    except (ValueError, TypeError):
        return False
    return True


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
