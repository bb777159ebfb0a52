"""The overlay itself: an imgui context with its input, its windows and its renderer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gameglue.graphics.colors import Palette, parse_color
from gameglue.input import InputEvent, KeyEvent, MouseButton, MouseMoved, MouseScrolled, TextEvent
from gameglue.inspector.details import Details
from gameglue.inspector.hierarchy import Hierarchy
from gameglue.inspector.imgui_import import import_imgui
from gameglue.inspector.keys import key_of, modifier_of
from gameglue.inspector.renderer import ImguiRenderer

if TYPE_CHECKING:
    from gameglue.host.app import App
    from gameglue.scene.game_object import GameObject

_FONT_SIZE = 13.0
_GAP = 10.0
_TOP = 56.0  # below a game's title
_LEFT, _RIGHT = 230.0, 310.0


class InspectorOverlay:
    """Two windows: the hierarchy on the left, the selected object's components on the right."""

    def __init__(self, app: App) -> None:
        assert app.graphics.ctx is not None
        imgui = import_imgui()
        self._imgui = imgui
        self._context = imgui.create_context()
        imgui.set_current_context(self._context)
        io = imgui.get_io()
        io.set_ini_filename("")
        io.set_log_filename("")
        io.fonts.add_font_from_file_ttf(str(app.graphics.fonts.default), _FONT_SIZE)
        _dress(imgui)
        self._renderer = ImguiRenderer(imgui, app.graphics.ctx)
        self._hierarchy = Hierarchy(imgui)
        self._details = Details(imgui, self._renderer.show_texture)
        self._areas: list[tuple[float, float, float, float]] = []
        self._pointer = (-1.0, -1.0)
        self._own_buttons: set[int] = set()
        self._game_buttons: set[int] = set()
        self._time = app._player_time

    @property
    def selected(self) -> GameObject | None:
        """The object whose components are shown."""
        owner = self._hierarchy.selected
        return owner if owner is not None and not owner.is_destroyed else None

    @selected.setter
    def selected(self, owner: GameObject | None) -> None:
        self._hierarchy.selected = owner

    # -- input ----------------------------------------------------------------------------------

    def take(self, event: InputEvent) -> bool:
        """Pass an event to imgui; returns whether it is meant for the overlay alone."""
        imgui = self._imgui
        imgui.set_current_context(self._context)
        io = imgui.get_io()
        match event:
            case MouseMoved(x, y):
                self._pointer = (x, y)
                io.add_mouse_pos_event(x, y)
                return self._has_pointer()
            case MouseButton(button, down, x, y):
                self._pointer = (x, y)
                io.add_mouse_pos_event(x, y)
                if button < 5:
                    io.add_mouse_button_event(button, down)
                return self._takes_button(button, down)
            case MouseScrolled(dx, dy):
                io.add_mouse_wheel_event(dx, dy)
                return self._has_pointer()
            case KeyEvent(key, down):
                modifier, known = modifier_of(imgui, key), key_of(imgui, key)
                if modifier is not None:
                    io.add_key_event(modifier, down)
                if known is not None:
                    io.add_key_event(known, down)
                # A key that goes up may have gone down before the overlay had the keyboard.
                return down and bool(io.want_text_input)
            case TextEvent(text):
                io.add_input_characters_utf8(text)
                return bool(io.want_text_input)
        return False

    def let_go(self) -> None:
        """Release held keys and buttons when the overlay is hidden."""
        self._imgui.set_current_context(self._context)
        io = self._imgui.get_io()
        io.clear_input_keys()
        io.clear_input_mouse()
        self._own_buttons.clear()
        self._game_buttons.clear()

    def _has_pointer(self) -> bool:
        """Whether the pointer is at work here: over a window, or dragging from one."""
        if self._game_buttons:
            return False
        x, y = self._pointer
        return bool(
            self._own_buttons
            or self._imgui.get_io().want_capture_mouse
            or any(left <= x < right and top <= y < bottom for left, top, right, bottom in self._areas)
        )

    def _takes_button(self, button: int, down: bool) -> bool:
        """Whether a button event is the overlay's: a release goes where the press went."""
        if down:
            own = self._has_pointer()
            (self._own_buttons if own else self._game_buttons).add(button)
            return own
        self._game_buttons.discard(button)
        if button in self._own_buttons:
            self._own_buttons.discard(button)
            return True
        return False

    # -- drawing --------------------------------------------------------------------------------

    def draw(self, app: App) -> None:
        """Draw the windows, handle clicks, and render over the image."""
        imgui, picture = self._imgui, app.graphics.picture
        imgui.set_current_context(self._context)
        io = imgui.get_io()
        io.display_size = imgui.ImVec2(*picture.size)
        io.delta_time = max(app._player_time - self._time, 1e-4)
        self._time = app._player_time
        self._areas = []
        imgui.new_frame()
        height = picture.size[1] - _TOP - _GAP
        self._window("Hierarchy", _GAP, _LEFT, 0.6 * height, lambda: self._hierarchy.draw(app))
        right = picture.size[0] - _RIGHT - _GAP
        self._window("Inspector", right, _RIGHT, height, lambda: self._details.draw(app, self._hierarchy))
        imgui.render()
        if picture.framebuffer is not None:
            self._renderer.render(imgui.get_draw_data(), picture.framebuffer)

    def _window(self, title: str, x: float, width: float, height: float, content: Any) -> None:
        imgui = self._imgui
        once = imgui.Cond_.first_use_ever
        imgui.set_next_window_pos(imgui.ImVec2(x, _TOP), once)
        imgui.set_next_window_size(imgui.ImVec2(width, height), once)
        is_open, _ = imgui.begin(title, None, imgui.WindowFlags_.no_focus_on_appearing)
        position, size = imgui.get_window_pos(), imgui.get_window_size()
        self._areas.append((position.x, position.y, position.x + size.x, position.y + size.y))
        try:
            if is_open:
                content()
        finally:
            imgui.end()

    def dispose(self) -> None:
        """Free textures and buffers, and the context."""
        self._imgui.set_current_context(self._context)
        self._renderer.release()
        self._imgui.destroy_context(self._context)


