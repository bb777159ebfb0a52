"""Click on sprites: the camera says which point of the world is under the mouse."""

from gameglue import App, Camera2D, InputScript, MonoBehaviour, SpriteRenderer


class Pickable(MonoBehaviour):
    """A disc that turns green when it is clicked."""

    camera: Camera2D
    disc: SpriteRenderer
    radius: float = 0.8

    def update(self) -> None:
        """Compare the distance between the mouse and the disc's centre with its radius."""
        if not self.input.get_mouse_button_down(0):
            return
        point = self.camera.screen_to_world(*self.input.mouse_position)
        x, y, _ = self.transform.position
        if (point[0] - x) ** 2 + (point[1] - y) ** 2 < self.radius**2:
            self.disc.color = "green"
            print(f"picked {self.game_object.name} at {point[0]:.1f}, {point[1]:.1f}")


def main() -> None:
    """Click on the right one of three discs, and beside them."""
    mouse = InputScript().click(384, 160, at=0.1).click(10, 10, at=0.3)
    with App("pick", size=(480, 320), headless=True, input_source=mouse) as app:
        camera = app.scene.create("camera").add_component(Camera2D)
        for name, x in (("left", -4.5), ("middle", 0.0), ("right", 4.5)):
            place = app.scene.create(name, position=(x, 0))
            disc = place.add_component(SpriteRenderer, width=1.6, radius=0.8, color="teal")
            place.add_component(Pickable, camera=camera, disc=disc)
        app.run(frames=30)


if __name__ == "__main__":
    main()
