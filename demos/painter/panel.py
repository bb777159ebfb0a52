"""The user interface: title, slider, styles, the unpainted scene, figures and keys."""

from __future__ import annotations

from demos.painter.painter import Painter
from gameglue import MonoBehaviour, Page, Palette

_KEYS = {"drag": "strength", "1 2 3": "style", "space": "unpainted", "R": "resolution", "Esc": "quit"}
_SCALES = (0.25, 0.5, 1.0)
_GLASS = "#12151ce0"


class Panel(MonoBehaviour):
    """Reads mouse and keys; draws the interface. In autoplay it fades the painting in, and changes styles."""

    execution_order = -10  # before the painter, so that changes hold for this frame

    painter: Painter
    label: str = ""
    autoplay: bool = False

    def awake(self) -> None:
        """Start with the painter's strength."""
        self.strength = self.painter.strength
        self._is_held = False

    @property
    def page(self) -> Page:
        """A page as large as the window."""
        return Page(self.app.gui, fill=True)

    @property
    def slider(self) -> tuple[float, float, float]:
        """Left end, vertical centre and length, on the page."""
        return 112, self.page.height - 76, 230

    def update(self) -> None:
        """Read the mouse and the keys."""
        keys, painter, styles = self.input, self.painter, list(self.painter.workers)
        if keys.get_key_down("escape"):
            self.app.quit()
        for number, style in enumerate(styles, start=1):
            if keys.get_key_down(str(number)):
                painter.style, self.autoplay = style, False
        if keys.get_key_down("r"):
            painter.scale = _SCALES[(_SCALES.index(painter.scale) + 1) % len(_SCALES)]
        left, middle, length = self.slider
        x, y = self.page.from_window(*keys.mouse_position)
        if keys.get_mouse_button_down():
            self._is_held = abs(y - middle) < 18 and left - 16 < x < left + length + 16
            self.autoplay = False
        if self._is_held:
            self._is_held = keys.get_mouse_button()
            self.strength = (x - left) / length
        elif pressed := keys.get_axis("left", "right"):
            self.strength, self.autoplay = self.strength + pressed * self.time.unscaled_delta_time, False
        elif self.autoplay:
            self.strength = self.time.time / 2.0
            painter.style = styles[int(self.time.time / 5.5) % len(styles)]
        self.strength = min(max(self.strength, 0.0), 1.0)
        painter.strength = 0.0 if keys.get_key("space") else self.strength

    def on_gui(self) -> None:
        """Draw everything."""
        page, slider = self.page, self.slider
        page.rect(0, page.height - 106, page.width, 106, _GLASS)
        page.heading("painter", "a network paints this scene as it moves", x=30, y=34, back=_GLASS)
        page.keys(_KEYS, y=page.height - 30)
        self._draw_slider(page, *slider)
        x = 372.0
        for number, style in enumerate(self.painter.workers, start=1):
            chosen = style == self.painter.style
            colors = (Palette.ACCENT, Palette.BACKGROUND) if chosen else (Palette.RAISED, Palette.TEXT)
            x += page.chip(f"{number}  {style}", x, slider[1], 16, *colors) + 9
        self._draw_figures(page, page.width - 22, page.height - 30)
        self._draw_scene(page, page.width - 16, 14)

    def _draw_slider(self, page: Page, left: float, middle: float, length: float) -> None:
        page.text("strength", 22, middle, 16)
        page.progress_bar(left, middle - 3, length, 6, self.strength)
        page.circle(left + self.strength * length, middle, 11, "white")
        page.circle(left + self.strength * length, middle, 6, Palette.ACCENT)

    def _draw_figures(self, page: Page, right: float, y: float) -> None:
        painter = self.painter
        width, height = painter.size
        page.text(f"{width} x {height} on {self.label}", right, y, 13, Palette.MUTED, "right")
        frames = painter.network.latency_frames
        text = (
            f"shown {frames:.0f} frame{'s' if round(frames) != 1 else ''} later"
            if painter.pictures
            else "..."
        )
        page.text(text, right, y - 46, 15, align="right")

    def _draw_scene(self, page: Page, right: float, top: float) -> None:
        """The unpainted scene, small in the corner."""
        picture = self.painter.scene_picture
        if picture is None:
            return
        wide = 216
        left, tall = right - wide, wide * picture.size[1] / picture.size[0]
        page.rect(left - 3, top - 3, wide + 6, tall + 6, _GLASS, 10)
        page.image(picture, left, top, wide, tall, radius=8)
        page.chip("the unpainted scene", left + 6, top + tall - 18, 13, Palette.BACKGROUND, Palette.TEXT)
