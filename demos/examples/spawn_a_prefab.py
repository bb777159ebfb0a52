"""Spawn copies of a template and destroy them after a time."""

from gameglue import App, GameObject, MonoBehaviour, SpriteRenderer


class Bullet(MonoBehaviour):
    """Flies up for a second."""

    def start(self) -> None:
        """Destroy the object later."""
        self.game_object.destroy(1.0)

    def update(self) -> None:
        """Four units a second."""
        self.transform.translate((0, 4 * self.time.delta_time))


class Gun(MonoBehaviour):
    """Shoots ten times a second."""

    bullet: GameObject

    def start(self) -> None:
        """`instantiate` also takes the name of a prefab file."""
        self.invoke_repeating(lambda: self.scene.instantiate(self.bullet), delay=0.0, period=0.1)


def main() -> int:
    """Three seconds; returns how many bullets fly then."""
    with App("gun", size=(480, 320), headless=True) as app:
        template = app.new_scene("templates").create("bullet", Bullet)
        template.add_component(SpriteRenderer, width=0.3, color="yellow")
        app.scene.create("gun").add_component(Gun, bullet=template)
        app.run(frames=180)
        return len(app.find_components(Bullet))


if __name__ == "__main__":
    print(main(), "bullets")
