"""A headless game for tests: every frame stands for 1/60 s, and physics takes fixed steps of 1/50 s."""

from gameglue import App, MonoBehaviour


class Ball(MonoBehaviour):
    """Falls in fixed steps, so that the fall does not depend on the frame rate."""

    speed: float = 0.0
    steps: int = 0
    frames: int = 0

    def fixed_update(self) -> None:
        """Called 0, 1 or more times in a frame."""
        self.speed -= 9.81 * self.time.fixed_delta_time
        self.transform.translate((0, self.speed * self.time.fixed_delta_time))
        self.steps += 1

    def update(self) -> None:
        """Called once in a frame."""
        self.frames += 1


def main() -> Ball:
    """One second of the game, as fast as it can be computed; a component's exception ends it."""
    with App("fall", headless=True, on_error="raise") as app:
        ball = app.scene.create("ball").add_component(Ball)
        for _ in range(60):
            app.step()
        print(f"{ball.frames} frames, {ball.steps} fixed steps, {ball.transform.position.y:.2f} m")
    return ball


if __name__ == "__main__":
    main()
