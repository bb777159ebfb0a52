"""The left window: pause and step, and every object of every scene."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gameglue.host.app import App
    from gameglue.scene.game_object import GameObject
    from gameglue.scene.scene import Scene

_INDENT = 14.0


class Hierarchy:
    """Chooses the object that is shown in detail."""

    def __init__(self, imgui: Any) -> None:
        self._imgui = imgui
        self._search = ""
        self._closed: set[int] = set()
        self._open: set[int] = set()
        self._begins = True
        self.selected: GameObject | None = None

    def draw(self, app: App) -> None:
        """Draw the window, and handle clicks."""
        if self._begins and self.selected is None:
            # Select the first object that does anything.
            self.selected = next((owner for scene in app.scenes for owner in scene if owner.components), None)
        self._begins = self._begins and self.selected is None
        self._toolbar(app)
        imgui = self._imgui
        imgui.set_next_item_width(-1)
        _, self._search = imgui.input_text_with_hint("##search", "find by name or component", self._search)
        imgui.separator()
        if imgui.begin_child("objects"):
            rows = list(self._rows(app))
            clipper = imgui.ListClipper()
            clipper.begin(len(rows))
            while clipper.step():
                for scene, owner, depth in rows[clipper.display_start : clipper.display_end]:
                    if owner is None:
                        self._scene_row(app, scene)
                    else:
                        self._object_row(owner, depth)
        imgui.end_child()

    def _toolbar(self, app: App) -> None:
        imgui = self._imgui
        if imgui.button("Resume" if app.halted else "Pause", imgui.ImVec2(64, 0)):
            app.halted = not app.halted
        imgui.same_line()
        imgui.begin_disabled(not app.halted)
        if imgui.button("Step", imgui.ImVec2(48, 0)):
            app.single_step()
        imgui.end_disabled()
        imgui.same_line()
        imgui.set_next_item_width(-1)
        changed, scale = imgui.slider_float("##time scale", app.time.time_scale, 0.0, 4.0, "speed %.2f")
        if changed:
            app.time.time_scale = max(scale, 0.0)
        imgui.text_disabled(f"frame {app.time.frame_count}   {app.time.time:.2f} s")

    # -- rows -----------------------------------------------------------------------------------

    def _rows(self, app: App) -> Iterator[tuple[Scene, GameObject | None, int]]:
        """The visible rows, from the top: scene, object (None in the scene's own row), and depth."""
        wanted = self._search.strip().lower()
        for scene in app.scenes:
            yield scene, None, 0
            if id(scene) in self._closed:
                continue
            for owner in scene:
                if wanted:
                    if _is_found(owner, wanted):
                        yield scene, owner, 1
                elif owner.transform.parent is None:
                    yield from self._below(scene, owner, 1)

    def _below(self, scene: Scene, owner: GameObject, depth: int) -> Iterator[tuple[Scene, GameObject, int]]:
        yield scene, owner, depth
        if id(owner) in self._open:
            for child in owner.transform.children:
                if child.game_object is not None:
                    yield from self._below(scene, child.game_object, depth + 1)

    def _scene_row(self, app: App, scene: Scene) -> None:
        imgui = self._imgui
        imgui.set_next_item_open(id(scene) not in self._closed)
        flags = imgui.TreeNodeFlags_.no_tree_push_on_open | imgui.TreeNodeFlags_.span_avail_width
        active = "" if scene is not app.scene or len(app.scenes) == 1 else "  (active)"
        imgui.tree_node_ex(f"{scene.name}  {len(scene)}{active}###{id(scene)}", flags)
        if imgui.is_item_toggled_open():
            self._closed ^= {id(scene)}

    def _object_row(self, owner: GameObject, depth: int) -> None:
        imgui = self._imgui
        imgui.push_id(str(id(owner)))
        changed, active = imgui.checkbox("##active", owner.active)
        if changed:
            owner.active = active
        imgui.same_line(0, 4 + _INDENT * (depth - 1))
        flags = imgui.TreeNodeFlags_
        how = flags.no_tree_push_on_open | flags.span_avail_width | flags.open_on_arrow
        if not owner.transform.children or self._search.strip():
            how |= flags.leaf
        if owner is self.selected:
            how |= flags.selected
        imgui.set_next_item_open(id(owner) in self._open)
        if not owner.active_in_hierarchy:
            imgui.push_style_color(imgui.Col_.text, imgui.get_style().color_(imgui.Col_.text_disabled))
        imgui.tree_node_ex(f"{owner.name}###name", how)
        if not owner.active_in_hierarchy:
            imgui.pop_style_color()
        if imgui.is_item_toggled_open():
            self._open ^= {id(owner)}
        elif imgui.is_item_clicked():
            self.selected = owner
        imgui.pop_id()


def _is_found(owner: GameObject, wanted: str) -> bool:
    return wanted in owner.name.lower() or any(
        wanted in type(component).__name__.lower() for component in owner.components
    )
