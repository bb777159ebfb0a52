"""A camera that follows a sprite smoothly, after everything else has moved."""

from gameglue import App, Camera2D, GameObject, MonoBehaviour, SpriteRenderer, Vec3


class Runner(MonoBehaviour):
    """Moves to the right."""

    def update(self) -> None:
        """Three units a second."""
        self.transform.translate((3 * self.time.delta_time, 0))


class Follow(MonoBehaviour):
    """Keeps a target in view."""

    target: GameObject

    def late_update(self) -> None:
        """Approach the target; `damp` makes it independent of the frame rate."""
        here, there = self.transform.position, self.target.transform.position
        self.transform.position = Vec3(self.time.damp(here.x, there.x, seconds=0.2), here.y)


def main() -> float:
    """Two seconds; returns how far the camera is behind the runner."""
    with App("follow", size=(480, 320), headless=True) as app:
        app.scene.create("village").add_component(SpriteRenderer, texture="chatter/village.png", width=24.0)
        runner = app.scene.create("runner", Runner)
        runner.add_component(SpriteRenderer, color="orange", radius=0.3, order=1)
        camera = app.scene.create("camera", Camera2D)
        camera.add_component(Follow, target=runner)
        app.run(frames=120)
        return runner.transform.position.x - camera.transform.position.x


if __name__ == "__main__":
    print(f"the camera is {main():.1f} units behind")
