"""Wait without blocking a frame: in an `async` hook, or in a generator that yields."""

from collections.abc import Iterator

from gameglue import App, MonoBehaviour, WaitForSeconds


class TrafficLight(MonoBehaviour):
    """Changes its colour as time passes."""

    async def start(self) -> None:
        """`await` continues in a later frame."""
        for color in ("red", "green", "yellow"):
            print(f"{self.time.time:.1f} s: {color}")
            await self.app.seconds(0.5)
        self.app.quit()


class Blinker(MonoBehaviour):
    """The same with `yield`, as in Unity."""

    def start(self) -> Iterator[WaitForSeconds]:
        """Each `yield` ends this coroutine's part of the frame."""
        while True:
            print(f"{self.time.time:.1f} s: blink")
            yield WaitForSeconds(0.6)


def main() -> None:
    """Run until the light quits."""
    with App("lights", headless=True) as app:
        app.scene.create("light", TrafficLight, Blinker)
        app.run(frames=600)


if __name__ == "__main__":
    main()
