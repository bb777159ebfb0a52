"""A text label and a button that counts its clicks, drawn in `on_gui`."""

from gameglue import App, InputScript, MonoBehaviour, Page, Rect


class Menu(MonoBehaviour):
    """A page of 480 x 320 units, whatever the size of the window."""

    clicks: int = 0

    def on_gui(self) -> None:
        """Draw, and look whether the button is clicked."""
        page = Page(self.app.gui, 480, 320)
        page.text(f"clicked {self.clicks} times", 240, 110, size=28, align="center")
        button = Rect(160, 150, 160, 48)
        pointed = button.contains(*page.from_window(*self.input.mouse_position))
        page.button(*button, "Click me", highlighted=pointed)
        if pointed and self.input.get_mouse_button_down(0):
            self.clicks += 1


def main() -> int:
    """Click the button twice, and once beside it; returns the count."""
    mouse = InputScript().click(240, 170, at=0.1).click(20, 20, at=0.3).click(250, 180, at=0.5)
    with App("menu", size=(480, 320), headless=True, input_source=mouse) as app:
        menu = app.scene.create("menu").add_component(Menu)
        app.run(frames=45)
        return menu.clicks


if __name__ == "__main__":
    print(main(), "clicks")
