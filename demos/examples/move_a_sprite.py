"""Move a sprite with keys: an axis gives the direction, the frame's time the distance."""

from gameglue import App, InputScript, MonoBehaviour, SpriteRenderer, Vec3


class Player(MonoBehaviour):
    """Moves with the arrow keys, WASD or a stick."""

    speed: float = 4.0  # world units per second

    def update(self) -> None:
        """Move by this frame's share."""
        step = self.speed * self.time.delta_time
        self.transform.translate(
            (self.input.get_axis("horizontal") * step, self.input.get_axis("vertical") * step)
        )


def main() -> Vec3:
    """Hold D for a second and W for half of it; returns where the player is then."""
    keys = InputScript().press("d", at=0.0, hold=1.0).press("w", at=0.5, hold=0.5)
    with App("move", size=(480, 320), headless=True, input_source=keys) as app:
        player = app.scene.create("player", Player)
        player.add_component(SpriteRenderer, color="orange", radius=0.2)
        app.run(frames=80)
        return player.transform.position


if __name__ == "__main__":
    place = main()
    print(f"at {place.x:.1f}, {place.y:.1f}")
