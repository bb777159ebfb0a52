"""Events between components: the sender does not know who listens."""

from gameglue import App, Event, MonoBehaviour


class Health(MonoBehaviour):
    """Loses points, and says so."""

    points: int = 3
    on_hit = Event[[int]]()  # listeners get the points that are left

    def hurt(self) -> None:
        """Lose a point."""
        self.points -= 1
        self.on_hit.emit(self.points)


class HealthBar(MonoBehaviour):
    """Shows another component's points."""

    health: Health

    def start(self) -> None:
        """The connection ends with this component."""
        self.health.on_hit.connect(lambda points: print("#" * points or "game over"), owner=self)


def main() -> None:
    """Hurt the hero every 0.4 s."""
    with App("health", headless=True) as app:
        hero = app.scene.create("hero").add_component(Health)
        app.scene.create("bar").add_component(HealthBar, health=hero)
        hero.invoke_repeating(hero.hurt, delay=0.1, period=0.4)
        app.run(frames=60)


if __name__ == "__main__":
    main()
