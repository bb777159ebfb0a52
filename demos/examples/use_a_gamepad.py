"""Actions instead of keys: one name for a key, a mouse button and a gamepad's button."""

from gameglue import App, InputScript, MonoBehaviour


class Hero(MonoBehaviour):
    """Prints what the player does."""

    def update(self) -> None:
        """Ask for actions and axes by name."""
        if self.input.get_action_down("dash"):
            print(f"dash {self.input.get_axis('horizontal'):+.0f}")


def main() -> None:
    """A gamepad dashes to the right, then the keyboard to the left."""
    player = InputScript().connect_gamepad(at=0.0)
    player.pad_tilt("left_x", 1.0, at=0.1).pad_press("b", at=0.2).pad_tilt("left_x", 0.0, at=0.4)
    player.press("a", at=0.6, hold=0.3).press("left shift", at=0.7)
    with App("actions", headless=True, input_source=player) as app:
        app.input.actions.add_action("dash", "left shift", "mouse right", "pad b")
        app.scene.create("hero", Hero)
        app.run(frames=60)


if __name__ == "__main__":
    main()