def _dress(imgui: Any) -> None:
    """The colours of gameglue's own panels."""
    imgui.style_colors_dark()
    style = imgui.get_style()
    style.window_rounding, style.frame_rounding, style.grab_rounding = 6.0, 3.0, 3.0
    style.window_border_size = 1.0
    style.frame_padding = imgui.ImVec2(6, 2)
    style.item_spacing = imgui.ImVec2(6, 4)
    color = imgui.Col_
    for place, name, alpha in (
        (color.window_bg, Palette.BACKGROUND, 0.95),
        (color.title_bg, Palette.PANEL, 1.0),
        (color.title_bg_active, Palette.PANEL, 1.0),
        (color.title_bg_collapsed, Palette.PANEL, 0.8),
        (color.frame_bg, Palette.PANEL, 1.0),
        (color.frame_bg_hovered, Palette.RAISED, 1.0),
        (color.frame_bg_active, Palette.RAISED, 1.0),
        (color.button, Palette.RAISED, 1.0),
        (color.button_hovered, Palette.LINE, 1.0),
        (color.button_active, Palette.ACCENT, 0.6),
        (color.header, Palette.RAISED, 1.0),
        (color.header_hovered, Palette.LINE, 1.0),
        (color.header_active, Palette.LINE, 1.0),
        (color.border, Palette.LINE, 1.0),
        (color.separator, Palette.LINE, 1.0),
        (color.text, Palette.TEXT, 1.0),
        (color.text_disabled, Palette.MUTED, 1.0),
        (color.check_mark, Palette.ACCENT, 1.0),
        (color.checkbox_selected_bg, Palette.RAISED, 1.0),
        (color.slider_grab, Palette.ACCENT, 0.8),
        (color.slider_grab_active, Palette.ACCENT, 1.0),
        (color.text_selected_bg, Palette.ACCENT, 0.4),
        (color.nav_cursor, Palette.ACCENT, 1.0),
    ):
        red, green, blue, _ = (value / 255 for value in parse_color(name))
        style.set_color_(place, imgui.ImVec4(red, green, blue, alpha))
