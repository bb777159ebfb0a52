"""Save a running game in a scene file and load it again."""

import tempfile

from gameglue import App, MonoBehaviour


class Runner(MonoBehaviour):
    """Runs to the right. Its fields are saved with the scene."""

    speed: float = 1.0

    def update(self) -> None:
        """Run."""
        self.transform.translate((self.speed * self.time.delta_time, 0))


def main() -> tuple[float, float]:
    """Save after a second and run on; returns the place before loading and after it."""
    with tempfile.TemporaryDirectory() as folder, App("save", folder=folder, headless=True) as app:
        app.scene.create("runner").add_component(Runner, speed=2.0)
        for _ in range(60):
            app.step()
        path = app.scene.save("quick")
        print(path.read_text())
        for _ in range(60):
            app.step()
        before = app.find_components(Runner)[0].transform.position.x
        app.load_scene("quick")
        app.step()
        return before, app.find_components(Runner)[0].transform.position.x


if __name__ == "__main__":
    before, after = main()
    print(f"from {before:.1f} back to {after:.1f}")
