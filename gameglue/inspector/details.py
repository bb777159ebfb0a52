"""The right window: the selected object's transform and component fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gameglue.inspector.editors import Editors
from gameglue.scene.vector import Quaternion, Vec3
from gameglue.scripting.fields import Field, fields_of

if TYPE_CHECKING:
    from gameglue.host.app import App
    from gameglue.inspector.hierarchy import Hierarchy
    from gameglue.scene.game_object import GameObject
    from gameglue.scripting.behaviour import MonoBehaviour

_LABELS = 104.0
_MISTAKE = (1.0, 0.42, 0.42, 1.0)


class Details:
    """Shows and changes one object."""

    def __init__(self, imgui: Any, show_texture: Callable[[Any], Any]) -> None:
        self._imgui = imgui
        self._editors = Editors(imgui, show_texture)
        self._turn: tuple[object, Quaternion, Vec3] | None = None
        self._mistakes: dict[tuple[int, str], str] = {}

    def draw(self, app: App, hierarchy: Hierarchy) -> None:
        """Draw the window, and apply changes."""
        imgui, owner = self._imgui, hierarchy.selected
        if owner is None or owner.is_destroyed:
            imgui.text_disabled("select an object on the left")
            return
        imgui.push_id(str(id(owner)))
        try:
            self._head(owner)
            if imgui.collapsing_header("Transform", imgui.TreeNodeFlags_.default_open):
                self._transform(owner)
            for component in owner.components:
                self._component(component, hierarchy)
            imgui.spacing()
            if imgui.button("Destroy"):
                owner.destroy()
        finally:
            imgui.pop_id()

    def _head(self, owner: GameObject) -> None:
        imgui = self._imgui
        changed, active = imgui.checkbox("##active", owner.active)
        if changed:
            owner.active = active
        imgui.same_line()
        imgui.set_next_item_width(-1)
        _, owner.name = imgui.input_text("##name", owner.name)
        self._label("tag")
        changed, tag = imgui.input_text("##tag", owner.tag)
        if changed:
            owner.tag = tag
        self._label("layer")
        changed, layer = imgui.drag_int("##layer", owner.layer, 0.1, 0, 31)
        if changed:
            owner.layer = min(max(layer, 0), 31)

    def _transform(self, owner: GameObject) -> None:
        transform = owner.transform
        position = self._three("position", transform.local_position, 0.02)
        if position is not None:
            transform.local_position = position
        turn = self._three("rotation", self._degrees(owner), 0.5)
        if turn is not None:
            transform.local_rotation = Quaternion.from_euler(turn)
            # Degrees cannot be read back from a rotation the way they were written.
            self._turn = (owner, transform.local_rotation, turn)
        scale = self._three("scale", transform.local_scale, 0.01)
        if scale is not None:
            transform.local_scale = scale

    def _degrees(self, owner: GameObject) -> Vec3:
        rotation = owner.transform.local_rotation
        if self._turn is not None and self._turn[0] is owner and self._turn[1] == rotation:
            return self._turn[2]
        return rotation.euler()

    def _three(self, name: str, value: Vec3, speed: float) -> Vec3 | None:
        """Draw three draggable numbers; returns the new value, or `None` if it was not changed."""
        self._label(name)
        # Without a minus before a zero.
        shown = [round(number, 6) + 0.0 for number in value]
        changed, numbers = self._imgui.drag_float3(f"##{name}", shown, speed, 0.0, 0.0, "%.2f")
        return Vec3(*numbers) if changed else None

    def _component(self, component: MonoBehaviour, hierarchy: Hierarchy) -> None:
        imgui, cls = self._imgui, type(component)
        imgui.push_id(str(id(component)))
        changed, enabled = imgui.checkbox("##enabled", component.enabled)
        if changed:
            component.enabled = enabled
        imgui.same_line()
        if imgui.collapsing_header(cls.__name__, imgui.TreeNodeFlags_.default_open):
            fields = fields_of(cls)
            if not fields:
                imgui.text_disabled("no fields")
            for field in fields.values():
                self._field(component, field, hierarchy)
        imgui.pop_id()

    def _field(self, component: MonoBehaviour, field: Field, hierarchy: Hierarchy) -> None:
        imgui, key = self._imgui, (id(component), field.name)
        self._label(field.name, field.type_name)
        try:
            value = getattr(component, field.name)
        except AttributeError:
            imgui.text_disabled("not set")
            return
        except Exception as error:  # noqa: BLE001 - the game's own code; the others can be shown
            imgui.text_disabled(f"raises {error!r}")
            return
        chosen = self._editors.chosen_object(value)
        if chosen is not None:
            hierarchy.selected = chosen
        changed, new = self._editors.edit(field, value)
        if changed:
            self._mistakes.pop(key, None)
            try:
                field.check(type(component), new)
                setattr(component, field.name, new)
                try:
                    component.app._lifecycle.validate(component)
                except Exception:
                    setattr(component, field.name, value)
                    raise
            except Exception as error:  # noqa: BLE001 - refused by the field's type, or by the game's own code
                self._mistakes[key] = str(error)
        if key in self._mistakes:
            imgui.push_text_wrap_pos(0.0)
            imgui.text_colored(imgui.ImVec4(*_MISTAKE), self._mistakes[key])
            imgui.pop_text_wrap_pos()

    def _label(self, name: str, hint: str = "") -> None:
        imgui = self._imgui
        imgui.align_text_to_frame_padding()
        shown = name
        while len(shown) > 3 and imgui.calc_text_size(shown).x > _LABELS - 14.0:
            shown = shown.removesuffix("..")[:-1] + ".."
        imgui.text_disabled(shown)
        if hint:
            imgui.set_item_tooltip(f"{name}: {hint}")
        imgui.same_line(_LABELS)
        imgui.set_next_item_width(-1)
