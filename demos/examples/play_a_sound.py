"""Play a sound when an action begins, and another beside it. Without a sound device the game is silent."""

from gameglue import App, AudioClip, AudioSource, InputScript, MonoBehaviour


class Bell(MonoBehaviour):
    """Rings when the player presses space."""

    rings: int = 0

    def start(self) -> None:
        """`AudioClip.load("bell.ogg")` reads a file; a tone needs none."""
        tone = AudioClip.tone(pitch=880, seconds=0.5)
        self.source = self.game_object.add_component(AudioSource, clip=tone, play_on_awake=False)
        self.echo = AudioClip.tone(pitch=440, seconds=0.3, volume=0.1)

    def update(self) -> None:
        """`play` starts the source's clip, `play_one_shot` any other."""
        if self.input.get_action_down("jump"):
            self.source.play()
            self.source.play_one_shot(self.echo, volume=0.5)
            self.rings += 1


def main() -> int:
    """Ring twice; returns how often it rang."""
    keys = InputScript().press("space", at=0.1).press("space", at=0.5)
    with App("bell", headless=True, input_source=keys) as app:
        bell = app.scene.create("bell").add_component(Bell)
        app.run(frames=60)
        return bell.rings


if __name__ == "__main__":
    print("rang", main(), "times")
