"""Profile frames: time a part of them, and print the report."""

from gameglue import App, FrameReport, MonoBehaviour


class PathFinding(MonoBehaviour):
    """Something that takes time."""

    def update(self) -> None:
        """A `with` block that the report lists."""
        with self.app.profiler.sample("path finding"):
            sum(range(20_000))


def main() -> FrameReport:
    """Measure 60 frames."""
    with App("profile", headless=True) as app:
        app.scene.create("path", PathFinding)
        app.run(frames=60)
        return app.report(level="1")


if __name__ == "__main__":
    print(main().as_text())
